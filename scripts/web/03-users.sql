SELECT count(DISTINCT user_id) FROM visits;
