SELECT user_id, count(*) AS n FROM visits GROUP BY user_id ORDER BY n DESC, user_id LIMIT 10;
