-- Films whose crew is known to be complete, and their editors: two aliases of one small table.
SELECT count(*) AS matches, min(t.title) AS title, min(n.name) AS editor
FROM complete_cast AS cc, comp_cast_type AS subject, comp_cast_type AS status, title AS t,
     kind_type AS kt, cast_info AS ci, role_type AS rt, name AS n
WHERE subject.kind = 'crew'
  AND cc.subject_id = subject.id
  AND status.kind LIKE 'complete%'
  AND cc.status_id = status.id
  AND t.id = cc.movie_id
  AND kt.id = t.kind_id
  AND kt.kind = 'movie'
  AND ci.movie_id = t.id
  AND rt.id = ci.role_id
  AND rt.role = 'editor'
  AND n.id = ci.person_id;
