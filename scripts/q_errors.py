#!/usr/bin/env python3
"""Q-errors of the planner's estimates: for sub-plans of queries, on two data sets, by number of joins.

    scripts/q_errors.py [--scale S] [--queries DIR] [--airports DIR] [--subplans N] [--joins N]
                        [--settings S,...] [--skip N]

The input is IMDb-like data, generated once into target/bench, with a folder of queries (those of the Join Order
Benchmark; without it the project's own), and, with --airports, OpenFlights' CSV files, whose routes are concentrated on
few airports and airlines.

A sub-plan is a connected part of a query's join graph with the conditions that it covers. Of each query up to N for
each number of joins are drawn, the same ones at each run, and run as `EXPLAIN (ANALYZE, FORMAT JSON) SELECT count(*)`;
the q-error of the top join is the factor between its estimated and its actual rows, both at least one. By default it is
taken before and after ANALYZE (use_statistics off and on), in which the rows must be the same.

Needs `cargo build --release`, or CLEAVE_BINARY. Counts rows; it measures only the time of ANALYZE and of planning.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from queries import split_conjuncts

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
CLEAVE = Path(os.environ.get("CLEAVE_BINARY", TARGET / "release" / "cleave"))

AIRPORTS = {
    "airports": "id int PRIMARY KEY, name text, city text, country text, iata text, icao text, latitude double "
                "precision,"
                " longitude double precision, altitude_ft int, utc_offset text, dst text, tz text, type text, source "
                "text",
    "airlines": "id int PRIMARY KEY, name text, alias text, iata text, icao text, callsign text, country text, "
                "active text",
    "routes": "airline text, airline_id int, source text, source_id int, destination text, destination_id int,"
              " codeshare text, stops int, equipment text",
    "planes": "name text, iata text, icao text",
    "countries": "name text, iso text, dafif text",
}
AIRPORT_QUERIES = {
    "from-country": """SELECT * FROM routes AS r, airports AS a, airports AS b, airlines AS l
        WHERE a.id = r.source_id AND b.id = r.destination_id AND l.id = r.airline_id AND a.country = 'United States'""",
    "hubs": """SELECT * FROM routes AS r, airports AS a, routes AS s, airports AS b
        WHERE r.destination_id = a.id AND s.source_id = a.id AND b.id = s.destination_id AND a.iata = 'ATL'""",
    "low-cost": """SELECT * FROM routes AS r, airlines AS l, airports AS a, countries AS c
        WHERE l.id = r.airline_id AND a.id = r.source_id AND c.name = l.country AND l.name LIKE '%Ryan%' AND a.country =
        'Ireland'""",
    "types": """SELECT * FROM routes AS r, planes AS p, airlines AS l, airports AS a
        WHERE p.iata = r.equipment AND l.id = r.airline_id AND a.id = r.source_id AND p.name LIKE 'Boeing 7%' AND
        r.stops = 0""",
    "islands": """SELECT * FROM routes AS r, airports AS a, airports AS b, airlines AS l, countries AS c
        WHERE a.id = r.source_id AND b.id = r.destination_id AND l.id = r.airline_id AND c.name = a.country
          AND a.tz LIKE 'Pacific/%' AND b.altitude_ft < 100 AND l.active = 'Y'""",
    "same-airline": """SELECT * FROM routes AS r, routes AS s, airlines AS l, airports AS a
        WHERE r.airline_id = s.airline_id AND l.id = r.airline_id AND a.id = s.source_id AND l.country = 'China'
          AND r.equipment = '320' AND s.equipment = '738'""",
    "codeshare": """SELECT * FROM routes AS r, airlines AS l, airports AS a, airports AS b, countries AS c
        WHERE l.id = r.airline_id AND a.id = r.source_id AND b.id = r.destination_id AND c.name = b.country
          AND r.codeshare = 'Y' AND l.country IN ('Germany', 'France', 'United Kingdom') AND b.country = 'United
          States'""",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.02)
    parser.add_argument("--queries", type=Path, default=ROOT / "crates/cleave/tests/imdb_queries")
    parser.add_argument("--airports", type=Path, help="folder with OpenFlights' files")
    parser.add_argument("--subplans", type=int, default=3, help="of each query, for each number of joins")
    parser.add_argument("--joins", type=int, default=16, help="at most so many in a sub-plan")
    parser.add_argument("--settings", default="off,on", help="values of use_statistics to compare")
    parser.add_argument("--skip", type=int, default=1, help="take every so many-th query only")
    options = parser.parse_args()
    if not CLEAVE.exists():
        sys.exit(f"{CLEAVE} is not there: run `cargo build --release`")
    settings = options.settings.split(",")
    queries = {path.stem: path.read_text() for path in sorted(options.queries.glob("*.sql"))[:: options.skip]}
    report(f"IMDb-like {options.scale}", imdb(options.scale), queries, settings, options)
    if options.airports:
        report("OpenFlights", airports(options.airports), AIRPORT_QUERIES, settings, options)


def report(name, place, queries, settings, options):
    began = time.monotonic()
    analyzed = [line.split(",") for line in sql(place, [], ["ANALYZE VERBOSE"])[0].splitlines()[1:]]
    seconds = time.monotonic() - began
    size = sum(file.stat().st_size for file in (place / "statistics").iterdir())
    print(f"{name}: ANALYZE of {len(analyzed)} tables, {sum(int(row[1]) for row in analyzed)} rows, in {seconds:.1f} "
          f"s with"
          f" the program's start; {size / 1e3:.0f} kB of statistics")
    errors = {setting: {} for setting in settings}
    planning = []
    for query, text in queries.items():
        parts = subplans(text, options)
        if not parts:
            continue
        found = {}
        for setting in settings:
            given = [f"use_statistics={setting}", "split=host"]
            statements = [f"EXPLAIN (ANALYZE, FORMAT JSON) {part}" for _, part in parts]
            cells = sql(place, given, statements)
            rows = []
            for (joins, part), cell in zip(parts, cells):
                plan = json.loads(json_cell(cell))[0]
                top = top_of(plan["Operators"])
                rows.append(top["rows"])
                expected, actual = max(top["rows_expected"], 1), max(top["rows"], 1)
                errors[setting].setdefault(joins, []).append((max(expected / actual, actual / expected), query, part))
                spent = milliseconds(json.dumps(plan))
                if spent is not None:
                    planning.append(spent)
            found[setting] = rows
        if len({tuple(rows) for rows in found.values()}) > 1:
            sys.exit(f"{query}: other rows with statistics than without")
    planning.sort()
    if planning:
        print(f"{len(queries)} queries; planning a sub-plan takes {at(planning, 0.5):.1f} ms in the median,"
              f" {at(planning, 0.95):.1f} at 95 %, {planning[-1]:.1f} at most")
    print(f"{'joins':>8} {'statistics':>10} {'median':>9} {'90 %':>9} {'95 %':>9} {'largest':>10} {'sub-plans':>10}")
    for low, high in [(1, 1), (2, 2), (3, 3), (4, 5), (1, 5), (6, 9), (10, 16), (6, 16)]:
        for setting in settings:
            values = [value for joins in range(low, high + 1) for value in errors[setting].get(joins, [])]
            if values:
                values.sort()
                label = str(low) if low == high else f"{low}-{high}"
                numbers = [value for value, _, _ in values]
                print(f"{label:>8} {setting:>10} {at(numbers, 0.5):9.1f} {at(numbers, 0.9):9.1f} "
                      f"{at(numbers, 0.95):9.1f}"
                      f" {numbers[-1]:10.0f} {len(numbers):10}")
    if os.environ.get("WORST"):
        last = [value for values in errors[settings[-1]].values() for value in values]
        for value, query, part in sorted(last, reverse=True)[: int(os.environ["WORST"])]:
            print(f"{value:12.1f} {query}: {part}")


def subplans(text, options):
    """Sub-plans of a query, as (joins, statement): connected parts of its join graph with the conditions within."""
    text = " ".join(re.sub(r"--.*", "", text).split()).rstrip("; ")
    match = re.search(r"\bFROM (.*?) WHERE (.*?)(?: GROUP BY .*| ORDER BY .*| LIMIT .*)?$", text, re.IGNORECASE)
    if not match or re.search(r"\bJOIN\b|\(\s*SELECT", text, re.IGNORECASE):
        return []
    tables = {}
    for item in match.group(1).split(","):
        words = item.split()
        tables[words[-1]] = words[0]
    conditions = []
    for condition in split_conjuncts(match.group(2)):
        plain = re.sub(r"'(?:[^']|'')*'", "''", condition)
        used = {alias for alias in tables if re.search(rf"\b{alias}\.", plain)}
        if not used:
            return []
        conditions.append((used, condition))
    near = {alias: set() for alias in tables}
    for used, condition in conditions:
        if len(used) == 2 and re.fullmatch(r"\w+\.\w+ ?= ?\w+\.\w+", condition):
            one, other = used
            near[one].add(other)
            near[other].add(one)
    draw = random.Random(0)
    chosen = []
    for joins in range(1, min(len(tables), options.joins + 1)):
        parts = set()
        for _ in range(20 * options.subplans):
            part = {draw.choice(sorted(tables))}
            while len(part) <= joins:
                reach = sorted(set().union(*(near[alias] for alias in part)) - part)
                if not reach:
                    break
                part.add(draw.choice(reach))
            if len(part) == joins + 1:
                parts.add(tuple(sorted(part)))
            if len(parts) == options.subplans:
                break
        for part in sorted(parts):
            inside = " AND ".join(condition for used, condition in conditions if used <= set(part))
            names = ", ".join(f"{tables[alias]} AS {alias}" for alias in part)
            chosen.append((joins, f"SELECT count(*) FROM {names} WHERE {inside}"))
    return chosen


def top_of(nodes):
    """The topmost join."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop(0)
        if node["operator"] in ("HashJoinExec", "NestedLoopJoinExec", "CrossJoinExec"):
            return node
        waiting = list(node.get("children", [])) + waiting
    raise ValueError("a plan without a join")


def milliseconds(text):
    """The planning time in the text of a plan."""
    found = re.search(r'"planning time", "value": "([0-9.]+) (us|ms|s)"', text)
    return float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[found[2]] if found else None


def at(values, share):
    return values[min(int(share * len(values)), len(values) - 1)]


def imdb(scale):
    """A database with the data of this scale."""
    place = TARGET / "bench" / f"imdb-{scale}"
    if not (place / "root").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([CLEAVE, "generate", "imdb", "--scale", str(scale), "--db", place], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return place


def airports(folder):
    """A database with OpenFlights' files."""
    place = TARGET / "bench" / "openflights"
    if not (place / "root").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        for table, columns in AIRPORTS.items():
            copy = f"COPY {table} FROM '{folder / table}.dat' WITH (FORMAT csv, NULL '\\N', ESCAPE '\\')"
            sql(place, [], [f"CREATE TABLE {table} ({columns})", copy])
    return place


def sql(place, settings, statements):
    """The results of statements that return rows of a plan or of ANALYZE."""
    command = [CLEAVE, "sql", "--db", place, "--format", "csv"]
    for statement in statements:
        command += ["-c", statement]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [part for part in re.split(r"(?m)^(?=QUERY PLAN$|table_name,)", done) if part.strip()]


def json_cell(text):
    """The one value of a CSV of one column."""
    return text.split("\n", 1)[1].strip()[1:-1].replace('""', '"')


if __name__ == "__main__":
    main()
