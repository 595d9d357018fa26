"""The parts of `scripts/bench_cord.py`, in the order in which a measurement passes through them. What they do not have
is that of `scripts/update`: the server, counters of both sides, rounds that interleave ways, tables and pictures.

    topology    devices and nodes by name, and the parts of them that experiments take
    places      where the devices are: processes on this machine, or the testbed's
    tables      particles, and TPC-H's lineitem, over some of the devices
    ways        the compared ways of running a query
    conditions  conditions that no earlier one has answered, for what is kept of them
    run         one measurement: what a run of update's has, over several devices
    scans       experiments of one query alone: selectivity, devices, uneven, q6
    repeated    experiments of several queries: history, batches
    loss        experiment of a device that is lost: loss
    report      how the experiments are shown
    self_test   checks of the pure parts
"""
