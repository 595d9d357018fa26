-- A whole table into a handful of groups: partial aggregates cross the link, not rows.
SELECT kind_id, count(*) AS titles, min(production_year) AS earliest, max(production_year) AS latest
FROM title
GROUP BY kind_id
ORDER BY kind_id;
