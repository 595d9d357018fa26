SELECT campaign, count(*) AS n FROM visits WHERE campaign <> 0 GROUP BY campaign ORDER BY n DESC, campaign;
