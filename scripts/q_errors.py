#!/usr/bin/env python3
"""How far the planner's estimates are off, before and after ANALYZE: q-errors of the scans and joins of every query.

    scripts/q_errors.py [--scale S] [--queries DIR]

In go IMDb-like data, generated once into target/bench, and a folder of queries (those of the Join Order Benchmark; without
it the project's own). Each query runs by EXPLAIN (ANALYZE, FORMAT JSON), with `use_statistics` off and on; the q-error of an
operator is the factor between the rows that it was expected to give and those that it gave, both at least one. Scans whose
rows a join above them has thinned are left out. The rows of each query must be the same both ways.

Needs `cargo build --release`, or CLEAVE_BINARY. Counts rows and measures no time but that of ANALYZE.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
CLEAVE = Path(os.environ.get("CLEAVE_BINARY", TARGET / "release" / "cleave"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.02)
    parser.add_argument("--queries", type=Path, default=ROOT / "crates/cleave/tests/imdb_queries")
    options = parser.parse_args()
    if not CLEAVE.exists():
        sys.exit(f"{CLEAVE} is not there: run `cargo build --release`")
    place = generated(options.scale)
    began = time.monotonic()
    analyzed = [line.split(",") for line in sql(place, [], "ANALYZE VERBOSE").splitlines()[1:]]
    seconds = time.monotonic() - began
    rows = sum(int(row[1]) for row in analyzed)
    size = sum(file.stat().st_size for file in (place / "statistics").iterdir())
    print(f"IMDb-like {options.scale}: ANALYZE of {len(analyzed)} tables, {rows} rows, in {seconds:.1f} s with the"
          f" program's start; {size / 1e3:.0f} kB of statistics; timing mode: unthrottled")
    errors = {"off": {"scans": [], "joins": []}, "on": {"scans": [], "joins": []}}
    queries = sorted(options.queries.glob("*.sql"))
    for query in queries:
        text = query.read_text().strip().rstrip(";")
        found = {}
        for setting, kinds in errors.items():
            settings = [f"use_statistics={setting}", "split=host"]
            found[setting] = sorted(sql(place, settings, text).splitlines())
            plan = json.loads(json_cell(sql(place, settings, f"EXPLAIN (ANALYZE, FORMAT JSON) {text}")))
            for node in plan["plan"]:
                collect(node, kinds)
        if found["off"] != found["on"]:
            sys.exit(f"{query.stem}: other rows with statistics than without")
    print(f"{len(queries)} queries, the same rows both ways")
    print(f"{'':28} {'median':>8} {'90 %':>10} {'99 %':>10} {'largest':>10} {'operators':>10}")
    for kind in ["scans", "joins"]:
        for setting, label in [("off", "before"), ("on", "after")]:
            values = sorted(errors[setting][kind])
            at = lambda share: values[min(int(share * len(values)), len(values) - 1)]
            print(f"{kind + ' ' + label + ' ANALYZE':28} {statistics.median(values):8.1f} {at(0.9):10.1f}"
                  f" {at(0.99):10.1f} {values[-1]:10.1f} {len(values):10}")


def collect(node, kinds):
    """The q-error of one operator of a plan, where it has one."""
    if "rows" not in node or "rows_expected" not in node:
        return
    kind = {"TableScanExec": "scans", "HashJoinExec": "joins"}.get(node["operator"])
    if kind is None or "dynamic=" in node["detail"]:
        return
    found, expected = max(node["rows"], 1), max(node["rows_expected"], 1)
    kinds[kind].append(max(found / expected, expected / found))


def generated(scale):
    """A database with the data of this scale."""
    place = TARGET / "bench" / f"imdb-{scale}"
    if not (place / "root").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([CLEAVE, "generate", "imdb", "--scale", str(scale), "--db", place], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return place


def sql(place, settings, text):
    command = [CLEAVE, "sql", "--db", place, "--format", "csv", "-c", text]
    for setting in settings:
        command += ["--set", setting]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def json_cell(text):
    """The one value of a CSV of one column."""
    return text.split("\n", 1)[1].strip()[1:-1].replace('""', '"')


if __name__ == "__main__":
    main()
