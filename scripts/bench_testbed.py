#!/usr/bin/env python3
"""The testbed benchmark: 1 row in 100,000 of a table of more than 3 GB, over a link of 1 Gbit between two namespaces.

    scripts/bench_testbed.py [--scale S] [--rate R] [--cpu SHARE]

Runs with the device embedded, over the same data, are interleaved. Needs what `scripts/testbed.py` needs, and `cargo
build --release`. Data is generated once into target/bench and kept.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import bench

ROUNDS = 15


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=4.0, help="TPC-H scale; lineitem has 6 million rows at 1")
    parser.add_argument("--rate", default="1gbit", help="what the link carries in each direction")
    parser.add_argument("--cpu", help="the device's share of a core, as in 50%% (default: no quota)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        measure(options)
        return
    if not bench.CLEAVE.exists():
        sys.exit(f"{bench.CLEAVE} is not there: run `cargo build --release`")
    bench.WORK.mkdir(parents=True, exist_ok=True)
    bench.generate(bench.WORK / f"tpch-{options.scale}", options.scale)
    state = bench.WORK / f"testbed-{options.scale}"
    arguments = ["--rate", options.rate, "--state", state, "--device", bench.CLEAVE]
    again = [sys.executable, __file__, "--scale", options.scale, "--rate", options.rate]
    if options.cpu:
        arguments += ["--cpu", options.cpu]
        again += ["--cpu", options.cpu]
    testbed = Path(__file__).with_name("testbed.py")
    command = [sys.executable, testbed, *arguments, "--", *again, "--inside"]
    sys.exit(subprocess.run([str(part) for part in command]).returncode)


def measure(options):
    embedded = bench.WORK / f"tpch-{options.scale}"
    remote = bench.WORK / f"tpch-{options.scale}-testbed"
    if not (remote / "done").exists():
        shutil.rmtree(remote, ignore_errors=True)
        bench.shell(remote)
        bench.run([bench.CLEAVE, "device", "add", "far", "--db", remote, "--address",
                   os.environ["CLEAVE_TESTBED_ADDRESS"], "--token-file", os.environ["CLEAVE_TESTBED_TOKEN_FILE"],
                   "--ca", os.environ["CLEAVE_TESTBED_CA"]])
        bench.generate(remote, options.scale, ["--set", "default_device=far"])
    rows = bench.count(embedded, "SELECT count(*) FROM lineitem")
    size = (embedded / "device-0.media").stat().st_size
    query = ("SELECT l_orderkey, l_linenumber, l_comment FROM lineitem "
             "WHERE (l_orderkey * 7 + l_linenumber) % 99991 = 0")  # a prime: 1 row in 100,000
    ways = {"embedded, h0": embedded, "testbed, h0": remote}
    runs = {way: [] for way in ways}
    for round_number in range(ROUNDS + 1):
        for way, place in ways.items():
            figures = bench.analyze(place, query, ["split=h0"])
            if round_number > 0:  # the first one warms up code and metadata
                runs[way].append(figures)
    result_bytes = len(bench.query_csv(remote, query, ["split=h0"]))
    quota = f", device held to {options.cpu} of a core" if options.cpu else ""
    print(f"\n{rows} rows in lineitem, {size / 1e9:.2f} GB of pages; {query}")
    print(f"timing mode: unthrottled (embedded), testbed (link of {options.rate} between namespaces, TLS{quota})")
    medians = {}
    for way, figures in runs.items():
        times = sorted(f["ms"] for f in figures)
        medians[way] = statistics.median(times)
        low, high = bench.interval(times)
        print(f"{way:16} {medians[way]:9.1f} ms {low:9.1f}..{high:8.1f}  to host {figures[-1]['received']:>11}"
              f"  to device {figures[-1]['sent']:>10}  rows {figures[-1]['rows']}")
    ratio = medians["testbed, h0"] / medians["embedded, h0"]
    received = bench.bytes_of(runs["testbed, h0"][-1]["received"])
    allowed = result_bytes * 1.1 + 65536
    print(f"time over embedded: {ratio:.2f}x (target 1.2x plus two round trips, which are printed above)")
    print(f"bytes to the host: {received:.0f} of {allowed:.0f} allowed (result as CSV: {result_bytes}, x 1.1 + 65536)")


if __name__ == "__main__":
    main()
