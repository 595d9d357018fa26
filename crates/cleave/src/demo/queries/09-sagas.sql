-- A table joined with itself by way of another.
SELECT lt.link, count(*) AS pairs, min(t1.title) AS one, min(t2.title) AS other
FROM movie_link AS ml, link_type AS lt, title AS t1, title AS t2
WHERE lt.link IN ('follows', 'followed by', 'remake of')
  AND ml.link_type_id = lt.id
  AND t1.id = ml.movie_id
  AND t2.id = ml.linked_movie_id
  AND t2.production_year < t1.production_year
GROUP BY lt.link
ORDER BY lt.link;
