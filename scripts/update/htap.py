"""Transactions beside analytic queries: the five experiments of update-aware HTAP.

Clients run LinkBench's operations. One analyst asks queries over the same tables, one after the other with a pause:

    join         links of a share of the nodes, joined with their nodes and grouped
    betweenness  how many shortest paths of at most three links pass through a node, from a share of the nodes:
                 betweenness centrality, the ten nodes with the most, by WITH RECURSIVE (docs/tutorial/betweenness.sql)
    reach        how many nodes are up to three links away from a few, by WITH RECURSIVE

A second session measures freshness: it commits a change, asks for it by a query that runs as the analyst's do, and the
answer must show it. Each round measures the transactions alone, and beside the analyst on the device, on the host,
and in PostgreSQL. Energy is a model: CPU seconds times watts of a core, of each side, plus watts of both sides while
nothing runs times the duration. The clients' CPU time does not count.
"""

import pathlib
import statistics
import threading
import time

import bench
import servers

from . import bulk, systems, timelines, traffic, ways

ALONE = ways.Way("alone")
ALONE_POSTGRESQL = ways.Way("PostgreSQL alone", "PostgreSQL")
DEVICE = ways.Way("device", settings={"split": "ndp", "stealing": "off"})
HOST = ways.Way("host", settings={"split": "host"})
EQUAL = ways.Way("equal", settings=HOST.settings, host_has_both=True)
COMPARED = [ALONE, DEVICE, HOST, EQUAL, ALONE_POSTGRESQL, ways.POSTGRESQL]
# Splits of a query that cannot run wholly on the device.
SPLITS = ["ndp", "h1+", "h0", "auto"]
# The worked example of the tutorial, whose sample of sources is replaced.
BETWEENNESS = pathlib.Path(__file__).resolve().parents[2] / "docs/tutorial/betweenness.sql"
SAMPLE = "id % 500 = 1"
LINK_TYPE = 123_456_789
MARKS = ["DROP TABLE IF EXISTS mark", "CREATE TABLE mark (id int PRIMARY KEY, n bigint NOT NULL, note text)",
         "INSERT INTO mark SELECT i, 0, 'note ' || i FROM generate_series(1, 20000) AS g (i)", "ANALYZE mark"]
# One factor at a time; the others as in the base case.
SWEEPS = {"skew": [0.0, 0.5, 0.99], "selectivity": [0.1, 0.5, 1.0], "pause": [0.0, 0.5, 2.0],
          "buffers": ["16MB", "32MB", "128MB"], "device_memory": ["4MB", "16MB", "64MB"]}
# Seconds between two measurements of freshness.
FRESHNESS_PAUSE = 0.2


def queries(nodes, selectivity):
    """The analyst's queries over a share of the nodes."""
    most = max(2, round(nodes * selectivity))
    # Walks grow with the cube of the links of a node.
    sources, starts = max(2, min(20, most // 50)), max(1, min(20, most // 1000))
    betweenness = BETWEENNESS.read_text()
    if SAMPLE not in betweenness:
        raise AssertionError(f"{BETWEENNESS} takes another sample than {SAMPLE}")
    return {
        "join": f"SELECT n.type, l.visibility, count(*), max(l.version) FROM linktable AS l JOIN nodetable AS n "
                f"ON n.id = l.id1 WHERE l.id1 <= {most} GROUP BY n.type, l.visibility",
        "betweenness": betweenness.replace(SAMPLE, f"id <= {sources}"),
        "reach": f"""
            WITH RECURSIVE walk (id, depth) AS (
                SELECT id, 0 FROM nodetable WHERE id <= {starts}
                UNION SELECT l.id2, w.depth + 1 FROM walk AS w JOIN linktable AS l ON l.id1 = w.id WHERE w.depth < 3)
            SELECT depth, count(DISTINCT id) FROM walk GROUP BY depth ORDER BY depth"""}


def htap(run):
    """The base case, then one sweep for each factor."""
    load(run)
    base = {"skew": run.options.theta, "selectivity": 1.0, "pause": run.options.pause, "buffers": run.options.buffers,
            "device_memory": "64MB"}
    run.rounds("htap", {"sweep": "base"}, COMPARED, measurer(run, base))
    for factor, values in SWEEPS.items():
        if factor not in run.options.sweeps.split(","):
            continue
        for value in values[:1] if run.options.quick else values:
            # The device's memory means nothing to PostgreSQL.
            compared = [way for way in COMPARED if factor != "device_memory" or way.system == "Cleave"]
            run.rounds("htap", {"sweep": factor, "value": value}, compared, measurer(run, base | {factor: value}),
                       min(run.options.rounds, 3))
    for system in run.systems.values():
        check_counts(system)
        system.give_buffers(run.options.buffers)


def check_counts(system):
    """Clients maintain each node's count of its visible links: a lost update would show."""
    [(wrong,)] = system.say("""
        SELECT count(*) FROM counttable AS c
        LEFT JOIN (SELECT id1, count(*) AS links FROM linktable WHERE visibility = 1 GROUP BY id1) AS l ON l.id1 = c.id
        WHERE c.count <> coalesce(l.links, 0)""")
    if wrong:
        raise AssertionError(f"{system.name}: {wrong} nodes have other numbers of links than their counts say")


def load(run):
    for system in run.systems.values():
        servers.output([bench.CLEAVE, "bench", "linkbench", "--url", system.url(), "--scale", run.options.scale,
                        "--load-only"])
        system.say(*MARKS)
        system.say("CHECKPOINT")


def measurer(run, case):
    def measure(way, system):
        return one_run(run, way, system, case)

    return measure


def one_run(run, way, system, case):
    """The figures of the transactions, alone or beside an analyst."""
    options = run.options
    system.give_buffers(case["buffers"])
    nodes = system.say("SELECT max(id) FROM nodetable WHERE id < 100000000")[0][0]
    told = {"workload": "linkbench", "keys": nodes, "theta": case["skew"], "seed": options.seed,
            "first_new": next_node(system)}
    is_alone = way in (ALONE, ALONE_POSTGRESQL)
    asked = {} if is_alone else {name: runnable(system, way, text, case) for name, text in
                                 queries(nodes, case["selectivity"]).items()}
    with traffic.Clients(system, run.folder, options.clients, told) as clients:
        clients.start()
        time.sleep(min(1.0, options.before))
        with Analyst(system, way, asked, case) as analyst, systems.Measured(system) as measured:
            begin = time.monotonic()
            time.sleep(options.seconds)
            end = time.monotonic()
        operations = clients.stop()
    figures = measured.record | {"varied": case}
    figures |= {"per_second": timelines.rate(operations, begin, end),
                "p99_s": timelines.percentile(operations, 0.99, begin, end),
                "client_aborts": timelines.aborts(operations, begin, end),
                "host_cores_busy": figures["host_cpu_s"] / figures["seconds"],
                "energy_j": energy(options, figures)}
    if is_alone:
        return figures
    figures |= analyst.figures(begin, end)
    # Quiet, with the statement's own counters: what it reads on media and what crosses the link.
    with system.connect(settings_of(way, case)) as session:
        for name, (settings, text) in asked.items():
            if way.system == "Cleave":
                give(session, settings)
                figures |= {f"{name}_{title}": value for title, value in bulk.explained(session, way, text).items()}
    return figures


def next_node(system):
    """An id that no node has: new nodes get ids above the loaded ones."""
    return max(100_000_000, system.say("SELECT max(id) FROM nodetable")[0][0])


def settings_of(way, case):
    memory = {"device_memory": case["device_memory"]} if way.system == "Cleave" else {}
    return way.settings | memory


def runnable(system, way, text, case):
    """(settings, text): the way's own settings, or the next cut that the server can run."""
    if way is not DEVICE:
        return {}, text
    with system.connect(settings_of(way, case)) as session:
        for split in SPLITS:
            try:
                session.execute(f"SET split = '{split}'")
                session.execute(text).fetchall()
                return {"split": split}, text
            except system.psycopg.errors.FeatureNotSupported:
                continue
    raise AssertionError(f"no split runs {text}")


def give(session, settings):
    for name, value in settings.items():
        session.execute(f"SET {name} = '{value}'")


def energy(options, figures):
    """Joules by the model of this module."""
    idle = (options.watts_idle_host + options.watts_idle_device) * figures["seconds"]
    return figures["host_cpu_s"] * options.watts_host + figures["device_cpu_s"] * options.watts_device + idle


class Analyst:
    """One session that asks queries in turn, and one that measures freshness: `with Analyst(...) as analyst`. Without
    queries neither is there."""

    def __init__(self, system, way, asked, case):
        self.system, self.way, self.asked, self.case = system, way, asked, case
        self.is_over, self.fault = threading.Event(), None
        self.times = {name: [] for name in asked}
        self.ended, self.fresh = [], []

    def __enter__(self):
        work = [self.ask, self.watch] if self.asked else []
        self.threads = [threading.Thread(target=self.guarded, args=[one], daemon=True) for one in work]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()
        if self.fault:
            raise self.fault

    def guarded(self, work):
        try:
            with self.system.connect(settings_of(self.way, self.case)) as session:
                work(session)
        except BaseException as fault:
            self.fault = fault

    def ask(self, session):
        while True:
            for name, (settings, text) in self.asked.items():
                give(session, settings)
                begun = time.monotonic()
                session.execute(text).fetchall()
                now = time.monotonic()
                self.times[name].append(now - begun)
                self.ended.append(now)
                if self.is_over.wait(self.case["pause"]) or self.is_over.is_set():
                    return

    def watch(self, session):
        """Seconds from the acknowledgement of each commit to the answer of a query that began then."""
        with self.system.connect() as writer:
            count = self.system.say("SELECT n FROM mark WHERE id = 1")[0][0]
            while not self.is_over.wait(FRESHNESS_PAUSE):
                count += 1
                writer.execute("UPDATE mark SET n = %s WHERE id = 1", [count], prepare=True)
                begun = time.monotonic()
                found = session.execute("SELECT max(n) FROM mark WHERE id <= 1", prepare=True).fetchone()[0]
                self.fresh.append(time.monotonic() - begun)
                if found != count:
                    raise AssertionError(f"{self.system.name}: {found} is seen after {count} was acknowledged")

    def figures(self, begin, end):
        ended = sum(begin <= at < end for at in self.ended)
        return {"queries_per_second": ended / (end - begin),
                "freshness_s": statistics.median(self.fresh) if self.fresh else None,
                "freshness_max_s": max(self.fresh, default=None),
                **{f"{name}_s": statistics.median(times) for name, times in self.times.items() if times}}
