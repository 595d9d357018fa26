SELECT date_trunc('minute', event_time) AS minute, count(*) FROM visits WHERE site = 7
AND event_date >= DATE '2025-07-14' AND event_date <= DATE '2025-07-15' GROUP BY minute ORDER BY minute LIMIT 100;
