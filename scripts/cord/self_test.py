"""Checks of the pure parts: devices of nodes, fresh conditions, sets of queries, uneven parts, ratios, curves, and what
is counted of a loss."""

import itertools
import re

from update import report as update_report
from update.self_test import equal, read, update

from . import conditions, loss, report, scans, tables
from .topology import Topology


def run():
    tests = [nodes_have_their_devices, a_condition_implies_no_earlier_one, pairs_have_their_grades,
             sets_share_what_they_should, parts_are_found_by_their_counts, a_fetched_query_is_the_same_one,
             speed_ups_have_their_base, curves_are_described, throughput_is_back_when_it_lasts, lost_rows_are_counted]
    for test in tests:
        test()
    print(f"bench_cord: {len(tests)} tests passed")


def nodes_have_their_devices():
    four = Topology(4, 2)
    equal(four.nodes, [["d1", "d2"], ["d3", "d4"]])
    equal(four.layouts(), [(1, ["d1"]), (1, ["d1", "d2"]), (2, ["d1", "d3"]), (2, ["d1", "d2", "d3", "d4"])])
    equal((four.pair(), four.processors, four.of_processor("p2")), (["d1", "d2"], ["p1", "p2"], ["d3", "d4"]))
    equal(Topology(3, 2).nodes, [["d1", "d2"], ["d3"]])
    equal((Topology(2, 2).pair(), Topology(2, 2, False).processors), (["d1", "d2"], []))
    equal(Topology(1, 1).layouts(), [(1, ["d1"])])


def parts_of(condition):
    return {(column, float(least)) for column, least in re.findall(r"(\w+) > ([0-9.]+)", condition)}


def implies(part, other):
    return part[0] == other[0] and part[1] >= other[1]


def a_condition_implies_no_earlier_one():
    fresh, earlier = conditions.Fresh(), set()
    for _ in range(20):
        for grade in conditions.GRADES:
            first, second = map(parts_of, fresh.pair(grade))
            for part in first | second if grade != "implied" else first:
                if known := [other for other in earlier if implies(part, other)]:
                    raise AssertionError(f"{part} ({grade}) implies {known}")
            earlier |= first | second
        for kind in conditions.SETS:
            found = [parts_of(condition) for _, _, condition in fresh.batch(kind, "t", ["a", "b"])]
            for [part] in found:
                if known := [other for other in earlier if implies(part, other)]:
                    raise AssertionError(f"{part} ({kind}) implies {known}")
                earlier.add(part)
    # So little that no share changes.
    if conditions.STEP * fresh.given > 0.002:
        raise AssertionError(f"{fresh.given} conditions have come too far from their bases")


def pairs_have_their_grades():
    fresh = conditions.Fresh()
    for grade, shared, implied in (("disjoint", 0, 0), ("half", 1, 1), ("implied", 0, 2), ("same", 2, 2)):
        first, second = map(parts_of, fresh.pair(grade))
        equal((len(first), len(second)), (2, 2))
        equal((grade, len(first & second)), (grade, shared))
        equal((grade, sum(any(implies(part, other) for other in first) for part in second)), (grade, implied))


def sets_share_what_they_should():
    """The paper's score: ten for a filter column in common, one for a column of the output."""
    for kind, (reuses, is_of_nodes) in conditions.SETS.items():
        queries = conditions.Fresh().batch(kind, "whole", ["first", "second"])
        equal((kind, {table for table, _, _ in queries}), (kind, {"first", "second"} if is_of_nodes else {"whole"}))
        scores = [10 * ([*parts_of(a[2])][0][0] == [*parts_of(b[2])][0][0]) + (a[1] == b[1])
                  for a, b in itertools.combinations(queries, 2) if a[0] == b[0]]
        equal((kind, set(scores)), (kind, {11 if reuses else 0}))


def parts_are_found_by_their_counts():
    # Values 0, 2 and 3 on one device, 1 and 4 to 7 on the other.
    equal(tables.values_of([0b1101, 0b11110010]), [0, 1])
    try:
        tables.values_of([0b11111111, 0])
    except AssertionError:
        return
    raise AssertionError("a device without any value was not found")


def a_fetched_query_is_the_same_one():
    query = scans.particles_above(0.5)
    equal(scans.statement(query, "t", False), "SELECT x, y, z FROM t WHERE ke > 0.5")
    equal(scans.statement(query, "t", True),
          "WITH fetched AS MATERIALIZED (SELECT x, y, z, ke FROM t) SELECT x, y, z FROM fetched WHERE ke > 0.5")


def made_up():
    """Rounds of `devices` that are easily counted, and a curve."""
    records = []
    for number, factor in enumerate((1.0, 2.0, 4.0), 1):
        for devices, baseline, seconds in ((1, 40.0, 8.0), (2, 40.0, 5.0), (4, 40.0, 2.5)):
            for way, took in (("baseline", baseline), ("devices", seconds)):
                records.append({"experiment": "devices", "case": {"devices": devices, "nodes": 1}, "way": way,
                                "system": "Cleave", "round": number, "seconds": took * factor})
        for share, seconds in ((0.000004, 0.01), (0.01, 0.03), (0.94, 2.0)):
            records.append({"experiment": "selectivity", "case": {"selected": share}, "way": "devices",
                            "system": "Cleave", "round": number, "seconds": seconds * factor})
    options = {"rows": 100, "scale": 1.0, "buffers": "1MB", "devices": 4, "nodes": 2, "cores": 1}
    machine = {"processor": "a <processor>", "cores": 2, "memory_bytes": 1 << 30, "debug_build": False}
    return {"at": "2026-01-01T00:00:00Z", "build": "b", "commit": "c", "command": "d", "machine": machine,
            "timing": "unthrottled", "options": options, "experiments": ["devices", "selectivity"], "notes": [],
            "records": records}


def speed_ups_have_their_base():
    view = update_report.View("devices", made_up(), report.CORD)
    over_baseline, speed_up, efficiency = view.spec.ratios
    two, four = {"devices": 2, "nodes": 1}, {"devices": 4, "nodes": 1}
    equal(view.ratio(four, "devices", over_baseline), (16.0, 16.0, 16.0))
    equal(view.ratio(four, "baseline", over_baseline), None)
    equal([view.ratio(case, "devices", speed_up)[0] for case in (two, four)], [1.6, 3.2])
    equal([view.ratio(case, "devices", efficiency)[0] for case in (two, four)], [0.8, 0.8])
    equal(view.ratio({"devices": 1, "nodes": 1}, "devices", speed_up), None)
    if "| 80 % |" not in update_report.table(view):
        raise AssertionError(f"no efficiency of 80 %: {update_report.table(view)}")
    if "host's buffers 1MB" not in view.caption():
        raise AssertionError(f"the caption does not say what the host caches: {view.caption()}")


def curves_are_described():
    [(name, picture)] = update_report.pictures(update_report.View("selectivity", made_up(), report.CORD)).items()
    equal((name, picture["kind"], picture["x"]), ("cord-selectivity-unthrottled", "curves", "selected"))
    equal([at for at, _ in picture["series"][0]["points"]], [0.000004, 0.01, 0.94])


def throughput_is_back_when_it_lasts():
    equal(loss.spread([["d1", "d2"], ["d3"]]), ["d1", "d3", "d2"])
    # Ten a second before; then a burst, nothing for a second, and eight a second from 1.5 s on.
    before = [read(at / 10 + 0.05) for at in range(20)]
    burst = [read(2.0 + at / 50 + 0.001) for at in range(10)]
    after = [read(3.5 + at / 8 + 0.01) for at in range(20)]
    operations = before + burst + after
    base = loss.windows(operations, 0, 2)
    equal((min(base), max(base), len(base)), (10, 10, 16))
    found = loss.windows(operations, 2, 6)
    # The first 500 ms are full, and those after them empty.
    equal((found[0], found[5]), (20, 0))
    equal(round(loss.back_seconds(found, 10), 1), 1.9)
    equal(loss.back_seconds(loss.windows(operations, 2, 3), 10), None)
    equal(round(loss.longest_pause(operations, 2, 6), 2), 1.33)
    figures = loss.figures_of([Made(operations)], 0, 2, 6)
    equal((round(figures["seconds"], 1), figures["is_back"], figures["marks"]), (1.9, 1.0, {"loss": 2}))
    never = loss.figures_of([Made([update(at / 10 + 0.05) for at in range(20)])], 0, 2, 6)
    equal((never["seconds"], never["is_back"], never["longest_s"]), (4, 0.0, 4))


class Made:
    """A client whose operations are made up."""

    failed = retried = 0

    def __init__(self, operations):
        self.operations = operations


def lost_rows_are_counted():
    class Server:
        entries, total = [(0, 0), (0, 1), (1, 0)], 3

        def say(self, query):
            return [(self.total,)] if "counters" in query else self.entries

    server = Server()
    clients = [loss.Changing(server, None, number) for number in (0, 1)]
    clients[0].committed, clients[1].committed = {0, 1}, {0}
    equal(loss.missing(server, clients), 0)
    # One that was acknowledged and is not there; then one that was not made; then a part of one.
    clients[1].committed.add(1)
    equal(loss.missing(server, clients), 1)
    clients[1].committed = set()
    equal(loss.missing(server, clients), 1)
    clients[1].uncertain = {0, 7}
    equal(loss.missing(server, clients), 0)
    server.total = 2
    equal(loss.missing(server, clients), 1)
