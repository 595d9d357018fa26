"""The experiments of the paper, one function each: which ways of which queries are measured how often, in which order.

A time-out is `factor` times the time of host-only, at least a second, and a killed run is recorded as such. Rounds run
every way once, each round beginning with another way, so that drift over time affects all of them.
"""

import time

from . import figures, ways

STACK_QUERIES = ["8c", "17b", "32b"]
TIMELINE_QUERY = "8c"
STRATEGIES = ["makespan", "paper"]
LIMIT_SECONDS_MIN = 1.0


class Bench:
    """Everything that experiments share: the place, the results, and the numbers and limits of runs."""

    def __init__(self, place, results, build, runs, factor, host_limit_seconds):
        self.place, self.results = place, results
        self.build, self.commit = build
        self.runs, self.factor, self.host_limit_seconds = runs, factor, host_limit_seconds
        self.wanted_rows = {}

    def measure(self, experiment, query, way, run, limit_seconds, with_rows=False, analyze=True):
        """The record of one run: from the results, if it is there, or measured now."""
        name, sql = query
        head = {"build": self.build, "commit": self.commit, "experiment": experiment, **self.place.figures(),
                "data_bytes": self.place.data.bytes(), "query": name, "way": way.name, "settings": way.settings,
                "run": run,
                "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        if found := self.results.find(head):
            return found
        record, rows = self.place.run(way, sql, with_rows, limit_seconds, analyze)
        if with_rows and rows is not None:
            record["rows_equal"] = self.compare(name, sql, way, rows)
        record = self.results.add(head | record)
        said = record["error_kind"] or ("" if not analyze else f"{record['total_ms']:.1f} ms")
        if record.get("rows_equal") is False:
            said += ", OTHER ROWS THAN THE HOST"
        print(f"  {experiment:11} {name:28} {way.name:10} run {run}: {said}", flush=True)
        return record

    def compare(self, name, sql, way, rows):
        """Whether rows are those of host-only, which stores its own here for all later runs over the same data."""
        reference = self.results.folder / "rows" / f"{self.place.data.scale}-{name}-{figures.checksum([sql])[:8]}.csv"
        if way.name == ways.HOST.name:
            reference.parent.mkdir(exist_ok=True)
            reference.write_text("".join(f"{row}\n" for row in sorted(rows)))
            return True
        if not reference.exists():
            return None
        return figures.same_rows(rows, reference.read_text().splitlines())

    def limit(self, host):
        """The time limit in seconds of other ways, from the record of host-only."""
        if host["error_kind"]:
            return self.host_limit_seconds
        return max(LIMIT_SECONDS_MIN, self.factor * host["total_ms"] / 1e3)

    def rounds(self, experiment, query, compared, check_rows=True):
        """Every way, `runs` times, interleaved; the first time with its rows. A way that fails the first time is not
        repeated."""
        as_host = next(way for way in compared if way.name == ways.HOST.name)
        host = self.measure(experiment, query, as_host, 1, self.host_limit_seconds, check_rows)
        limit_seconds = self.limit(host)
        left = list(compared)
        for run in range(1, self.runs + 1):
            start = run % len(compared)
            for way in compared[start:] + compared[:start]:
                if way in left:
                    record = self.measure(experiment, query, way, run, limit_seconds, check_rows and run == 1)
                    if record["error_kind"]:
                        left.remove(way)


def matrix(bench, queries):
    """Experiment 2: each query at every split once; host-only, `auto`, the best split and the baselines several
    times."""
    for query in queries:
        host = bench.measure("matrix", query, ways.HOST, 0, bench.host_limit_seconds, with_rows=True)
        if host["error_kind"]:
            continue
        limit_seconds = bench.limit(host)
        best, best_ms = ways.HOST, host["total_ms"]
        for split in splits_of(host):
            record = bench.measure("matrix", query, ways.forced(split), 0, limit_seconds, with_rows=True)
            if not record["error_kind"] and record.get("rows_equal") is not False and record["total_ms"] < best_ms:
                best, best_ms = ways.forced(split), record["total_ms"]
        compared = [ways.HOST, ways.AUTO, ways.PAPER, *ways.BASELINES[1:]] + ([best] if best != ways.HOST else [])
        bench.rounds("matrix", query, compared)


def splits_of(host):
    """The names of all splits of a query but host: those that EXPLAIN lists, or all up to the number of its joins."""
    if host.get("candidates"):
        return sorted({name for name in host["candidates"] if name != "host"}, key=ways.split_order)
    numbers = range(host["joins"] + 1)
    return ["h0"] + [f"h{number}{plus}" for number in numbers[1:] for plus in ("", "+")] + ["ndp"]


def stacks(bench, queries):
    """Experiment 1: three queries on the stacks of the paper."""
    for query in chosen(queries, STACK_QUERIES):
        bench.rounds("stacks", query, [*ways.BASELINES, ways.BLK, ways.NATIVE, ways.NDP, ways.PAPER, ways.AUTO])


def quality(bench, queries):
    """Experiment 3: the choice of each strategy of the cost model; nothing runs. The report compares it with the
    matrix."""
    for query in queries:
        for strategy in STRATEGIES:
            way = ways.Way(f"explain-{strategy}", {"split": "auto", "cost_strategy": strategy})
            record = bench.measure("quality", query, way, 1, bench.host_limit_seconds, analyze=False)
            if record["error_kind"] == "not there":
                # A version with one strategy has no setting for it.
                way = ways.Way("explain-auto", {"split": "auto"})
                bench.measure("quality", query, way, 1, bench.host_limit_seconds, analyze=False)
                break


def choices(bench, queries):
    """Every split as `auto` would run it, with the host taking morsels, and what is predicted of all of them: the
    record over which `replay` tries rules of choice."""
    for query in queries:
        explained = bench.measure("choices", query, ways.Way("explain-all", {"split": "auto"}), 1,
                                  bench.host_limit_seconds, analyze=False)
        names = [name for name in explained.get("predicted") or {} if not name.endswith("*") and name != "host"]
        bench.rounds("choices", query, [ways.HOST, ways.AUTO, *map(ways.shared, names)], check_rows=False)


def orders(bench, queries):
    """Join order and split chosen one after the other and together."""
    for query in queries:
        bench.rounds("orders", query, [ways.HOST, ways.APART, ways.TOGETHER])


def two_tables(bench, _queries):
    """Experiments 4 and 5: the paper's Listing 2, narrow and wide, without and with indexes."""
    for width, columns in (("narrow", "movie_keyword.id, movie_link.id"), ("wide", "*")):
        for indexes in ("off", "on"):
            # The paper takes 10,000 of the 30,000 rows; a smaller data set has as large a share of fewer.
            sql = (f"SELECT {columns} FROM movie_keyword, movie_link WHERE movie_link.id <= "
                   f"{max(1, round(10_000 * bench.place.data.scale))} AND movie_keyword.movie_id = movie_link.movie_id")
            with_index = [way.with_settings(index_scan=indexes) for way in
                          [*ways.BASELINES, ways.BLK, ways.NATIVE, ways.NDP, ways.PAPER, ways.AUTO]]
            bench.rounds("two-tables", (f"{width}, indexes {indexes}", sql), with_index)


def timeline(bench, queries):
    """Experiment 6: one query at every split, with the waiting time of both sides."""
    for query in chosen(queries, [TIMELINE_QUERY]):
        host = bench.measure("timeline", query, ways.HOST, 1, bench.host_limit_seconds, with_rows=True)
        if host["error_kind"]:
            continue
        splits = splits_of(host)
        bench.rounds("timeline", query, [*ways.BASELINES, *map(ways.forced, splits), ways.PAPER, ways.AUTO])


def chosen(queries, names):
    """An experiment's own queries that exist; missing ones are reported."""
    if missing := [name for name in names if name not in dict(queries)]:
        print(f"  not among the queries, and so not measured: {', '.join(missing)}", flush=True)
    return [query for query in queries if query[0] in names]
