#!/usr/bin/env python3
"""CORD's experiments: one table over several devices, its baseline, and the same work on the nodes' processors.

    scripts/bench_cord.py --only selectivity,devices    some experiments
    scripts/bench_cord.py all                           all of them, and the report
    scripts/bench_cord.py report [--docs PAGE]          Markdown and pictures of the measurements so far
    scripts/bench_cord.py --quick ...                   at a tiny scale, to see that it works; its figures say nothing
    scripts/bench_cord.py --self-test                   checks of the pure parts, and all experiments at that scale

    selectivity  queries that leave from 0.0004 % to 94 % of the rows
    devices      one query over 1, 2 and 4 devices of 1 and 2 nodes
    uneven       all rows on one of two devices, three quarters, and half, with and without stealing
    history      a query after one with which it has no condition in common, half, an implied one, or all
    batches      four queries one by one, concurrently, and as a batch
    exchange     a join and groups of rows that have to meet, by way of the host and from device to device
    q6           TPC-H's query 6
    loss         a device is killed, or hangs, while scans and transactions run over mirrored tables

The devices are processes of this machine, or on the testbed (`--place`). Runs of all ways alternate; a ratio is the
median of the rounds' ratios. Needs `cargo build --release` (or CLEAVE_BINARY), and psycopg, which it installs into
target/clients. Shares of a core, and the testbed, need what `scripts/testbed.py` needs. See docs/experiments-cord.md.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import bench
import servers
import testbed
from cord import exchanged, loss, places, repeated, report, run, scans, self_test
from update import report as update_report
from update import self_test as update_self_test

EXPERIMENTS = {"selectivity": scans.selectivity, "devices": scans.devices, "uneven": scans.uneven,
               "history": repeated.history, "batches": repeated.batches, "exchange": exchanged.exchange,
               "q6": scans.q6, "loss": loss.loss}
# What --quick changes.
QUICK = {"rows": 20_000, "scale": 0.01, "rounds": 1}


def main():
    options = arguments()
    if options.command == "report":
        update_report.write(options.results, options.docs, report.CORD)
        return 0
    if options.self_test:
        self_test.run()
    if not bench.CLEAVE.exists():
        sys.exit(f"{bench.CLEAVE} is not there: run `cargo build --release`, or set CLEAVE_BINARY")
    # A signal becomes an exception, so that devices and control groups are taken down.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, testbed.ended_by_signal)
    try:
        # Before the testbed, from which no packages can be had.
        psycopg = servers.psycopg()
        if psycopg is None:
            sys.exit("psycopg cannot be installed")
        if options.place == "testbed" and "CLEAVE_TESTBED_DIR" not in os.environ:
            return in_testbed(options)
        measure(options, psycopg)
    except testbed.NotPermitted as error:
        print(f"bench_cord: not permitted here: {error}", file=sys.stderr)
        return testbed.NOT_PERMITTED
    except testbed.Failed as error:
        print(f"bench_cord: {error}", file=sys.stderr)
        return 2
    return 0


def measure(options, psycopg):
    bench.WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=bench.WORK, prefix="cord-") as folder:
        if options.quick:
            options.results = options.results or Path(folder) / "results"
        options.results = options.results or report.CORD.folder
        with run.Bench(options, psycopg, Path(folder)) as measurement:
            for name in options.experiments:
                measurement.perform(name, EXPERIMENTS[name])
        if options.self_test:
            update_self_test.check_measured(options.results, options.experiments, report.CORD)
            print("self-test: passed")
        elif options.command == "all" or options.quick:
            update_report.write(options.results, study=report.CORD)
            if options.quick:
                print((options.results / "summary.md").read_text())
        else:
            print(f"measured; `{sys.argv[0]} report` makes tables and pictures")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=["run", "all", "report"], default="run")
    parser.add_argument("--only", help="experiments, as in selectivity,devices (default: all)")
    parser.add_argument("--quick", action="store_true", help="at a tiny scale, once each")
    parser.add_argument("--self-test", action="store_true", help="the same, with checks")
    parser.add_argument("--place", choices=places.NAMES, default="remote", help="where the devices are")
    parser.add_argument("--devices", type=int, default=4, help="how many (default: 4)")
    parser.add_argument("--nodes", type=int, default=2, help="of how many storage nodes (default: 2)")
    parser.add_argument("--engines", action="store_true", help="the devices of a node are engines of one process; for "
                        "programs with `cleaved --node`")
    parser.add_argument("--rate", help="of each device's link (remote), or each node's (testbed), as in 1gbit")
    parser.add_argument("--cpu", help="each device's share of a core, as in 20%%")
    parser.add_argument("--node-cpu", help="the share of each node's own processor (default: that of its devices)")
    parser.add_argument("--host-cpu", help="testbed: the share of the server and of this script")
    parser.add_argument("--cores", type=int, default=1, help="threads of each device that run fragments (default: 1)")
    parser.add_argument("--fragment-memory", help="of each device, as in 256MiB")
    parser.add_argument("--buffers", default="4MB", help="what the host caches (default: 4MB)")
    parser.add_argument("--rows", type=int, default=4_000_000, help="particles (default: 4,000,000)")
    parser.add_argument("--scale", type=float, default=0.5, help="of TPC-H (default: 0.5)")
    parser.add_argument("--rounds", type=int, default=7, help="of every way that is compared (default: 7)")
    parser.add_argument("--results", type=Path, help="folder of the measurements (default: target/bench/cord; with "
                        "--quick a temporary one)")
    parser.add_argument("--docs", type=Path, help="report: a page whose tables are filled in")
    options = parser.parse_args()
    options.quick |= options.self_test
    options.without_postgresql = True
    if options.quick:
        given = {word.split("=")[0].lstrip("-").replace("-", "_") for word in sys.argv[1:] if word.startswith("--")}
        for name, value in QUICK.items():
            if name not in given:
                setattr(options, name, value)
    options.experiments = options.only.split(",") if options.only else list(EXPERIMENTS)
    if unknown := [name for name in options.experiments if name not in EXPERIMENTS]:
        parser.error(f"there is no experiment {', '.join(unknown)}: choose from {', '.join(EXPERIMENTS)}")
    if options.command == "report":
        options.results = options.results or report.CORD.folder
    return options


def in_testbed(options):
    """Runs this command again on the host's side of the testbed."""
    with tempfile.TemporaryDirectory(dir=bench.TARGET if bench.TARGET.exists() else None) as state:
        command = [sys.executable, Path(testbed.__file__), "--state", state, "--device", bench.CLEAVE]
        for name, given in (("rate", options.rate), ("cpu", options.cpu), ("host_cpu", options.host_cpu),
                            ("devices", options.devices), ("nodes", options.nodes), ("cores", options.cores),
                            ("memory", options.fragment_memory)):
            if given:
                command += [f"--{name.replace('_', '-')}", given]
        share = places.node_share(options)
        if share and run.needs_processors(options):
            command += ["--node-cpu", f"{100 * share:g}%"]
        if options.engines:
            command.append("--engines")
        command += ["--", sys.executable, *sys.argv]
        return subprocess.run([str(part) for part in command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
