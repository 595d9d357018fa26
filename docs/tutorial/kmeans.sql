-- Three clusters of films by year and rating: k-means, by Lloyd's algorithm (1982).

-- The points: filtered, joined and cast once, read by every round. A rating counts in tenths, so that a tenth weighs as
-- much as a year. Sums of whole numbers are the same in any order.
CREATE MATERIALIZED VIEW points AS
SELECT t.production_year AS year, (i.info::numeric * 10)::integer AS rating
FROM title AS t JOIN movie_info_idx AS i ON i.movie_id = t.id
WHERE t.kind_id = 1 AND t.production_year IS NOT NULL AND i.info_type_id = 101;

ANALYZE points;

-- The means of each round, in one row. A recursive term has no aggregate, but a subquery that it joins may have some.
-- The recursion ends when no mean moves.
CREATE VIEW means AS
WITH RECURSIVE means (round, year1, rating1, year2, rating2, year3, rating3) AS (
    SELECT 0, 1920::float8, 60::float8, 2000::float8, 40::float8, 2000::float8, 80::float8
    UNION ALL
    SELECT m.round + 1, n.*
    FROM means AS m CROSS JOIN LATERAL (
        SELECT avg(year) FILTER (WHERE nearest = 1), avg(rating) FILTER (WHERE nearest = 1),
               avg(year) FILTER (WHERE nearest = 2), avg(rating) FILTER (WHERE nearest = 2),
               avg(year) FILTER (WHERE nearest = 3), avg(rating) FILTER (WHERE nearest = 3)
        FROM (
            SELECT year, rating, CASE least(d1, d2, d3) WHEN d1 THEN 1 WHEN d2 THEN 2 ELSE 3 END AS nearest
            FROM (
                SELECT year::float8, rating::float8,
                       (year - m.year1) ^ 2 + (rating - m.rating1) ^ 2 AS d1,
                       (year - m.year2) ^ 2 + (rating - m.rating2) ^ 2 AS d2,
                       (year - m.year3) ^ 2 + (rating - m.rating3) ^ 2 AS d3
                FROM points) AS measured) AS assigned) AS n (year1, rating1, year2, rating2, year3, rating3)
    WHERE (n.year1, n.rating1, n.year2, n.rating2, n.year3, n.rating3)
       <> (m.year1, m.rating1, m.year2, m.rating2, m.year3, m.rating3))
SELECT * FROM means;
