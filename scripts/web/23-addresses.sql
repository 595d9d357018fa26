SELECT campaign, address, count(*) AS n, sum(is_reload), avg(width) FROM visits WHERE phrase <> ''
GROUP BY campaign, address ORDER BY n DESC, campaign, address LIMIT 10;
