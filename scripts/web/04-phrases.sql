SELECT count(DISTINCT phrase) FROM visits;
