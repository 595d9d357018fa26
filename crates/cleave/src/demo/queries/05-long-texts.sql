-- A selective filter over long texts.
SELECT count(*) AS releases, min(info) AS first_release
FROM movie_info
WHERE info LIKE 'USA:%' AND note LIKE '%(premiere)%';
