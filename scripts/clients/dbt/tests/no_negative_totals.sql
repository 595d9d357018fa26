select * from {{ ref('daily') }} where total < 0
