SELECT sum(campaign), count(*), avg(width), sum(load_ms), avg(user_id::numeric(30, 0)) FROM visits;
