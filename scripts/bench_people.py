#!/usr/bin/env python3
"""What people meet first, against targets: the package of Python, files in SQL, the console, metrics.

    scripts/bench_people.py                          all experiments
    scripts/bench_people.py --only frames,files      some of them
    scripts/bench_people.py report [--docs PAGE]     Markdown tables of the newest run of each
    scripts/bench_people.py --quick                  at a tiny scale, to see that it works; its figures say nothing
    scripts/bench_people.py self-test                checks of the pure parts, and all experiments at that scale

    wheel    a built wheel in a new environment, and the first query
    import   a new interpreter that imports the package
    rows     a million rows to Arrow and as tuples, against psycopg on PostgreSQL
    frames   aggregates over a data frame and an Arrow table of 10 million rows, against DuckDB's package
    files    aggregates over TPC-H's lineitem as CSV and as Parquet, against DuckDB's package
    paint    the console's first paint, and when it can be used
    console  what the console costs on the server while it is open
    metrics  look-ups while metrics are read and the log is JSON, also with traces, against none of it

Rounds of all ways alternate. Each figure of rows, frames and files is of a new process: its first run is set against
the first run of the peer, and later ones against later ones. A ratio is the median of the rounds' ratios.

Needs a release build (or CLEAVE_BINARY); `scripts/build_python.sh wheel` for the package, whose peers it installs into
target/people; PostgreSQL and pgbench (`scripts/install_peers.sh postgresql`); and what `scripts/console.py self-test`
installs. What is not there is skipped, and the report says so. See docs/benchmarks-people.md.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import bench
import testbed
from people import package, pythons, report, run, self_test, serving

EXPERIMENTS = {"wheel": package.wheel, "import": package.imports, "rows": package.rows, "frames": package.frames,
               "files": package.files, "paint": serving.paint, "console": serving.cost, "metrics": serving.metrics}
OF_PGBENCH = {"console", "metrics"}
# What --quick changes.
QUICK = {"rows": 20_000, "frame_rows": 100_000, "scale": 0.01, "rounds": 1, "seconds": 1, "turns": 1,
         "idle_seconds": 1}


def main():
    options = arguments()
    if options.command == "report":
        report.write(options.results, options.docs)
        return
    if options.command == "self-test":
        self_test.run()
    if not bench.CLEAVE.exists():
        sys.exit(f"{bench.CLEAVE} is not there: run `cargo build --release`, or set CLEAVE_BINARY")
    # A signal becomes an exception, so that servers are ended.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, testbed.ended_by_signal)
    bench.WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=bench.WORK, prefix="people-") as folder:
        measure(options, Path(folder))


def measure(options, folder):
    if options.quick:
        options.results = options.results or folder / "results"
    options.results = options.results or report.PEOPLE.folder
    options.without_postgresql = not any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    needs_python = not report.IN_PYTHON.isdisjoint(options.experiments)
    python = pythons.found(options.wheel) if needs_python else None
    options.versions = python.versions() if python else "no wheel"
    with run.Bench(options, folder, python) as measurement:
        for name in options.experiments:
            measurement.perform(name, present(name, python))
    if not any(measurement.records):
        print("nothing was measured")
    elif options.quick:
        report.write(options.results)
        print((options.results / "summary.md").read_text())
    else:
        print(f"measured; `{sys.argv[0]} report` makes tables")
    if options.command == "self-test":
        self_test.check_measured(options.results, options.experiments)
        print("self-test: passed")


def present(name, python):
    """The experiment, or what notes why it cannot run here."""
    if name in report.IN_PYTHON and python is None:
        return lambda measurement: measurement.note("skipped: there is no wheel (`scripts/build_python.sh wheel`)")
    if name in OF_PGBENCH and not (shutil.which("pgbench") and shutil.which("psql")):
        return lambda measurement: measurement.note("skipped: pgbench is not there")
    return EXPERIMENTS[name]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=["run", "report", "self-test"], default="run")
    parser.add_argument("--only", help="experiments, as in frames,files (default: all)")
    parser.add_argument("--quick", action="store_true", help="at a tiny scale, once each")
    parser.add_argument("--wheel", type=Path, help="the wheel (default: the newest one in dist/)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="to a client (default: 1,000,000)")
    parser.add_argument("--frame-rows", type=int, default=10_000_000, help="of a data frame (default: 10,000,000)")
    parser.add_argument("--scale", type=float, default=1.0, help="of TPC-H (default: 1)")
    parser.add_argument("--threads", type=int, default=2, help="of Cleave and of DuckDB (default: 2)")
    parser.add_argument("--rounds", type=int, default=5, help="of every way that is compared (default: 5)")
    parser.add_argument("--seconds", type=int, default=5, help="of one run of pgbench (default: 5)")
    parser.add_argument("--turns", type=int, default=5, help="through all ways of metrics and back, of a round "
                        "(default: 5)")
    parser.add_argument("--idle-seconds", type=int, default=10, help="of an idle server (default: 10)")
    parser.add_argument("--clients", type=int, default=4, help="of pgbench (default: 4)")
    parser.add_argument("--pgbench-scale", type=int, default=1, help="100,000 accounts each (default: 1)")
    parser.add_argument("--results", type=Path, help="folder of the measurements (default: target/bench/people; with "
                        "--quick a temporary one)")
    parser.add_argument("--docs", type=Path, help="report: a page whose tables are filled in")
    options = parser.parse_args()
    options.quick |= options.command == "self-test"
    # The head of a run names it.
    options.place = "this machine"
    if options.quick:
        given = {word.split("=")[0].lstrip("-").replace("-", "_") for word in sys.argv[1:] if word.startswith("--")}
        for name, value in QUICK.items():
            if name not in given:
                setattr(options, name, value)
    options.experiments = options.only.split(",") if options.only else list(EXPERIMENTS)
    if unknown := [name for name in options.experiments if name not in EXPERIMENTS]:
        parser.error(f"there is no experiment {', '.join(unknown)}: choose from {', '.join(EXPERIMENTS)}")
    if options.command == "report":
        options.results = options.results or report.PEOPLE.folder
    return options


if __name__ == "__main__":
    main()
