#!/usr/bin/env python3
"""The experiments of the hybridNDP paper, on the testbed: a device with a share of a core behind a shaped link.

    scripts/bench_ndp.py stacks        1: 8c, 17b, 32b on the stacks blk, native, ndp and with the split chosen
    scripts/bench_ndp.py matrix        2: a directory of queries at every split
    scripts/bench_ndp.py quality       3: the choices of the cost model, against the matrix
    scripts/bench_ndp.py two-tables    4, 5: a join of two tables, narrow and wide, without and with indexes
    scripts/bench_ndp.py timeline      6: 8c at every split, with the waiting time of both sides
    scripts/bench_ndp.py orders        join order and split chosen one after the other and together
    scripts/bench_ndp.py choices       every split as `auto` would run it, and what is predicted of it, for `replay`
    scripts/bench_ndp.py sweep         eight queries of the matrix with other devices and other links
    scripts/bench_ndp.py all           all of these, and the report
    scripts/bench_ndp.py report        CSV, summary and pictures of the measurements so far
    scripts/bench_ndp.py replay        rules of choice over the record of `choices`; nothing runs
    scripts/bench_ndp.py self-test     checks of everything that needs no testbed

Needs what `scripts/testbed.py` needs (root), `cargo build --release`, and CLEAVE_DATA or --queries and --indexes. Data
is loaded once into target/bench and kept. Each run is recorded at once, so a stopped measurement continues where it
was. See docs/experiments.md.
"""

import argparse
import os
import re
import signal
import sys
import time
from pathlib import Path

import bench
import testbed
from ndp import experiments, places, replay, report, results, self_test

EXPERIMENTS = {"stacks": experiments.stacks, "matrix": experiments.matrix, "quality": experiments.quality,
               "two-tables": experiments.two_tables, "timeline": experiments.timeline,
               "orders": experiments.orders, "choices": experiments.choices}
NUMBERS = {"1": "stacks", "2": "matrix", "3": "quality", "4": "two-tables", "5": "two-tables", "6": "timeline"}
SWEEP_QUERIES = ["8c", "8d", "17b", "32b", "1a", "6a", "16a", "29a"]
# (link, device's share of a core)
SWEEP = [("1gbit", "3%"), ("1gbit", "10%"), ("1gbit", "100%"), ("100mbit", "25%"), ("unshaped", "25%")]
JOB = Path(os.environ["CLEAVE_DATA"]) / "job" if "CLEAVE_DATA" in os.environ else None


def main():
    options = arguments()
    if options.command == "self-test":
        return self_test.run()
    if options.command == "report":
        report.write(options.results)
        return 0
    if options.command == "replay":
        replay.write(options.results)
        return 0
    # A signal becomes an exception, so that the testbed is taken down.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, testbed.ended_by_signal)
    if not bench.CLEAVE.exists():
        sys.exit(f"{bench.CLEAVE} is not there: run `cargo build --release`, or set CLEAVE_BINARY")
    try:
        testbed.check_permitted(testbed.options_of(cpu=options.cpu, host_cpu=options.host_cpu))
        testbed.remove_leftovers()
        measure(options)
    except testbed.NotPermitted as error:
        print(f"bench_ndp: not permitted here: {error}", file=sys.stderr)
        return testbed.NOT_PERMITTED
    except testbed.Failed as error:
        print(f"bench_ndp: {error}", file=sys.stderr)
        return 2
    if options.command == "all":
        report.write(options.results)
    else:
        print(f"measured; `{sys.argv[0]} report --results {options.results}` makes tables and pictures")
    return 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=[*EXPERIMENTS, *NUMBERS, "sweep", "all", "report", "replay", "self-test"])
    parser.add_argument("--scale", type=float, default=0.1, help="of the IMDb-like data; 74 million rows at 1")
    parser.add_argument("--queries", type=Path, default=JOB and JOB / "queries", help="a folder of .sql files")
    parser.add_argument("--indexes", type=Path, default=JOB and JOB / "fkindexes.sql", help="CREATE INDEX "
        "statements, run after loading")
    parser.add_argument("--only", help="queries by name, as in 8c,17b")
    parser.add_argument("--rate", default="1gbit", help="what the link carries, or unshaped")
    parser.add_argument("--cpu", type=testbed.cpu_share, default=0.25, help="the device's share of a core (default: "
        "25%%)")
    parser.add_argument("--host-cpu", type=testbed.cpu_share, default=1.0, help="the host's (default: 100%%)")
    parser.add_argument("--pool", type=float, default=0.125, help="the buffer pool as a share of the data")
    parser.add_argument("--runs", type=int, default=7, help="of every way that is compared")
    parser.add_argument("--factor", type=float, default=5.0, help="a time-out, in times of host-only")
    parser.add_argument("--host-limit", type=float, default=600.0, help="seconds that host-only may take")
    parser.add_argument("--results", type=Path, default=bench.WORK / "ndp", help="the folder of measurements")
    parser.add_argument("--again", action="store_true", help="make runs again that are there")
    parser.add_argument("--unverified", action="store_true", help="do not measure the testbed's limits first (on a "
        "busy "
                        "machine, to try things); the records say so")
    return parser.parse_args()


def measure(options):
    started = time.monotonic()
    if options.queries is None or not options.queries.is_dir():
        sys.exit("there are no queries: set CLEAVE_DATA, or give --queries")
    queries = queries_of(options.queries, options.only)
    data = places.Data(bench.WORK / f"ndp-imdb-{options.scale:g}", options.scale, options.indexes)
    bench.WORK.mkdir(parents=True, exist_ok=True)
    data.prepare()
    pool_bytes = round(data.bytes() * options.pool)
    print(f"{data.bytes() / 1e6:.0f} MB of pages and indexes; buffer pool {pool_bytes / 1e6:.1f} MB", flush=True)
    store = results.Results(options.results, options.again)
    build = places.build_of()
    command = NUMBERS.get(options.command, options.command)

    def at(rate, cpu, steps):
        print(f"link {rate}, device {cpu:g} of a core, host {options.host_cpu:g}", flush=True)
        rate = None if rate == "unshaped" else rate
        with places.Place(data, rate, cpu, options.host_cpu, pool_bytes, not options.unverified) as place:
            here = experiments.Bench(place, store, build, options.runs, options.factor, options.host_limit)
            for step, of_these in steps:
                step(here, of_these)

    if command != "sweep":
        names = [name for name in EXPERIMENTS if name != "choices"] if command == "all" else [command]
        at(options.rate, options.cpu, [(EXPERIMENTS[name], queries) for name in names])
    if command in ("sweep", "all"):
        swept = [query for query in queries if query[0] in SWEEP_QUERIES]
        for rate, cpu in SWEEP:
            at(rate, testbed.cpu_share(cpu), [(experiments.matrix, swept), (experiments.quality, swept)])
    print(f"{(time.monotonic() - started) / 60:.1f} minutes")


def queries_of(folder, only):
    """[(name, statement)] in the order of their numbers: 8c before 17b."""
    found = {path.stem: path.read_text() for path in folder.glob("*.sql")}
    if only:
        names = only.split(",")
        if missing := [name for name in names if name not in found]:
            sys.exit(f"{folder} has no {', '.join(missing)}")
        found = {name: found[name] for name in names}
    return sorted(found.items(), key=lambda query: (int(re.match(r"\d*", query[0])[0] or 0), query[0]))


if __name__ == "__main__":
    sys.exit(main())
