"""Experiments of NDP result sets: units, interleaving, materialise, reuse, refresh.

The data is LinkBench's node table: an id, three numbers and 128 characters a row.
"""

import time

from . import bulk, ways

UNITS = ["1kB", "16kB", "64kB", "256kB", "1MB", "4MB", "16MB", "auto"]
SLOTS = [1, 2, 16]
# Of the rows, in a row of their own each: how they lie and the condition for them.
CHANGED = {"1 % in order": "id <= {hundredth}", "1 % scattered": "id % 100 = 7", "0.01 % scattered": "id % 10000 = 7"}

NDP = {"split": "h0", "stealing": "off"}
STACKS = [ways.Way("blk", settings={"stack": "blk"}), ways.Way("native", settings={"stack": "native"})]
SIDES = [ways.Way("device", settings={"split": "auto", "stealing": "off"}), ways.HOST]

HALF = "SELECT * FROM node WHERE version < 8"
GROUPED = ("SELECT id % 50000 AS bucket, type, count(*) AS n, sum(version) AS versions, max(data) AS last FROM node "
           "GROUP BY id % 50000, type")
CONSUMED = "SELECT type, sum(n), sum(versions), max(last) FROM {rows} GROUP BY type"
VIEWS = {
    "one table": "SELECT id % 1000 AS bucket, count(*) AS n, sum(version) AS versions, sum(time) AS times FROM node "
                 "GROUP BY id % 1000",
    "joined": "SELECT other.id % 1000 AS bucket, count(*) AS n, sum(node.version) AS versions FROM node JOIN twin AS "
              "other ON other.id = node.time - 1700000000 WHERE other.data LIKE '%7%' GROUP BY other.id % 1000",
}


def load(run, system):
    """Makes the node table, once a server."""
    rows = run.options.narrow_rows
    if system.say("SELECT count(*) FROM pg_class WHERE relname = 'node'")[0][0]:
        return
    system.say(
        "CREATE TABLE node (id bigint PRIMARY KEY, type int NOT NULL, version bigint NOT NULL, time bigint NOT NULL, "
        "data text NOT NULL)",
        "INSERT INTO node SELECT i, 2048 + i % 3, i % 17, 1700000000 + i, "
        f"md5(i::text) || md5((-i)::text) || md5((2 * i)::text) || md5((3 * i)::text) "
        f"FROM generate_series(1, {rows}) AS g (i)",
        "ANALYZE node", "CHECKPOINT")


def timed(session, *statements):
    """Seconds for statements whose rows are fetched."""
    begun = time.monotonic()
    for statement in statements:
        done = session.execute(statement)
        if done.description:
            done.fetchall()
    return time.monotonic() - begun


def statement(session, way, text):
    """What EXPLAIN ANALYZE says of a statement; no row is sent to the client."""
    found = bulk.explained(session, way, text)
    return found | {"seconds": found["statement_total_ms"] / 1000}


def units(run):
    """Experiment 1: half of all rows in blocks of rows, by the size of a slot, and in pages."""
    def measure(way, system):
        load(run, system)
        with system.connect(way.settings) as session:
            return statement(session, way, HALF)

    for unit in UNITS:
        run.rounds("units", {"unit": unit}, [ways.Way("ndp", settings=NDP | {"slot_bytes": unit})], measure)
    run.rounds("units", {"unit": "page"}, STACKS, measure)


def interleaving(run):
    """Experiment 2: the host computes over rows while the device makes the next ones, by the number of slots."""
    def measure(way, system):
        load(run, system)
        with system.connect(way.settings) as session:
            # Rows behind an offset are counted by the host, and so is what follows.
            return statement(session, way, f"SELECT sum(length(md5(data))), count(*) FROM ({HALF} OFFSET 1) AS rows")

    for slots in SLOTS:
        way = ways.Way("ndp", settings=NDP | {"slot_count": slots, "slot_bytes": "64kB"})
        run.rounds("interleaving", {"slots": slots}, [way], measure)
    run.rounds("interleaving", {"slots": "none: pages"}, STACKS, measure)


def materialise(run):
    """Experiment 3: a query and its consumer at once, against its rows written first and then consumed."""
    def measure(way, system):
        load(run, system)
        with system.connect(way.settings) as session:
            plain = timed(session, CONSUMED.format(rows=f"({GROUPED}) AS rows"))
            written = timed(session, f"CREATE TEMPORARY TABLE kept AS {GROUPED}")
            consumed = timed(session, CONSUMED.format(rows="kept"))
            session.execute("DROP TABLE kept")
        return {"seconds": written + consumed, "plain_seconds": plain, "written_seconds": written,
                "second_use_seconds": consumed, "overhead": (written + consumed) / plain}

    run.rounds("materialise", {"rows": "grouped"}, SIDES, measure)


def reuse(run):
    """Experiment 4: a result that is there already, alone and consumed by another query."""
    def from_host(session, way, text, _):
        session.execute("SET result_reuse = on")
        for _ in range(2):
            timed(session, text)
        return statement(session, way, text)["seconds"]

    def from_device(session, way, _, consumer):
        session.execute(f"CREATE MATERIALIZED VIEW kept AS {GROUPED}")
        again = CONSUMED.format(rows="kept") if consumer else "SELECT * FROM kept"
        seconds = statement(session, way, again)["seconds"]
        session.execute("DROP MATERIALIZED VIEW kept")
        return seconds

    for where, of in (("result cache", from_host), ("materialized view", from_device)):
        for consumer in (False, True):
            def measure(way, system, of=of, consumer=consumer):
                load(run, system)
                text = CONSUMED.format(rows=f"({GROUPED}) AS rows") if consumer else GROUPED
                with system.connect(way.settings) as session:
                    plain = statement(session, way, text)["seconds"]
                    seconds = of(session, way, text, consumer)
                return {"seconds": seconds, "plain_seconds": plain, "faster": plain / seconds}

            case = {"result": where, "consumed": "by a query" if consumer else "by the client"}
            run.rounds("reuse", case, SIDES, measure)


def refresh(run):
    """A refresh of an aggregate by changes, against one of all rows."""
    def measure(way, system, view, condition):
        load(run, system)
        system.say("CREATE TABLE IF NOT EXISTS twin AS SELECT id, data FROM node", "ANALYZE twin", "CHECKPOINT")
        with system.connect(way.settings) as session:
            session.execute("DROP MATERIALIZED VIEW IF EXISTS buckets")
            session.execute(f"CREATE MATERIALIZED VIEW buckets AS {view}")
            changed = session.execute(f"UPDATE node SET version = version + 1 WHERE {condition}").rowcount
            session.execute("SET refresh_method = changes")
            seconds = timed(session, "REFRESH MATERIALIZED VIEW buckets")
            by_changes = session.execute("SELECT * FROM buckets ORDER BY 1").fetchall()
            session.execute("SET refresh_method = 'all'")
            whole = timed(session, "REFRESH MATERIALIZED VIEW buckets")
            if session.execute("SELECT * FROM buckets ORDER BY 1").fetchall() != by_changes:
                raise AssertionError("a refresh by changes gives other rows than one of all rows")
            session.execute("DROP MATERIALIZED VIEW buckets")
        return {"seconds": seconds, "plain_seconds": whole, "faster": whole / seconds, "changed_rows": changed}

    for kind, view in VIEWS.items():
        for changed, condition in CHANGED.items():
            condition = condition.format(hundredth=max(1, run.options.narrow_rows // 100))
            run.rounds("refresh", {"view": kind, "changed": changed}, SIDES,
                       lambda way, system, view=view, condition=condition: measure(way, system, view, condition))
