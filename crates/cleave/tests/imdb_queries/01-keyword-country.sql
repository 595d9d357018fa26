-- Films with a keyword, by companies of one country: four joins around the title.
SELECT count(*) AS matches, min(t.title) AS title, min(cn.name) AS company
FROM title AS t, movie_keyword AS mk, keyword AS k, movie_companies AS mc, company_name AS cn
WHERE k.keyword = 'based-on-novel'
  AND mk.keyword_id = k.id
  AND t.id = mk.movie_id
  AND mc.movie_id = t.id
  AND cn.id = mc.company_id
  AND cn.country_code = '[gb]';
