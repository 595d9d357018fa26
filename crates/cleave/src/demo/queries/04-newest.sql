-- The first ten of a large table: each side keeps ten.
SELECT production_year, title, id
FROM title
WHERE production_year IS NOT NULL
ORDER BY production_year DESC, title, id
LIMIT 10;
