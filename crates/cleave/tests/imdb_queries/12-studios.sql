-- Large studios and the charts: few rows on either side of a large table.
SELECT count(*) AS matches, min(cn.name) AS studio, min(t.title) AS title, min(mx.info) AS place
FROM company_name AS cn, movie_companies AS mc, title AS t, movie_info_idx AS mx, info_type AS it
WHERE cn.name LIKE '%Warner%'
  AND mc.company_id = cn.id
  AND t.id = mc.movie_id
  AND mx.movie_id = t.id
  AND it.id = mx.info_type_id
  AND it.info = 'top 250 rank';
