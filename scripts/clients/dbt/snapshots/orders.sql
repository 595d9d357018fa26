{% snapshot orders_history %}
{{ config(target_schema='public', unique_key='id', strategy='check', check_cols=['total', 'paid']) }}
select * from {{ ref('raw_orders') }}
{% endsnapshot %}
