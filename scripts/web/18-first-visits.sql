SELECT * FROM visits WHERE url LIKE '%/help/12%' ORDER BY event_time, user_id LIMIT 10;
