{{ config(materialized='incremental', unique_key='day', incremental_strategy=var('strategy', 'delete+insert'),
          on_schema_change='append_new_columns') }}
select placed_at::date as day, count(*) as orders, sum(total) as total
from {{ ref('stg_orders') }}
{% if is_incremental() %}
where placed_at >= (select max(day) from {{ this }})
{% endif %}
group by 1
