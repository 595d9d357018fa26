#!/usr/bin/env python3
"""Scans of a table with one row in ten replaced, against the same rows without dead ones.

The rows are replaced by one statement, and by many small ones, whose rows lie in small pages written row by row.

    scripts/bench_dead_rows.py [--rows N] [--rounds N] [--threads N]

Needs `cargo build --release` (or CLEAVE_BINARY). Each round runs all queries on all databases, one after the other, so
that other load on the machine affects all; warm, on the host and as a fragment on the embedded device. Figures: the
least of the rounds' medians of the execution times of EXPLAIN ANALYZE, and their shares of that without dead rows.
Unthrottled.
"""

import argparse
import shutil
import statistics
import sys

from bench import CLEAVE, WORK, explain_lines, figures, run

QUERIES = {
    "count": "SELECT count(*) FROM t",
    "sum": "SELECT sum(v) FROM t",
    "min, max": "SELECT min(v), max(k) FROM t",
    "a condition, a sum": "SELECT sum(v) FROM t WHERE k < 500",
    "grouped": "SELECT k % 100, count(*), sum(v) FROM t GROUP BY 1",
    "text": "SELECT count(*) FROM t WHERE note LIKE '%99%'",
    "rows": "SELECT v, note FROM t WHERE k < 100 ORDER BY v LIMIT 10",
    "a join": "SELECT count(*) FROM t AS a JOIN t AS b ON a.id = b.v",
}
REPEATS = 7


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if not CLEAVE.exists():
        sys.exit(f"{CLEAVE} is not there: run `cargo build --release`")
    places = {name: WORK / f"dead-{name}" for name in ("none", "one", "many")}
    make(places, options.rows)
    print(f"{options.rows} rows, {options.threads} threads, warm; least of {options.rounds} medians; timing mode: "
          f"unthrottled")
    print(f"{'split':6} {'scan':20} {'none deleted':>12} {'one statement':>14} {'share':>7} {'many':>12} {'share':>7}")
    for split in ("host", "ndp"):
        times = {query: {name: [] for name in places} for query in QUERIES}
        for _ in range(options.rounds):
            for name, place in places.items():
                for query, found in zip(QUERIES, scan(place, split, options.threads)):
                    times[query][name].append(found)
        for query, found in times.items():
            none, one, many = (min(found[name]) for name in places)
            print(f"{split:6} {query:20} {none:9.2f} ms {one:11.2f} ms {none / one:6.2f}x {many:9.2f} ms "
                  f"{none / many:6.2f}x")


def make(places, rows):
    for place in places.values():
        shutil.rmtree(place, ignore_errors=True)
    WORK.mkdir(parents=True, exist_ok=True)
    load = ["CREATE TABLE t (id bigint PRIMARY KEY, k int, v bigint, note text)",
            f"INSERT INTO t SELECT i, i * 7919 % 1000, i, 'note ' || i FROM generate_series(1, {rows}) AS g (i)"]
    update = "UPDATE t SET v = v + 1 WHERE id % 10 = 3"
    statements(places["none"], load)
    statements(places["one"], load + [update])
    step = 5000
    statements(places["many"], load + [f"{update} AND id BETWEEN {first} AND {first + step - 1}"
                                       for first in range(0, rows + 1, step)])


def scan(place, split, threads):
    """Milliseconds of each query, which has just run twice in the same program."""
    explained = [f"EXPLAIN (ANALYZE, FORMAT JSON) {query}" for query in QUERIES.values() for _ in range(REPEATS)]
    settings = [f"split={split}", f"threads={threads}", "stealing=off"]
    lines = explain_lines(place, explained, settings, ["--buffer-pool", "4GB"])
    times = [figures(line)["ms"] for line in lines]
    return [statistics.median(times[first + 2:first + REPEATS]) for first in range(0, len(times), REPEATS)]


def statements(place, script):
    command = [CLEAVE, "sql", "--db", place, "--format", "csv"]
    return run(command + [part for statement in script for part in ("-c", statement)], quiet=True)


if __name__ == "__main__":
    main()
