"""Experiments of one query alone: selectivity, devices, uneven, q6.

A query is timed by EXPLAIN ANALYZE, planning and execution: its rows reach the host, as they reach the client of the
paper, and no further. Each way runs once before the rounds, for what is there only once, such as a plan's parts.
"""

from dataclasses import replace

from update import result_sets

from . import tables, ways

# {share of the rows: c} for `ke > c`.
SELECTED = {0.000004: 1.505, 0.01: 0.424, 0.1: 0.0357, 0.5: 0.0123, 0.94: 0.00206}
# The query of `devices` and `uneven`, as in the paper.
SOME = 0.2
PARTICLES = ("x, y, z", "ke", "x, y, z", "ke > {}")
# What is fetched, filtered and shown of line items: TPC-H's query 6 as the paper writes it.
Q6 = ("l_extendedprice, l_discount", "l_shipdate, l_quantity", "sum(l_extendedprice * l_discount)",
      "l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' AND l_discount > 0.05 AND l_discount < 0.07 "
      "AND l_quantity < 24")
# Quarters of the rows on each of two devices.
PLACEMENTS = {"all on one": (4, 0), "3:1": (3, 1), "even": (2, 2)}


def statement(query, table, fetches):
    """The text of a query, which is (columns, further columns of the condition, output, condition)."""
    columns, filtered, output, condition = query
    if not fetches:
        return f"SELECT {output} FROM {table} WHERE {condition}"
    return (f"WITH fetched AS MATERIALIZED (SELECT {columns}, {filtered} FROM {table}) SELECT {output} FROM fetched "
            f"WHERE {condition}")


def particles_above(least):
    return (*PARTICLES[:3], PARTICLES[3].format(least))


def scan(run, way, system, query, table):
    """The figures of one execution of a query over a table."""
    found = timed(run, way, system, statement(query, table, way.fetches))
    run.agree(query, found["statement_rows"])
    return found


def timed(run, way, system, text):
    """The figures of one execution of a text, which runs once more before its first."""
    with system.connect(way.settings) as session:
        if (way.name, text) not in run.warm:
            result_sets.statement(session, way, text)
            run.warm.add((way.name, text))
        return result_sets.statement(session, way, text)


def compared(run, found):
    """Those of the ways for which there is what they need."""
    if run.place.topology.processors:
        return found
    run.note("skipped processor: the nodes' own processors have no share; give --cpu or --node-cpu")
    return [way for way in found if not way.on_processors]


def where(run, way):
    """The devices that a way's table lies on."""
    topology = run.place.topology
    return topology.processors if way.on_processors else topology.devices


def selectivity(run):
    """The paper's Fig. 4a: a query whose condition leaves from 0.0004 % to 94 % of the rows."""
    for share, least in SELECTED.items():
        query = particles_above(least)

        def measure(way, system, query=query):
            return scan(run, way, system, query, tables.particles(run, system, where(run, way)))

        run.rounds("selectivity", {"selected": share}, compared(run, ways.COMPARED), measure)


def devices(run):
    """Fig. 4b: the same query over 1, 2 and 4 devices of 1 and 2 nodes."""
    topology = run.place.topology
    if run.place.cpu is None:
        run.note("devices have no share of a core each, so they compete for the cores of this machine")
    placed = {(nodes, len(names)): names for nodes, names in topology.layouts()}
    found = [replace(way, case={"devices": count, "nodes": nodes}) for nodes, count in placed
             for way in (ways.BASELINE, ways.DEVICES)]

    def measure(way, system):
        names = placed[way.case["nodes"], way.case["devices"]]
        return scan(run, way, system, particles_above(SOME), tables.particles(run, system, names))

    run.rounds("devices", {}, found, measure)


def uneven(run):
    """Fig. 4c: all rows on one of two devices, three quarters, and half of them; with and without stealing."""
    if len(run.place.topology.devices) < 2:
        run.note("skipped: there is one device")
        return
    if not run.options.engines:
        run.note("each device is a process, so only the host can take what a device has not begun")
    pair = run.place.topology.pair()
    for name, of_four in PLACEMENTS.items():
        def measure(way, system, of_four=of_four):
            table = tables.uneven(run, system, pair, of_four)
            return scan(run, way, system, particles_above(SOME), table)

        run.rounds("uneven", {"placement": name}, ways.STEALING, measure)


def q6(run):
    """Fig. 6a: TPC-H's query 6."""
    def measure(way, system):
        return scan(run, way, system, Q6, tables.lineitem(run, system, where(run, way)))

    run.rounds("q6", {"query": "6"}, compared(run, ways.COMPARED), measure)
