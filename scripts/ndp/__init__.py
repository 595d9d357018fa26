"""The parts of `scripts/bench_ndp.py`, in the order in which a measurement passes through them.

    ways          the compared ways: a split, a stack, a baseline, as settings and shares of the processor
    places        the testbed with its data, and one run of a statement in it
    results       measurements on disk, one a line, so that a stopped run continues where it was
    experiments   which ways of which queries are measured how often, in which order
    figures       medians, intervals, comparison of rows: pure functions
    report        CSV, summary and pictures from the measurements
    self_test     checks of everything that needs no testbed
"""
