{{ config(materialized='ephemeral') }}
select * from {{ ref('stg_orders') }} where placed_at > '2024-01-02'
