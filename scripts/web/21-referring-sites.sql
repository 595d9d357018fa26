SELECT substr(referrer, 9, strpos(substr(referrer, 9), '/') - 1) AS host, avg(length(referrer)), count(*) AS n,
    min(referrer)
FROM visits WHERE referrer <> '' GROUP BY host HAVING count(*) > 1000 ORDER BY n DESC, host LIMIT 25;
