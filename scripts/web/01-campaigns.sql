SELECT count(*) FROM visits WHERE campaign <> 0;
