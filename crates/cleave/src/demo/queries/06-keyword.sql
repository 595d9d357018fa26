-- Three tables; one filter is so selective that hardly anything joins.
SELECT count(*) AS films, min(t.title) AS first_title, min(t.production_year) AS earliest
FROM title AS t, movie_keyword AS mk, keyword AS k
WHERE k.keyword = 'sequel'
  AND mk.keyword_id = k.id
  AND t.id = mk.movie_id
  AND t.production_year > 2000;
