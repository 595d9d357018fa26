-- Discs of old films: two LIKEs on one note, and a range of years.
SELECT count(*) AS matches, min(mc.note) AS note, min(cn.name) AS company, min(t.production_year) AS year
FROM movie_companies AS mc, company_type AS ct, company_name AS cn, title AS t
WHERE ct.kind = 'distributors'
  AND mc.company_type_id = ct.id
  AND mc.note LIKE '%(DVD)%'
  AND mc.note NOT LIKE '%(USA)%'
  AND cn.id = mc.company_id
  AND t.id = mc.movie_id
  AND t.production_year < 1970;
