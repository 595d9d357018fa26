-- Five tables, filters on four of them.
SELECT ct.kind, count(*) AS films, max(mi.info) AS best_rating
FROM title AS t, movie_info_idx AS mi, info_type AS it, movie_companies AS mc, company_type AS ct
WHERE it.info = 'rating'
  AND mi.info_type_id = it.id
  AND mi.info > '8.0'
  AND t.id = mi.movie_id
  AND t.production_year BETWEEN 1990 AND 2010
  AND mc.movie_id = t.id
  AND mc.note LIKE '%(USA)%'
  AND ct.id = mc.company_type_id
GROUP BY ct.kind
ORDER BY ct.kind;
