-- Composers by family name, with what else they are called.
SELECT count(*) AS matches, min(n.name) AS name, min(an.name) AS alias
FROM cast_info AS ci, role_type AS rt, name AS n, aka_name AS an
WHERE rt.role = 'composer'
  AND ci.role_id = rt.id
  AND n.id = ci.person_id
  AND n.name LIKE 'M%'
  AND an.person_id = n.id;
