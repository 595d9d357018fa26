SELECT count(*), max(event_time) FROM visits WHERE user_id = (SELECT min(user_id) FROM visits);
