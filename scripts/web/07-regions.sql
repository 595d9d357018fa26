SELECT region, sum(campaign), count(*) AS n, avg(width), count(DISTINCT user_id)
FROM visits GROUP BY region ORDER BY n DESC, region LIMIT 10;
