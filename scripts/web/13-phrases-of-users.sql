SELECT user_id, phrase, count(*) AS n FROM visits GROUP BY user_id, phrase ORDER BY n DESC, user_id, phrase LIMIT 10;
