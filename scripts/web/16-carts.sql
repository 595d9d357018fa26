SELECT count(*) FROM visits WHERE url LIKE '%/cart/1%';
