SELECT url, count(*) AS n FROM visits GROUP BY url ORDER BY n DESC, url LIMIT 10;
