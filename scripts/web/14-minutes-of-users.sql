SELECT user_id, extract(minute FROM event_time) AS minute, count(*) AS n
FROM visits GROUP BY user_id, minute ORDER BY n DESC, user_id, minute LIMIT 10;
