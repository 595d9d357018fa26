"""Experiments of NDP result sets: units, transfer, interleaving, materialise, reuse, refresh, outgrown.

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
# Rows whose wide column has to be looked at too, so that pages without a match are read for it.
SELECTED = {"1 % in order": "id / {hundredth} = 7", "1 % scattered": "id % 100 = 7", "half": "version < 8"}
TRANSFERS = [ways.Way("pages", settings={"split": "host", "page_filter": "off"}),
             ways.Way("matching pages", settings={"split": "host", "page_filter": "always"}),
             ways.Way("rows", settings=NDP), ways.Way("auto", settings={"split": "auto"})]
# Groups of three types each.
GROUPS = [50, 50000]
GROUPED = ("SELECT id % {groups} AS bucket, type, count(*) AS n, sum(version) AS versions, max(data) AS last FROM node "
           "GROUP BY id % {groups}, type")
STAGED = "WITH kept AS MATERIALIZED ({rows}) SELECT type, sum(n), sum(versions), max(last) FROM kept GROUP BY type"
CONSUMED = "SELECT type, sum(n), sum(versions), max(last) FROM {rows} GROUP BY type"
VIEWS = {
    "one table": "SELECT id % 1000 AS bucket, count(*) AS n, sum(version) AS versions, sum(time) AS times FROM node "
                 "GROUP BY id % 1000",
    "averages": "SELECT id / 10000 AS bucket, avg(version) AS mean, max(version) AS last, count(DISTINCT type) AS n "
                "FROM node GROUP BY id / 10000",
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


def transfer(run):
    """Rows that a condition leaves: in all pages, in those with a matching row, as rows, and as is chosen by cost."""
    def measure(way, system, condition):
        load(run, system)
        with system.connect(way.settings) as session:
            return statement(session, way, f"SELECT * FROM node WHERE data LIKE '%a%' AND {condition}")

    for selected, condition in SELECTED.items():
        condition = condition.format(hundredth=max(1, run.options.narrow_rows // 100))
        run.rounds("transfer", {"matching": selected}, TRANSFERS,
                   lambda way, system, condition=condition: measure(way, system, condition))


def outgrown(run):
    """Operators with a tenth of the memory that their rows take, on the device, and on the host, which has enough."""
    operators = {
        "sort": "SELECT data, id FROM node ORDER BY data",
        "aggregate": "SELECT data, count(*), max(id) FROM node GROUP BY data",
        "aggregate, few left": "SELECT data, count(*), max(id) FROM node GROUP BY data HAVING max(id) % 1000 = 7",
        "join": "SELECT count(*), max(other.id) FROM node JOIN node AS other ON other.data = node.data",
    }

    def measure(way, system, text):
        load(run, system)
        with system.connect(way.settings) as session:
            return statement(session, way, text)

    for operator, text in operators.items():
        memory = max(1, run.options.narrow_rows * 136 // 10 // (1 << 20))
        device = ways.Way("device", settings={"split": "ndp", "device_memory": f"{memory}MB", "device_spill": "4GB"})
        run.rounds("outgrown", {"operator": operator}, [device, ways.HOST],
                   lambda way, system, text=text: measure(way, system, text))


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
    """Experiment 3: rows that a device writes before the rest of the statement, against rows sent as they are made."""
    def measure(way, system, groups):
        load(run, system)
        text = STAGED.format(rows=GROUPED.format(groups=groups))
        with system.connect(way.settings) as session:
            session.execute("SET stages = off")
            # The first one reads from media.
            timed(session, text)
            plain = statement(session, way, text)["seconds"]
            session.execute("SET stages = 'always'")
            # Held only from here on.
            session.execute("SET result_reuse = on")
            written = statement(session, way, text)["seconds"]
            consumed = statement(session, way, text)["seconds"]
        system.say("INSERT INTO node (id, type, version, time, data) SELECT max(id) + 1, 2048, 1, 0, '' FROM node")
        return {"seconds": written, "plain_seconds": plain, "second_use_seconds": consumed,
                "overhead": written / plain}

    for groups in GROUPS:
        run.rounds("materialise", {"groups": groups}, SIDES[:1],
                   lambda way, system, groups=groups: measure(way, system, groups))


def reuse(run):
    """Experiment 4: a result that is there already, alone and consumed by another query."""
    def from_host(session, way, text, _):
        session.execute("SET result_reuse = on")
        for _ in range(2):
            timed(session, text)
        return statement(session, way, text)["seconds"]

    def from_device(session, way, _, staged):
        session.execute("SET stages = 'always'")
        session.execute("SET result_reuse = on")
        # The whole result in the host's memory would come first.
        session.execute("SET result_cache_bytes = 0")
        timed(session, staged)
        return statement(session, way, staged)["seconds"]

    for where, of in (("result cache", from_host), ("stage", from_device)):
        for groups in GROUPS:
            grouped = GROUPED.format(groups=groups)
            for consumed, query in (("by a query", CONSUMED), ("by the client", "SELECT * FROM {rows}")):
                def measure(way, system, of=of, grouped=grouped, query=query):
                    load(run, system)
                    text = query.format(rows=f"({grouped}) AS rows")
                    staged = f"WITH kept AS MATERIALIZED ({grouped}) {query.format(rows='kept')}"
                    with system.connect(way.settings) as session:
                        timed(session, text)
                        plain = statement(session, way, text)["seconds"]
                        seconds = of(session, way, text, staged)
                    return {"seconds": seconds, "plain_seconds": plain, "faster": plain / seconds}

                case = {"result": where, "groups": groups, "consumed": consumed}
                run.rounds("reuse", case, SIDES[:1], measure)


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
