SELECT sum(width + 0), sum(width + 1), sum(width + 2), sum(width + 3), sum(width + 4), sum(width + 5), sum(width + 6),
    sum(width + 7), sum(width + 8), sum(width + 9), sum(width + 10), sum(width + 11), sum(width + 12), sum(width +
    13), sum(width + 14), sum(width + 15), sum(width + 16), sum(width + 17), sum(width + 18), sum(width + 19),
    sum(width + 20), sum(width + 21), sum(width + 22), sum(width + 23), sum(width + 24), sum(width + 25), sum(width +
    26), sum(width + 27), sum(width + 28), sum(width + 29) FROM visits;
