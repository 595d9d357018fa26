SELECT site, avg(length(url)) AS bytes, count(*) AS n FROM visits WHERE url <> ''
GROUP BY site HAVING count(*) > 5000 ORDER BY bytes DESC, site LIMIT 25;
