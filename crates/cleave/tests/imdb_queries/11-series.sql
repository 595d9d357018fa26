-- Episodes and their series: a self-join of titles through a nullable key.
SELECT count(*) AS matches, min(e.title) AS episode, min(s.title) AS series, max(e.season_nr) AS season
FROM title AS e, title AS s, kind_type AS kt, movie_keyword AS mk, keyword AS k
WHERE kt.kind = 'episode'
  AND e.kind_id = kt.id
  AND s.id = e.episode_of_id
  AND mk.movie_id = e.id
  AND k.id = mk.keyword_id
  AND k.keyword LIKE '%murder%';
