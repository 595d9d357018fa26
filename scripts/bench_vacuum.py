#!/usr/bin/env python3
"""A scan of a table with one row in ten replaced, against the same table before, and after VACUUM.

    scripts/bench_vacuum.py [--rows N] [--rounds N]

Needs `cargo build --release` (or CLEAVE_BINARY). Three databases have the same rows: as loaded, with one row in ten
replaced (spread over all pages), and the same vacuumed. Each round scans all three, one after the other, so that other
load on the machine affects all; warm, host only, one thread. Figures: medians of the execution times of EXPLAIN
ANALYZE, and their shares of the first. Unthrottled.
"""

import argparse
import shutil
import statistics
import sys

from bench import CLEAVE, WORK, explain_lines, figures, run

QUERIES = {
    "sum of a column": "SELECT sum(v) FROM t",
    "a condition, a sum": "SELECT sum(v) FROM t WHERE k < 500",
    "grouped": "SELECT k % 100, count(*), sum(v) FROM t GROUP BY 1",
    "text": "SELECT count(*) FROM t WHERE note LIKE '%99%'",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if not CLEAVE.exists():
        sys.exit(f"{CLEAVE} is not there: run `cargo build --release`")
    places = {name: WORK / f"vacuum-{name}" for name in ("none", "tenth", "vacuumed")}
    make(places, options.rows)
    times = {query: {name: [] for name in places} for query in QUERIES}
    for _ in range(options.rounds):
        for name, place in places.items():
            for query, found in zip(QUERIES, scan(place)):
                times[query][name].append(found)
    print(f"{options.rows} rows, one thread, host only, warm; medians of {options.rounds}; timing mode: unthrottled")
    print(f"{'scan':20} {'none deleted':>12} {'one in ten':>12} {'share':>7} {'vacuumed':>12} {'share':>7}")
    for query, found in times.items():
        none, tenth, vacuumed = (statistics.median(found[name]) for name in places)
        print(f"{query:20} {none:9.2f} ms {tenth:9.2f} ms {none / tenth:6.2f}x {vacuumed:9.2f} ms "
              f"{none / vacuumed:6.2f}x")


def make(places, rows):
    for place in places.values():
        shutil.rmtree(place, ignore_errors=True)
    WORK.mkdir(parents=True, exist_ok=True)
    load = ["CREATE TABLE t (id bigint PRIMARY KEY, k int, v bigint, note text)",
            f"INSERT INTO t SELECT i, i * 7919 % 1000, i, 'note ' || i FROM generate_series(1, {rows}) AS g (i)"]
    update = ["UPDATE t SET v = v + 1 WHERE id % 10 = 3"]
    statements(places["none"], load)
    statements(places["tenth"], load + update)
    print(statements(places["vacuumed"], load + update + ["VACUUM VERBOSE t"]).strip())


def scan(place):
    """Milliseconds of each query, which has just run twice in the same program."""
    explained = [f"EXPLAIN (ANALYZE, FORMAT JSON) {query}" for query in QUERIES.values() for _ in range(3)]
    settings = ["stack=native", "split=host", "threads=1"]
    lines = explain_lines(place, explained, settings, ["--buffer-pool", "4GB"])
    return [figures(line)["ms"] for line in lines[2::3]]


def statements(place, script):
    command = [CLEAVE, "sql", "--db", place, "--format", "csv"]
    return run(command + [part for statement in script for part in ("-c", statement)])


if __name__ == "__main__":
    main()
