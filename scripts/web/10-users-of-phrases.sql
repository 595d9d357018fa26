SELECT phrase, count(DISTINCT user_id) AS users FROM visits WHERE phrase <> ''
GROUP BY phrase ORDER BY users DESC, phrase LIMIT 10;
