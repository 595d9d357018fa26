select customer, {{ dbt.dateadd('day', 30, 'placed_at') }} as due_at, row_number() over (order by placed_at) as place
from {{ ref('recent') }} where not paid
