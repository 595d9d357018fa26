-- Well rated titles of two genres: the same title in two tables of facts.
SELECT count(*) AS matches, min(mx.info) AS worst, min(t.title) AS title
FROM title AS t, movie_info AS mi, info_type AS it1, movie_info_idx AS mx, info_type AS it2
WHERE it1.info = 'genres'
  AND mi.info_type_id = it1.id
  AND mi.info IN ('Comedy', 'Western')
  AND it2.info = 'rating'
  AND mx.info_type_id = it2.id
  AND mx.info > '7.5'
  AND t.id = mi.movie_id
  AND mx.movie_id = t.id
  AND t.production_year BETWEEN 1960 AND 1999;
