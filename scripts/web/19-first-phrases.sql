SELECT phrase FROM visits WHERE phrase <> '' ORDER BY event_time, phrase LIMIT 10;
