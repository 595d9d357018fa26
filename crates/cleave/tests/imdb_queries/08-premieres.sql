-- Premieres in Japan of films that have another title somewhere.
SELECT count(*) AS matches, min(mi.info) AS release, min(a.title) AS elsewhere
FROM movie_info AS mi, info_type AS it, title AS t, aka_title AS a
WHERE it.info = 'release dates'
  AND mi.info_type_id = it.id
  AND mi.info LIKE 'Japan:%'
  AND t.id = mi.movie_id
  AND a.movie_id = t.id
  AND t.production_year > 1995;
