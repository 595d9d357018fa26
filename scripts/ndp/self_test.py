"""Checks of everything that needs no testbed: statistics, rows, resuming, reports and pictures, on made-up
measurements."""

import csv
import io
import contextlib
import json
import tempfile
from pathlib import Path

from plots import describe

from . import experiments, figures, places, replay, report, results, ways


def run():
    tests = [intervals_hold_the_median, a_regression_is_wholly_above, rows_compare_in_any_order, verdicts, splits_sort,
             results_resume, a_torn_line_is_made_again, explain_is_read, a_matrix_goes_on_where_it_was,
             pictures_are_described,
             a_report_says_what_was_measured, rules_are_replayed]
    for test in tests:
        with tempfile.TemporaryDirectory(prefix="cleave-bench-ndp-") as folder:
            test(Path(folder))
    print(f"bench_ndp: self-test passed, {len(tests)} tests")
    return 0


def equal(found, wanted):
    if found != wanted:
        raise AssertionError(f"found {found!r}, wanted {wanted!r}")


def intervals_hold_the_median(_):
    # Seven values: least and largest hold the median with 98.4 %, the next ones with 87.5 % only; of nine, with 96.1 %.
    equal(figures.interval([7, 1, 2, 3, 4, 5, 6]), (1, 7))
    equal(figures.interval(range(1, 10)), (2, 8))
    equal(figures.interval([3]), (3, 3))
    equal(round(figures.geometric_mean([0.5, 2, 4]), 4), round(4 ** (1 / 3), 4))
    equal((figures.geometric_mean([]), figures.median([None])), (None, None))


def a_regression_is_wholly_above(_):
    host = [100.0] * 7
    equal(figures.is_regression([106.0] * 7, host), True)
    equal(figures.is_regression([104.9] + [200.0] * 6, host), False)
    # Five milliseconds are allowed where five per cent are less.
    equal(figures.is_regression([14.0] * 7, [10.0] * 7), False)
    equal(figures.is_regression([16.0] * 7, [10.0] * 7), True)


def rows_compare_in_any_order(_):
    equal(figures.same_rows(["a,1", 'b,"x,y"'], ['b,"x,y"', "a,1"]), True)
    equal(figures.same_rows(["a,1"], ["a,2"]), False)
    equal(figures.same_rows(["a,1"], ["a,1", "a,1"]), False)
    equal(figures.same_rows(["a,1", "a,1", "b,1"], ["a,1", "b,1", "b,1"]), False)
    # The last digits of sums differ, and sort otherwise as text.
    equal(figures.same_rows(["9.9999999999999,b", "10.5,a"], ["10.500000000000001,a", "10.0,b"]), True)
    equal(figures.same_rows(["1.0000001,a"], ["1.0,a"]), False)
    equal(figures.same_rows(["1000000000000001,a"], ["1000000000000002,a"]), False)
    equal(figures.checksum(["a", "b"]) == figures.checksum(["b", "a"]) != figures.checksum(["a"]), True)


def verdicts(_):
    equal([figures.verdict(value) for value in (2, 1.04, 0.96, 0.9, None)], ["better", "par", "par", "worse", "none"])
    equal([figures.quality(value) for value in (1.0, 1.1, 1.3, 2, None)], ["best", "best", "near", "missed", "none"])
    equal([report.heat(value) for value in (4, 1.6, 1.2, 1, 0.9, 0.5, 0.1)],
          ["better3", "better2", "better1", "par", "worse1", "worse2", "worse3"])


def splits_sort(_):
    equal(sorted(["ndp", "h10", "h2+", "auto", "h2", "host", "h0"], key=ways.split_order),
          ["host", "h0", "h2", "h2+", "h10", "ndp", "auto"])
    # Where EXPLAIN lists none, those that the number of joins allows.
    equal(experiments.splits_of({"joins": 2}), ["h0", "h1", "h1+", "h2", "h2+", "ndp"])
    equal(experiments.splits_of({"joins": 2, "candidates": ["host", "h1", "h0"]}), ["h0", "h1"])


def record_of(**fields):
    return {"build": "b", "commit": "c", "experiment": "matrix", "timing": "testbed", "scale": 0.1, "link": "1gbit",
            "device_share": 0.25, "host_share": 1.0, "pool_bytes": 10_000_000, "data_bytes": 80_000_000, "query": "1a",
            "way": "host", "run": 0, "settings": {}, "error": None, "error_kind": None, "total_ms": 10.0,
            "planning_ms": 1.0,
            "execution_ms": 9.0, "host_waited_ms": 12.0, "devices_stalled_ms": 0.5, "device_cpu_ms": 2.0} | fields


def results_resume(folder):
    first = results.Results(folder)
    first.add(record_of(total_ms=1.0))
    first.add(record_of(run=1))
    later = results.Results(folder)
    equal(later.find(record_of())["total_ms"], 1.0)
    equal([later.find(record_of(**other))
           for other in ({"run": 2}, {"way": "h0"}, {"link": "100mbit"}, {"build": "x"})], [None] * 4)
    again = results.Results(folder, again=True)
    equal(again.find(record_of()), None)
    again.add(record_of(total_ms=2.0))
    # Made again once is enough, and the later line counts.
    equal(again.find(record_of())["total_ms"], 2.0)
    equal(results.Results(folder).find(record_of())["total_ms"], 2.0)


def a_torn_line_is_made_again(folder):
    results.Results(folder).add(record_of())
    with open(folder / "measurements.jsonl", "a") as file:
        file.write(json.dumps(record_of(run=1))[:40])
    torn = results.Results(folder)
    equal((torn.find(record_of(run=1)), torn.find(record_of()) is None), (None, False))
    torn.add(record_of(run=1))
    equal(len(results.Results(folder).records), 2)


EXPLAIN = {"Operators": [{"operator": "HashJoinExec"}, {"operator": "TableScanExec"}], "Candidates": [
    {"split": "host", "finish_ms": 5.0, "chosen": False}, {"split": "h1", "finish_ms": 2.0, "chosen": True}], "Notes": [
    {"title": "Measured", "entries": [{"name": name, "value": value} for name, value in {
        "rows": "3", "planning time": "34.0 ms", "execution time": "12.50 s", "bytes at media": "139.3 kB",
        "bytes over the link": "41.8 kB to the host, 503 B to the devices", "bytes taken by the host": "79.7 MB",
        "CPU": "host 9.844 ms, devices 6.539 ms", "host waited": "26.5 ms", "devices stalled": "0.000 ms"}.items()]}]}


def explain_is_read(_):
    found = places.read_explain(json.dumps([EXPLAIN]), ways.HOST)
    equal([found[name] for name in ("total_ms", "to_host_bytes", "to_device_bytes", "device_cpu_ms", "rows", "joins",
                                    "chosen")],
          [12534.0, 41800.0, 503.0, 6.539, 3, 1, "h1"])
    equal((found["prediction"]["finish_ms"], found["candidates"]), (5.0, ["host", "h1"]))
    equal(places.read_explain(json.dumps([EXPLAIN]), ways.AUTO)["prediction"]["finish_ms"], 2.0)
    # A version that lists no candidates.
    bare = places.read_explain(json.dumps([EXPLAIN | {"Candidates": None}]), ways.AUTO)
    equal((bare["chosen"], bare["prediction"], "candidates" in bare), (None, None, False))


class MadeUpPlace:
    """A substitute for a testbed that counts the runs."""

    class data:
        scale = 0.1
        bytes = staticmethod(lambda: 80_000_000)

    def __init__(self, fails_after):
        self.left = fails_after
        self.ran = []

    def figures(self):
        return {name: record_of()[name] for name in ("timing", "scale", "link", "device_share", "host_share",
                                                     "pool_bytes")}

    def run(self, way, sql, with_rows, limit_seconds, analyze):
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        self.ran.append((way.name, limit_seconds))
        if way.name == "ndp":
            return {"error": "killed", "error_kind": "time-out"}, None
        time = {"host": 400.0, "h0": 100.0, "h1": 200.0, "auto": 110.0}.get(way.name, 300.0)
        said = {name: record_of()[name] for name in ("error", "error_kind", "planning_ms", "execution_ms",
                                                     "host_waited_ms",
                                                     "devices_stalled_ms", "device_cpu_ms")}
        said |= {"total_ms": time, "joins": 1, "candidates": ["host", "h0", "h1", "ndp"], "chosen": "h0",
                 "prediction": {"finish_ms": 50.0}}
        return said, (["a,1"] if with_rows and way.name != "h1" else ["a,2"] if with_rows else None)


def made_up(folder, fails_after):
    place = MadeUpPlace(fails_after)
    bench = experiments.Bench(place, results.Results(folder), ("b", "c"), 7, 5.0, 600.0)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(KeyboardInterrupt):
        experiments.matrix(bench, [("1a", "SELECT 1")])
        experiments.timeline(bench, [("8c", "SELECT 1")])
        experiments.two_tables(bench, [])
        experiments.stacks(bench, [("8c", "SELECT 1")])
        experiments.quality(bench, [("1a", "SELECT 1")])
    return place


def a_matrix_goes_on_where_it_was(folder):
    whole = made_up(folder / "whole", -1)
    first, second = made_up(folder / "cut", 9), made_up(folder / "cut", -1)
    equal(first.ran + second.ran, whole.ran)
    equal(made_up(folder / "cut", -1).ran, [])
    # Host-only has its own limit, the others five times what it took; the best split is measured in rounds, seven
    # times.
    equal(whole.ran[:2], [("host", 600.0), ("h0", 2.0)])
    matrix = [record for record in results.Results(folder / "cut").records.values() if record["experiment"] == "matrix"]
    equal([sum(record["way"] == way for record in matrix) for way in ("host", "h0", "h1", "ndp", "auto", "equal")],
          [8, 8, 1, 1, 7, 7])


def pictures_are_described(_):
    cell = {("a", "h0"): ("better1", "1.2x", True, "faster")}
    cells = describe.cells("A", ["a", "c"], ["h0", "ndp"], lambda row, column: cell.get((row, column)), report.HEAT)
    equal([(one["row"], one["column"], one["framed"]) for one in cells["cells"]], [("a", "h0", True)])
    bars = describe.bars("Bars", [("q", {"x": (50.0, 40.0, 60.0), "y": "time-out"}, (45.0, 55.0))], ["x", "y"], "ms")
    equal(bars["groups"], [{"label": "q", "values": {"x": [50.0, 40.0, 60.0], "y": "time-out"}, "sum": [45.0, 55.0]}])


def a_report_says_what_was_measured(folder):
    made_up(folder, -1)
    with contextlib.redirect_stdout(io.StringIO()):
        report.write(folder)
    found = json.loads((folder / "summary.json").read_text())[0]
    row, judged = found["matrix"][0], found["judged"]
    equal((row["best"], row["best_ms"], row["other_rows"], row["failed"]), ("h0", 100.0, ["h1"], {"ndp": "time-out"}))
    equal((judged["auto_near_best_share"], judged["regressions"], judged["time_outs_or_errors"]), (1.0, [], 1))
    equal((round(judged["speed_up_mean"], 3), round(judged["speed_up_equal_mean"], 3)),
          (round(400 / 110, 3), round(300 / 110, 3)))
    # Faster with other rows is no success, nor is a time-out: one of three splits.
    equal(round(judged["cells_par_or_better_share"], 3), 0.333)
    equal({path.name.split("-0.1-")[0] for path in folder.glob("*.json") if path.name != "summary.json"},
          {"matrix", "quality", "stacks", "two-tables", "timeline-host", "timeline-device"})
    # Where `auto` was ended by its time-out, it is neither near the best nor on par, and it is a regression.
    store = results.Results(folder)
    for record in [record for record in store.records.values() if record["experiment"] == "matrix"
                   and record["run"] == 3]:
        if record["way"] == "auto":
            store.add(record | {"error_kind": "time-out", "error": "killed"})
    with contextlib.redirect_stdout(io.StringIO()):
        report.write(folder)
    judged = json.loads((folder / "summary.json").read_text())[0]["judged"]
    equal([judged[name] for name in ("auto_near_best_share", "auto_par_or_better_share", "regressions", "auto_failed")],
          [0.0, 0.0, ["1a"], {"1a": "time-out"}])
    for path in folder.glob("matrix-*.json"):
        equal(describe.load(path)["y"], "JOB query")
    with open(folder / "measurements.csv") as file:
        equal(len(list(csv.DictReader(file))), len(results.Results(folder).records))


def rules_are_replayed(_):
    def predicted(**finishes):
        return {split: {"finish_ms": finish, "device_ms": device, "fits": True}
                for split, (finish, device) in finishes.items()}
    one, many = predicted(host=(100, 1), h0=(59, 10)), {"host": (100, 1), "h0": (59, 10)}
    many = predicted(**many, **{f"h{number}": (62 + 8 * number, 10) for number in range(1, 9)})
    # The only cut is worth it where the best of many is not; of equals, the one with less work of the device is.
    equal([replay.expected()(one), replay.expected()(many), replay.least(0.57)(one)], ["h0", "host", "host"])
    equal(replay.expected()(predicted(host=(100, 1), h1=(30, 30), h0=(30.1, 10))), "h0")
    record = [{"query": "1a", "predicted": one}, *({"query": "1a", "way": way, "error_kind": None, "total_ms": ms}
                                                   for way, ms in (("host", 90), ("h0", 120), ("h0", 100)))]
    judged = replay.judge(replay.queries_of(record), replay.expected())
    equal((judged["near_best_share"], judged["slower"], round(judged["gain"], 3)), (0.0, ["1a"], 0.9))
