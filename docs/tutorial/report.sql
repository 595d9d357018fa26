-- The busiest years of the generated database, and how its titles are spread over kinds.
SELECT production_year, count(*) AS titles
FROM title
WHERE production_year IS NOT NULL
GROUP BY production_year
ORDER BY titles DESC, production_year
LIMIT 5;

SELECT k.kind, count(*) AS titles
FROM title AS t, kind_type AS k
WHERE k.id = t.kind_id
GROUP BY k.kind
ORDER BY titles DESC, k.kind;
