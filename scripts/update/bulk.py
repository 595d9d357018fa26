"""Experiments of one statement alone: selectivity, for_update, locking, placement, scans, visibility."""

import json
import re
import time

from ndp import places as ndp_places

from . import beside, tables, ways
from .systems import Measured

# Of the table's size.
SIZES = [0.125, 0.25, 0.5, 1.0]
PLACEMENT_SHARES = [0.0001, 0.001, 0.01, 0.1, 1.0]
LOCKING_SHARES = [0.1, 1.0]
PROJECTED = [1, 2, 4, 6, 8, 10]
SELECTED = [0.001, 0.01, 0.1, 0.5, 1.0]
# Of the rows, updated before a scan.
UPDATED = [0.0, 0.1, 0.5, 1.0]


def selectivity(run):
    """Experiments 1 and 2: a bulk update of one column of ten, of growing shares of the rows."""
    for width in run.widths():
        for share in run.shares():
            def measure(way, system, width=width, share=share):
                return one_update(run, way, system, width, share)

            run.rounds("selectivity", {"rows": width, "updated": share}, ways.COMPARED, measure)


def one_update(run, way, system, width, share, prepare=(), condition=None):
    """The figures of one update of a table that was made anew. `prepare` are statements in its transaction, before."""
    rows = run.rows(width)
    run.load(system, width)
    condition = condition or tables.first(rows, share)
    wanted = max(1, round(rows * share))
    log_begin = system.log_bytes()
    with system.connect(way.settings) as session:
        with Measured(system) as measured:
            if prepare:
                with session.transaction():
                    for statement in prepare:
                        session.execute(statement)
                    session.execute(tables.update(width, condition))
            else:
                session.execute(tables.update(width, condition))
        figures = measured.record | {"log_bytes": system.log_bytes() - log_begin}
        # What the update has left in memory is written now.
        with Measured(system) as after:
            session.execute("CHECKPOINT")
        figures["checkpoint_seconds"] = after.record["seconds"]
        figures["written_bytes"] = sum(part[f"{side}_written_bytes"] for part in (figures, after.record)
                                       for side in ("host", "device"))
        figures["rows_per_second"] = wanted / figures["seconds"]
        tables.check_updated(system, width, condition, wanted)
        note_where(run, way, figures, f"{share:.0%} of the {width} rows")
        if way.system == "Cleave":
            # The statement's own figures, of a second update: EXPLAIN costs time.
            found = explained(session, way, tables.update(width, condition, 2))
            # They count only if that ran where the first one did.
            if bool(figures.get("update_fragments")) == bool(found.get("statement_device_operators")):
                figures |= found
            tables.check_updated(system, width, condition, wanted, 2)
    return figures


def note_where(run, way, figures, what):
    """Says so if the device was to make an update and did not."""
    if way.settings.get(ways.PLACEMENT) == "device" and not figures.get("update_fragments"):
        run.note(f"the update of {what} was made by the host, not by an update fragment ({way.name})")


def explained(session, way, statement):
    """What EXPLAIN ANALYZE says of a statement that it runs: bytes in three places, CPU time of both sides."""
    said = session.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}").fetchone()[0]
    text = said if isinstance(said, str) else json.dumps(said)
    # A few rows by their keys are changed without a plan, and without these figures.
    if '"CPU"' not in text:
        return {}
    found = ndp_places.read_explain(text, way)
    found["device_operators"] = sum(part["runs_on"] != "host" for part in json.loads(text)[0]["Operators"])
    return {f"statement_{name}": found[name] for name in
            ("to_host_bytes", "to_device_bytes", "media_bytes", "host_memory_bytes", "host_cpu_ms", "device_cpu_ms",
             "total_ms", "rows", "device_operators") if name in found}


def for_update(run):
    """Experiment 4: SELECT FOR UPDATE of all rows before their update, against the update alone."""
    width = run.widths()[0]
    for size in sizes(run):
        rows = max(1, round(run.rows(width) * size))

        def measure(way, system, rows=rows):
            seconds = {}
            everything = tables.first(rows, 1.0)
            for name, before in (("plain", []), ("locked", [lock_rows(everything)])):
                run.load(system, width, rows)
                with system.connect(way.settings) as session:
                    begun = time.monotonic()
                    with session.transaction():
                        for statement in before:
                            session.execute(statement)
                        session.execute(tables.update(width, everything))
                    seconds[name] = time.monotonic() - begun
                tables.check_updated(system, width, everything, rows)
            return {"seconds": seconds["locked"], "plain_seconds": seconds["plain"],
                    "overhead": seconds["locked"] / seconds["plain"]}

        run.rounds("for_update", {"table": size}, ways.COMPARED, measure)


def lock_rows(condition):
    """Locks rows without returning them."""
    return f"SELECT count(*) FROM (SELECT ycsb_key FROM usertable WHERE {condition} FOR UPDATE) AS locked"


def sizes(run):
    return SIZES[-1:] if run.options.quick else SIZES


def locking(run):
    """Experiment 5: the shared lock table, a table lock and optimistic validation; alone, and beside clients whose
    rows are others."""
    width = run.widths()[0]
    table_lock = ways.Way("PostgreSQL, LOCK TABLE", "PostgreSQL")
    compared = run.supported(ways.LOCKS, ways.LOCKING)
    if not compared:
        return
    compared += run.present([ways.POSTGRESQL, table_lock])

    def before(way):
        return ["LOCK TABLE usertable IN EXCLUSIVE MODE"] if way is table_lock else []

    for share in LOCKING_SHARES:
        def measure(way, system, share=share):
            return one_update(run, way, system, width, share, before(way))

        run.rounds("locking", {"updated": share, "clients": 0}, compared, measure)

    def measure_beside(way, system):
        return beside.one_run(run, way, system, width, share=0.1, common=0.0, before=before(way))

    run.rounds("locking", {"updated": 0.1, "clients": run.options.clients}, compared, measure_beside)


def placement(run):
    """Experiment 6: rows found and changed on the host (S1), found there and changed on the device (S2), both on the
    device (S3), and whichever the server chooses. Beside the times stand those that EXPLAIN predicts."""
    compared = run.supported(ways.PLACES, ways.PLACEMENT)
    if not compared:
        return
    for width in run.widths():
        for share in [0.1] if run.options.quick else PLACEMENT_SHARES:
            # Rows that lie together, and, where that is another thing, all over the table.
            for name in ["together", "all over"][:2 if 0.001 <= share < 1 else 1]:
                condition = tables.spread(share) if name == "all over" else tables.first(run.rows(width), share)

                def measure(way, system, width=width, share=share, condition=condition):
                    figures = one_update(run, way, system, width, share, condition=condition)
                    return figures | predicted(way, system, tables.update(width, condition, 3))

                run.rounds("placement", {"rows": width, "lie": name, "updated": share}, compared, measure)


def predicted(way, system, statement):
    """The seconds that EXPLAIN predicts for the way beside finding the rows, and which way would be taken."""
    with system.connect(way.settings) as session:
        lines = [line for (line,) in session.execute(f"EXPLAIN {statement}").fetchall()]
    ways_said = {name: line for line in lines for name, said in ways.EXPLAINED.items() if line.strip().startswith(said)}
    chosen = next((name for name, line in ways_said.items() if line.endswith("chosen")), "host")
    asked = way.settings[ways.PLACEMENT]
    line = ways_said.get(chosen if asked == "auto" else asked, "")
    found = re.search(r"([0-9.]+) ms", line)
    return {"chosen": chosen} | ({"predicted_s": float(found[1]) / 1e3} if found else {})


def scans(run):
    """Scans on the host and on the device: one value, more and more fields, more and more rows."""
    width = run.widths()[0]
    for system in run.systems.values():
        run.load(system, width)
    fields = [f"field{number}" for number in range(tables.FIELDS)]
    cases = [({"sweep": "aggregate", "fields": 1, "selected": 1.0}, "SELECT max(field0), count(*) FROM usertable")]
    cases += [({"sweep": "projectivity", "fields": count, "selected": 1.0},
               f"SELECT {', '.join(fields[:count])} FROM usertable") for count in few(run, PROJECTED)]
    cases += [({"sweep": "selectivity", "fields": 5, "selected": share},
               f"SELECT {', '.join(fields[:5])} FROM usertable WHERE {tables.spread(share)}")
              for share in few(run, SELECTED)]
    for case, query in cases:
        def measure(way, system, query=query):
            return one_scan(way, system, query)

        run.rounds("scans", case, ways.SCANS, measure)


def few(run, values):
    return values[::len(values) - 1] if run.options.quick else values


def one_scan(way, system, query):
    """Seconds of planning and execution, as EXPLAIN ANALYZE says: no row is sent to the client."""
    with system.connect(way.settings) as session:
        if way.system == "PostgreSQL":
            said = session.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query}").fetchone()[0][0]
            return {"seconds": (said["Planning Time"] + said["Execution Time"]) / 1e3}
        found = explained(session, way, query)
        return {"seconds": found.pop("statement_total_ms") / 1e3, **found}


def visibility(run):
    """How fast scans are after shares of the rows were updated, and after a vacuum."""
    width = run.widths()[0]
    query = "SELECT max(field1), count(*) FROM usertable"
    for share in few(run, UPDATED):
        for system in run.systems.values():
            run.load(system, width)
            if share:
                system.say(tables.update(width, tables.spread(share)))

        def measure(way, system):
            return one_scan(way, system, query)

        run.rounds("visibility", {"updated": share, "vacuum": "no"}, ways.SCANS, measure)
    for system in run.systems.values():
        system.say("VACUUM usertable")
    run.rounds("visibility", {"updated": UPDATED[-1], "vacuum": "yes"}, ways.SCANS, measure)
