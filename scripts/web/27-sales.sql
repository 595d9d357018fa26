SELECT event_date, count(price), sum(price), max(price), percentile_cont(0.5) WITHIN GROUP (ORDER BY load_ms)
FROM visits WHERE price IS NOT NULL GROUP BY event_date ORDER BY event_date;
