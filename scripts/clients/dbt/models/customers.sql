{{ config(materialized='table', indexes=[{'columns': ['customer'], 'unique': True}],
          post_hook="analyze {{ this }}") }}
select customer, count(*) as orders, sum(total) as spent, min(placed_at) as first_at
from {{ ref('stg_orders') }} group by customer
