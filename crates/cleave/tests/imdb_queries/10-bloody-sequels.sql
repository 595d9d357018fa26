-- A star of six large tables around the title: the joins explode before they are filtered.
SELECT count(*) AS matches, min(t.title) AS title, min(n.name) AS writer, min(mx.info) AS votes
FROM title AS t, movie_keyword AS mk, keyword AS k, cast_info AS ci, name AS n, movie_info AS mi,
     info_type AS it1, movie_info_idx AS mx, info_type AS it2
WHERE k.keyword IN ('blood', 'zombie', 'sequel')
  AND mk.keyword_id = k.id
  AND t.id = mk.movie_id
  AND ci.movie_id = t.id
  AND ci.note IN ('(written by)', '(screenplay)')
  AND n.id = ci.person_id
  AND n.gender = 'm'
  AND it1.info = 'genres'
  AND mi.info_type_id = it1.id
  AND mi.info IN ('Horror', 'Action')
  AND mi.movie_id = t.id
  AND it2.info = 'votes'
  AND mx.info_type_id = it2.id
  AND mx.movie_id = t.id;
