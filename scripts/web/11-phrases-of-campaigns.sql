SELECT campaign, phrase, count(*) AS n FROM visits WHERE phrase <> ''
GROUP BY campaign, phrase ORDER BY n DESC, campaign, phrase LIMIT 10;
