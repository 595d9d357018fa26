SELECT phrase, min(url), count(*) AS n FROM visits WHERE url LIKE '%/cart/%' AND phrase <> ''
GROUP BY phrase ORDER BY n DESC, phrase LIMIT 10;
