#!/usr/bin/env python3
"""The experiments of update NDP, update-aware HTAP and NDP result sets: Cleave's device, its host, and PostgreSQL.

    scripts/bench_update.py --only selectivity,mixed    some experiments
    scripts/bench_update.py all                         all of them, and the report
    scripts/bench_update.py report [--docs PAGE]        Markdown and pictures of the measurements so far
    scripts/bench_update.py --quick ...                 at a tiny scale, to see that it works; its figures say nothing
    scripts/bench_update.py --self-test                 checks of the pure parts, and all experiments at that scale,
                                                        with Cleave alone

    selectivity  a bulk update of one column of ten, of growing shares of the rows
    mixed        an update of all rows while YCSB's clients run
    contention   updates beside skewed clients that want some of the same rows
    for_update   SELECT FOR UPDATE before the update
    locking      shared lock table, table lock, optimistic
    placement    rows found and changed on the host, on the device, or one after the other
    aborts       updates given up early, late, and after their end
    recovery     a kill after a committed update: log, and time to the first answer
    violation    clients that wait for the update's rows, around its commit
    logging      an archive that changed chunks are copied into, before and behind the acknowledgement
    scans        scans of more and more fields and rows
    visibility   scans after shares of the rows were updated
    htap         LinkBench's transactions beside analytic queries, with sweeps
    units        half of a table in blocks of rows, by the size of a slot, and in pages
    transfer     rows that a condition leaves, as pages, as pages with a matching row, and as rows
    interleaving the host computes over rows while the device makes the next ones, by the number of slots
    materialise  a query of WITH whose rows a device writes before they are consumed
    reuse        a result that is there already, in the result cache and on the device
    refresh      a materialized view by changes, and all of its rows
    outgrown     sorts, aggregates and joins with a tenth of the memory that their rows take

The device is embedded, local, remote or on the testbed (`--place`). Runs of all ways alternate; a ratio is the median
of the rounds' ratios. Needs `cargo build --release` (or CLEAVE_BINARY), psycopg, which it installs into target/clients,
and PostgreSQL (`scripts/install_peers.sh postgresql`) unless `--without-postgresql` is given. See
docs/experiments-updates.md and docs/experiments-result-sets.md.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import bench
import servers
import testbed
from update import beside, bulk, htap, places, recovery, report, result_sets, self_test
from update.run import Bench

EXPERIMENTS = {"selectivity": bulk.selectivity, "mixed": beside.mixed, "contention": beside.contention,
               "for_update": bulk.for_update, "locking": bulk.locking, "placement": bulk.placement,
               "aborts": beside.aborts, "recovery": recovery.recovery, "violation": beside.violation,
               "logging": beside.logging,
               "scans": bulk.scans, "visibility": bulk.visibility, "htap": htap.htap,
               "units": result_sets.units, "transfer": result_sets.transfer, "interleaving": result_sets.interleaving,
               "materialise": result_sets.materialise, "reuse": result_sets.reuse, "refresh": result_sets.refresh,
               "outgrown": result_sets.outgrown}
# What --quick changes.
QUICK = {"rows": 2000, "narrow_rows": 4000, "rounds": 1, "clients": 4, "before": 0.4, "after": 0.4, "seconds": 0.5,
         "scale": 0.01, "buffers": "64MB", "shares": "1,0.1", "widths": "narrow,wide", "pause": 0.1}


def main():
    options = arguments()
    if options.command == "report":
        report.write(options.results, options.docs)
        return 0
    if options.self_test:
        self_test.run()
    if not bench.CLEAVE.exists():
        sys.exit(f"{bench.CLEAVE} is not there: run `cargo build --release`, or set CLEAVE_BINARY")
    # Before the testbed, from which no packages can be had.
    psycopg = servers.psycopg()
    if psycopg is None:
        sys.exit("psycopg cannot be installed")
    if options.place == "testbed" and "CLEAVE_TESTBED_DIR" not in os.environ:
        return in_testbed(options)
    bench.WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=bench.WORK, prefix="update-") as folder:
        if options.quick:
            options.results = options.results or Path(folder) / "results"
        options.results = options.results or report.UPDATES.folder
        with Bench(options, psycopg, Path(folder)) as run:
            for name in options.experiments:
                run.perform(name, EXPERIMENTS[name])
        if options.self_test:
            self_test.check_measured(options.results, options.experiments)
            print("self-test: passed")
        elif options.command == "all" or options.quick:
            report.write(options.results)
            if options.quick:
                print((options.results / "summary.md").read_text())
        else:
            print(f"measured; `{sys.argv[0]} report` makes tables and pictures")
    return 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=["run", "all", "report"], default="run")
    parser.add_argument("--only", help="experiments, as in selectivity,mixed (default: all)")
    parser.add_argument("--quick", action="store_true", help="at a tiny scale, once each")
    parser.add_argument("--self-test", action="store_true", help="the same without PostgreSQL, with checks")
    parser.add_argument("--place", choices=places.NAMES, default="embedded", help="where the device is")
    parser.add_argument("--rate", help="of the link, remote or testbed, as in 1gbit")
    parser.add_argument("--cpu", help="testbed: the device's share of a core, as in 25%%")
    parser.add_argument("--host-cpu", help="testbed: the share of the server, its clients and PostgreSQL")
    parser.add_argument("--fragment-memory", help="of the device, as in 256MiB (local, remote)")
    parser.add_argument("--without-postgresql", action="store_true")
    parser.add_argument("--rounds", type=int, default=7, help="of every way that is compared (default: 7)")
    parser.add_argument("--rows", type=int, default=200_000, help="of 1 kB (default: 200,000)")
    parser.add_argument("--narrow-rows", type=int, default=1_000_000, help="of 40 bytes (default: 1,000,000)")
    parser.add_argument("--widths", default="wide,narrow", help="which rows; experiments of one kind take the first")
    parser.add_argument("--shares", default="1,0.1,0.01", help="of the rows that selectivity updates")
    parser.add_argument("--buffers", default="64MB", help="the servers' buffers (default: 64MB)")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--theta", type=float, default=0.8, help="skew of keys and nodes, 0 to below 1")
    parser.add_argument("--before", type=float, default=5.0, help="seconds of clients alone (default: 5)")
    parser.add_argument("--after", type=float, default=5.0, help="seconds of clients after an update (default: 5)")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two updates or analytic queries")
    parser.add_argument("--seconds", type=float, default=10.0, help="of one run of htap (default: 10)")
    parser.add_argument("--scale", type=float, default=1.0, help="of LinkBench: 100,000 nodes each")
    parser.add_argument("--sweeps", default=",".join(htap.SWEEPS), help=f"of htap: {', '.join(htap.SWEEPS)}")
    parser.add_argument("--watts-host", type=float, default=10.0, help="model: of a busy core of the host")
    parser.add_argument("--watts-device", type=float, default=3.0, help="model: of a busy core of the device")
    parser.add_argument("--watts-idle-host", type=float, default=0.0, help="model: of the host, whatever it does")
    parser.add_argument("--watts-idle-device", type=float, default=0.0, help="model: of the device, likewise")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, help="folder of the measurements (default: target/bench/update; with "
                        "--quick a temporary one)")
    parser.add_argument("--docs", type=Path, help="report: a page whose tables are filled in")
    options = parser.parse_args()
    options.quick |= options.self_test
    options.without_postgresql |= options.self_test
    if options.quick:
        given = {word.split("=")[0].lstrip("-").replace("-", "_") for word in sys.argv[1:] if word.startswith("--")}
        for name, value in QUICK.items():
            if name not in given:
                setattr(options, name, value)
    options.experiments = options.only.split(",") if options.only else list(EXPERIMENTS)
    if unknown := [name for name in options.experiments if name not in EXPERIMENTS]:
        parser.error(f"there is no experiment {', '.join(unknown)}: choose from {', '.join(EXPERIMENTS)}")
    if options.command == "report":
        options.results = options.results or report.UPDATES.folder
    return options


def in_testbed(options):
    """Runs this command again on the host's side of the testbed."""
    with tempfile.TemporaryDirectory(dir=bench.TARGET if bench.TARGET.exists() else None) as state:
        command = [sys.executable, Path(testbed.__file__), "--state", state, "--device", bench.CLEAVE]
        for name in ("rate", "cpu", "host_cpu"):
            if getattr(options, name):
                command += [f"--{name.replace('_', '-')}", getattr(options, name)]
        if options.fragment_memory:
            command += ["--memory", options.fragment_memory]
        command += ["--", sys.executable, *sys.argv]
        return subprocess.run([str(part) for part in command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
