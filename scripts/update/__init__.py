"""The parts of `scripts/bench_update.py`, in the order in which a measurement passes through them.

    places          where the device is: embedded, local, remote, on the testbed
    systems         the servers that are compared, started, killed and asked: Cleave and PostgreSQL
    ways            the compared ways of an update: a system and its settings
    tables          the YCSB table with ten fields, its rows and the statements over it
    traffic         clients in processes of their own, and what became of each of their operations
    client_process  one such process
    workloads       the operations of a client, its keys, their arrivals
    counters        CPU seconds, bytes and memory of processes, from /proc
    log_end         the end of Cleave's log, from its files
    timelines       operations in slices of time, shares kept, waits: pure functions
    run             one measurement: its options, its records, the rounds that interleave the ways
    bulk            experiments of one statement alone: selectivity, for_update, locking, placement, scans, visibility
    beside          experiments of an update beside clients: mixed, contention, aborts, violation
    recovery        the experiment of a kill
    result_sets     experiments of result sets: units, transfer, interleaving, materialise, reuse, refresh, outgrown
    htap            transactions beside analytic queries
    report          Markdown tables and pictures from the measurements
    self_test       checks of the pure parts, and everything once at a tiny scale
"""
