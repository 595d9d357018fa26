SELECT url, count(*) AS views FROM visits WHERE site = 3 AND event_date BETWEEN DATE '2025-07-10' AND DATE
    '2025-07-20'
AND is_reload = 0 GROUP BY url ORDER BY views DESC, url LIMIT 10 OFFSET 100;
