"""The parts of `scripts/bench_ndp.py`, in the order in which a measurement passes through them.

    ways          what is compared: a split, a stack, a baseline, as settings and shares of the processor
    places        the testbed with its data, and one run of a statement in it
    results       measurements on disk, a line each, so that a run goes on where it was stopped
    experiments   which ways of which queries are measured how often, in which order
    figures       medians, intervals, comparison of rows: pure functions
    report        CSV, summary and pictures from the measurements
    svg           the pictures
    self_test     checks of all that needs no testbed
"""
