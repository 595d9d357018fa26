-- Who played doctors in animations: a character, a note and a genre.
SELECT count(*) AS matches, min(chn.name) AS character, min(t.title) AS title, min(n.name) AS voice
FROM cast_info AS ci, char_name AS chn, title AS t, movie_info AS mi, name AS n
WHERE ci.note LIKE '(voice%'
  AND chn.id = ci.person_role_id
  AND chn.name LIKE '%Doctor%'
  AND t.id = ci.movie_id
  AND mi.movie_id = t.id
  AND mi.info = 'Animation'
  AND n.id = ci.person_id;
