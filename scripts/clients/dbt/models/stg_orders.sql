select id as order_id, coalesce(customer, 'nobody') as customer, total, placed::timestamp as placed_at, paid
from {{ ref('raw_orders') }}
