SELECT phrase, count(*) AS n FROM visits WHERE phrase <> '' GROUP BY phrase ORDER BY n DESC, phrase LIMIT 10;
