-- Six tables around the cast: the large ones shrink before they travel.
SELECT rt.role, count(*) AS parts, min(n.name) AS first_name
FROM cast_info AS ci, name AS n, role_type AS rt, title AS t, movie_companies AS mc, company_name AS cn
WHERE n.gender = 'f'
  AND n.name LIKE '%An%'
  AND ci.person_id = n.id
  AND rt.id = ci.role_id
  AND t.id = ci.movie_id
  AND t.production_year > 2005
  AND mc.movie_id = t.id
  AND cn.id = mc.company_id
  AND cn.country_code = '[us]'
  AND ci.note IN ('(voice)', '(voice: English version)', '(uncredited)', '(producer)')
GROUP BY rt.role
ORDER BY rt.role;
