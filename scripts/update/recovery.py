"""The experiment of a kill: an update of all rows is committed, everything is killed, and the first answer awaited.

The files stay in the page cache. The time is from the start of the process to the first answer of a query that needs a
row of the update; then all rows are checked.
"""

import time

from . import tables, ways


def recovery(run):
    """Experiment 8: the time until a killed server answers again, and the log that the update has written."""
    for width in run.widths():
        # The testbed's device is not this process's to kill.
        for what in ["host", "host and device"][:2 if run.place.process else 1]:
            def measure(way, system, width=width, device_too=what != "host"):
                return one_kill(run, way, system, width, device_too)

            compared = [way for way in ways.COMPARED if what == "host" or way.system == "Cleave"]
            run.rounds("recovery", {"rows": width, "killed": what}, compared, measure)


def one_kill(run, way, system, width, device_too):
    rows = run.rows(width)
    run.load(system, width)
    everything = tables.first(rows, 1.0)
    log_begin = system.log_bytes()
    with system.connect(way.settings) as session:
        begun = time.monotonic()
        session.execute(tables.update(width, everything))
        update_seconds = time.monotonic() - begun
    log_bytes = system.log_bytes() - log_begin
    system.kill(device_too)
    begun = time.monotonic()
    if device_too:
        system.start_device()
    system.start_again()
    system.await_answer("SELECT field1 FROM usertable WHERE ycsb_key = 1")
    seconds = time.monotonic() - begun
    begun = time.monotonic()
    tables.check_updated(system, width, everything, rows)
    return {"seconds": seconds, "first_scan_seconds": time.monotonic() - begun, "log_bytes": log_bytes,
            "log_bytes_per_row": log_bytes / rows, "update_seconds": update_seconds}
