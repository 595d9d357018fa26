-- People of whom a biography is told, and the films they directed.
SELECT count(*) AS matches, min(n.name) AS director, min(t.title) AS title
FROM person_info AS pi, info_type AS it, name AS n, cast_info AS ci, role_type AS rt, title AS t
WHERE it.info = 'mini biography'
  AND pi.info_type_id = it.id
  AND n.id = pi.person_id
  AND ci.person_id = n.id
  AND rt.id = ci.role_id
  AND rt.role = 'director'
  AND t.id = ci.movie_id
  AND t.production_year BETWEEN 1970 AND 2005;
