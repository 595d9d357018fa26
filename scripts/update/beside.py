"""Experiments of an update beside clients: mixed, contention, aborts, violation, logging.

Clients run alone for a time, then beside the update until it has ended, then alone again. They change another field
than the update does, so that afterwards both can be checked: all rows of the update have its value, and (where fields
are integers, that clients count up) no client's change is lost.
"""

import shutil
import time

from . import bulk, systems, tables, timelines, traffic, ways

# Isolation levels of the clients.
LEVELS = ["read committed", "repeatable read"]
COMMON = [0.0, 0.1, 0.5, 1.0]
# An update that is aborted as often never ends.
ABORTS_MAX = 100
CANCELLED_AT = [0.1, 0.5, 0.9]
# Clients of `violation`, most of which wait for the update's locks, and their arrivals a second.
WAITING_CLIENTS, ARRIVALS = 40, 20.0


def mixed(run):
    """Experiment 1: an update of all rows while clients run YCSB-A, and YCSB-C, which only reads."""
    for width in run.widths():
        for name, read_share in [("YCSB-A", 0.5), ("YCSB-C", 1.0)][:1 if run.options.quick else 2]:
            def measure(way, system, width=width, read_share=read_share):
                return one_run(run, way, system, width, share=1.0, read_share=read_share)

            run.rounds("mixed", {"rows": width, "clients run": name}, ways.COMPARED, measure)


def contention(run):
    """Experiment 3: updates of a tenth of the rows, all over the table, beside skewed clients that have a share of
    these rows in common with it."""
    width = run.widths()[0]
    for level in LEVELS:
        for common in bulk.few(run, COMMON):
            def measure(way, system, common=common, level=level):
                return one_run(run, way, system, width, share=0.1, common=common, updates=3, level=level)

            run.rounds("contention", {"in common": common, "clients": level}, ways.COMPARED, measure)


def one_run(run, way, system, width, share, read_share=0.5, common=None, updates=1, before=(), level=LEVELS[0]):
    """The figures of updates of a share of the rows beside clients of a table that was made anew."""
    rows = run.rows(width)
    run.load(system, width)
    condition = tables.spread(share) if share < 1 else tables.first(rows, 1.0)
    attempts = {"aborted": 0}

    def act(session, marks):
        for number in range(1, updates + 1):
            while True:
                try:
                    with session.transaction():
                        for statement in before:
                            session.execute(statement)
                        session.execute(tables.update(width, condition, number))
                    break
                except (run.psycopg.errors.SerializationFailure, run.psycopg.errors.DeadlockDetected) as fault:
                    attempts["aborted"] += 1
                    if attempts["aborted"] >= ABORTS_MAX:
                        raise AssertionError(f"{way.name}: the update was aborted {ABORTS_MAX} times") from fault
            if number < updates:
                time.sleep(run.options.pause)

    figures = beside_clients(run, way, system, task(run, width, read_share, common, share), act, level)
    bulk.note_where(run, way, figures, f"{share:.0%} of the {width} rows, beside clients")
    figures["seconds"] -= run.options.pause * (updates - 1)
    tables.check_updated(system, width, condition, tables.count(rows, share), updates)
    return figures | {"update_aborts": attempts["aborted"]}


def task(run, width, read_share, common, share):
    """What clients are told; see client_process.py."""
    return {"workload": "ycsb", "width": width, "keys": run.rows(width), "read_share": read_share,
            "theta": run.options.theta, "seed": run.options.seed,
            **({"common": common, "updated_below": tables.below(share)} if common is not None else {})}


def beside_clients(run, way, system, told, act, level=LEVELS[0], clients=None):
    """Figures of the phases before, beside and after `act(session, marks)`.

    `act` may put more moments into `marks`. At REPEATABLE READ clients read a record before they change it.
    """
    options = run.options
    counted = system.say(tables.SUM)[0][0] if told["width"] == "narrow" else None
    width = max(0.05, min(0.5, options.before / 10))
    told = told | {"reads_first": level != LEVELS[0]}
    settings = {"default_transaction_isolation": level}
    with traffic.Clients(system, run.folder, clients or options.clients, told, settings) as running, \
            system.connect(way.settings) as session:
        marks = {"clients": running.start()}
        time.sleep(options.before)
        with systems.Measured(system) as measured:
            marks["begin"] = time.monotonic()
            act(session, marks)
            marks["end"] = time.monotonic()
        time.sleep(options.after)
        marks["over"] = time.monotonic()
        operations = running.stop()
    if counted is not None:
        check_no_change_is_lost(system, counted, operations)
    # Sessions and caches warm up in the first fifth.
    alone = (marks["clients"] + options.before / 5, marks["begin"])
    during, after = (marks["begin"], marks["end"]), (marks["end"], marks["over"])
    figures = {**measured.record, "reads_before": timelines.rate(operations, *alone, False),
               "reads_kept": timelines.kept(operations, alone, during, False),
               "reads_kept_after": timelines.kept(operations, alone, after, False),
               "longest_read_s": timelines.longest(operations, *during, False),
               "updates_before": timelines.rate(operations, *alone, True),
               "updates_kept": timelines.kept(operations, alone, during, True),
               "updates_kept_after": timelines.kept(operations, alone, after, True),
               "longest_update_s": timelines.longest(operations, *during, True),
               "p99_s": timelines.percentile(operations, 0.99, *during),
               "p99_before_s": timelines.percentile(operations, 0.99, *alone),
               "client_aborts": timelines.aborts(operations, marks["begin"], marks["over"]),
               "recovered_s": timelines.recovery_seconds(operations, alone, marks["end"], marks["over"], width)}
    begun = marks.pop("clients")
    figures["marks"] = {name: round(at - begun, 4) for name, at in marks.items()}
    figures["slices"] = [[round(part, 3) for part in one]
                         for one in timelines.slices(operations, begun, marks["over"], width)]
    return figures


def check_no_change_is_lost(system, counted, operations):
    """Clients add one to an integer with each update: the sum tells how many changes are there."""
    wanted = counted + sum(one.is_update and not one.is_aborted for one in operations)
    found = system.say(tables.SUM)[0][0]
    if found != wanted:
        raise AssertionError(f"{system.name}: {wanted - found} of the clients' changes are lost")


def logging(run):
    """What it costs to copy the changed chunks into an archive: updates of all rows beside clients of YCSB-A."""
    width = run.widths()[0]
    folder = run.folder / "archive"

    def measure(way, system):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        has_archive = way.name != ways.NOT_ARCHIVED
        system.say(f"ALTER SYSTEM SET archive_directory = '{folder if has_archive else ''}'")
        try:
            figures = one_run(run, way, system, width, share=1.0, updates=1 if run.options.quick else 5)
            copies = [path.stat().st_size for path in folder.rglob("*.pages")]
        finally:
            system.say("ALTER SYSTEM SET archive_directory = ''")
        return figures | {"copied_bytes": sum(copies)}

    run.rounds("logging", {"rows": width}, ways.LOGGING, measure)


def aborts(run):
    """Experiment 7: an update of all rows, given up early, late and after its end, beside clients."""
    width = run.widths()[0]
    whole = {}

    def measure(way, system, at):
        return one_abort(run, way, system, width, at, whole)

    # How long it takes where it is not given up; the others are cancelled after shares of this.
    cases = [("never", None), *[(f"{at:.0%}", at) for at in bulk.few(run, CANCELLED_AT)], ("after its end", "end")]
    for name, at in cases:
        run.rounds("aborts", {"given up": name}, ways.COMPARED, lambda way, system, at=at: measure(way, system, at))


def one_abort(run, way, system, width, at, whole):
    """The figures of one update that is given up `at` a share of its time, or at its "end"; of a whole one for None,
    whose time, without its commit, goes into `whole`."""
    rows = run.rows(width)
    run.load(system, width)
    everything = tables.first(rows, 1.0)
    scan = "SELECT max(field1), count(*) FROM usertable"
    abort = {}

    def act(session, marks):
        begun = time.monotonic()
        session.execute("BEGIN")
        timer = None
        if isinstance(at, float):
            timer = systems.cancel_after(session, at * whole[way.name])
        try:
            session.execute(tables.update(width, everything))
            asked = time.monotonic()
            if at is None:
                whole[way.name] = min(whole.get(way.name, asked - begun), asked - begun)
            if timer:
                abort["was_cancelled"] = False
                timer.cancel()
                timer.join()
        except run.psycopg.errors.QueryCanceled:
            asked, abort["was_cancelled"] = timer.at, True
        session.execute("COMMIT" if at is None else "ROLLBACK")
        abort["abort_seconds"] = time.monotonic() - asked if at is not None else None

    before_s = bulk.one_scan(scan_way(way), system, scan)["seconds"]
    figures = beside_clients(run, way, system, task(run, width, 0.5, None, 1.0), act)
    after_s = bulk.one_scan(scan_way(way), system, scan)["seconds"]
    changed = system.say(tables.updated(width, everything))[0][1]
    if changed != (rows if at is None else 0):
        raise AssertionError(f"{system.name}: {changed} of {rows} rows are changed by an update that was given up "
                             f"at {at}")
    return figures | abort | {"scan_before_s": before_s, "scan_after_s": after_s}


def scan_way(way):
    return ways.POSTGRESQL if way.system == "PostgreSQL" else ways.SCAN_HOST


def violation(run):
    """Experiment 9: clients that wait for the rows of an update which locked them all; around its commit."""
    width = run.widths()[0]
    clients = min(WAITING_CLIENTS, run.options.clients) if run.options.quick else WAITING_CLIENTS
    for replica in ["none", run.place.device]:
        if replica is None:
            continue
        if replica != "none":
            run.systems["Cleave"].say(f"ALTER SYSTEM SET log_replica = '{replica}'")
        # A replica has no counterpart in PostgreSQL here.
        compared = [way for way in ways.COMPARED if replica == "none" or way.system == "Cleave"]
        for level in LEVELS:
            def measure(way, system, level=level):
                return one_violation(run, way, system, width, level, clients)

            run.rounds("violation", {"clients": level, "log replica": replica}, compared, measure)
        if replica != "none":
            run.systems["Cleave"].say("ALTER SYSTEM SET log_replica = ''")


def one_violation(run, way, system, width, level, clients):
    rows = run.rows(width)
    run.load(system, width)
    everything = tables.first(rows, 1.0)

    def act(session, marks):
        session.execute("BEGIN")
        session.execute(bulk.lock_rows(everything))
        marks["locked"] = time.monotonic()
        session.execute(tables.update(width, everything))
        marks["updated"] = time.monotonic()
        session.execute("COMMIT")

    told = task(run, width, 0.0, None, 1.0) | {"rate": ARRIVALS}
    figures = beside_clients(run, way, system, told, act, level, clients)
    tables.check_updated(system, width, everything, rows)
    marks = figures["marks"]
    return figures | {"lock_seconds": marks["locked"] - marks["begin"],
                      "update_seconds": marks["updated"] - marks["locked"],
                      "commit_seconds": marks["end"] - marks["updated"]}
