-- Pairs of titles where one refers to an older one: a table of links between a table and itself.
SELECT count(*) AS matches, min(t1.title) AS title, min(t2.title) AS older, max(lt.link) AS link
FROM movie_link AS ml, link_type AS lt, title AS t1, title AS t2
WHERE lt.link IN ('references', 'spoofs', 'features')
  AND ml.link_type_id = lt.id
  AND t1.id = ml.movie_id
  AND t2.id = ml.linked_movie_id
  AND t2.production_year < t1.production_year;
