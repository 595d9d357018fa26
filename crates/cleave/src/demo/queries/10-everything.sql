-- The counterexample: nearly all rows are wanted, so nothing is saved by computing near them.
SELECT id, movie_id, keyword_id
FROM movie_keyword
WHERE id > 10;
