#!/usr/bin/env python3
"""Compares a generated movie database with the real one: q-errors of the sizes of sub-plans.

The input is a generated database (CSV files `<table>/*.csv` or `<table>.csv` without a header, or a DuckDB file), the
queries of the Join Order Benchmark, and the published sizes of their sub-plans on the real data (`{"10a": [{"tables":
["mc", "t"], "rows": 829639}, ...], ...}`). A q-error is the factor by which a generated size, divided by the scale,
misses the published one.

    calibrate_imdb.py --csv DIR --scale 0.1 --queries DIR --statistics FILE [--schema FILE]
    calibrate_imdb.py --duckdb FILE ...

A sub-plan joins some of a query's tables, with the filters of each. The published sizes leave out filters that are
disjunctions, so these are left out here too. Needs the Python package `duckdb`.
"""

import argparse
import collections
import glob
import json
import math
import os
import re
import statistics
import sys
import threading
import time

import duckdb

from conjuncts import split_conjuncts


def parse(sql):
    """A query's tables by alias, filters by alias, and sets of (alias, column) that are equal."""
    body = re.search(r"\bFROM\b(.*?)\bWHERE\b(.*)", sql, re.S | re.I)
    tables = {}
    for item in body.group(1).split(","):
        name, _, alias = item.split()
        tables[alias] = name
    filters, joins = collections.defaultdict(list), []
    for part in split_conjuncts(body.group(2)):
        join = re.fullmatch(r"(\w+)\.(\w+)\s*=\s*(\w+)\.(\w+)", part)
        if join:
            left, right = join.group(1, 2), join.group(3, 4)
            equal = [group for group in joins if left in group or right in group]
            joins = [group for group in joins if group not in equal]
            joins.append(set().union({left, right}, *equal))
        elif not part.startswith("("):
            alias = part.split(".")[0]
            filters[alias].append(f'"{alias}"{part.removeprefix(alias)}')
    return tables, filters, joins


def load(connection, directory, schema):
    """Creates and fills the tables."""
    connection.execute(schema)
    for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        files = glob.glob(os.path.join(directory, table, "*.csv"))
        files = sorted(files) or [os.path.join(directory, table + ".csv")]
        # A checksum column is of no use here, and an empty text is not NULL.
        columns = connection.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ?", [table]
        ).fetchall()
        types = "{" + ", ".join(f"'{name}': '{kind}'" for name, kind in columns) + "}"
        connection.execute(
            f"INSERT INTO {table} SELECT * FROM read_csv({files!r}, header=false, columns={types},"
            " delim=',', quote='\"', escape='\"', nullstr='', auto_detect=false)"
        )


class Stopwatch:
    """Runs a statement, and interrupts it after so many seconds."""

    def __init__(self, connection, seconds):
        self.connection, self.seconds = connection, seconds

    def run(self, sql):
        timer = threading.Timer(self.seconds, self.connection.interrupt)
        timer.start()
        try:
            return self.connection.execute(sql).fetchone()[0]
        except (duckdb.InterruptException, duckdb.OutOfMemoryException):
            return None
        finally:
            timer.cancel()


def count_sql(connection, reduced, tables, filters, joins, subset):
    """Counts a join of tables that are first reduced, once each, to (join keys, how often)."""
    wanted = collections.defaultdict(set)
    conditions = []
    for group in joins:
        members = sorted(member for member in group if member[0] in subset)
        if len(members) > 1:
            for alias, column in members:
                wanted[alias].add(column)
            names = [f'"{alias}".{column}' for alias, column in members]
            conditions += [f"{names[0]} = {name}" for name in names[1:]]
    sources = []
    for alias in subset:
        keys = ", ".join(sorted(wanted[alias]))
        where = " AND ".join(filters[alias]) or "true"
        source = (
            f"SELECT {keys}, count(*)::DOUBLE AS n FROM {tables[alias]} AS \"{alias}\""
            f" WHERE {where} GROUP BY {keys}"
        )
        if source not in reduced:
            reduced[source] = f"reduced{len(reduced)}"
            connection.execute(f"CREATE TEMP TABLE {reduced[source]} AS {source}")
        sources.append(f'{reduced[source]} AS "{alias}"')
    product = " * ".join(f'"{alias}".n' for alias in subset)
    return (
        f"SELECT coalesce(sum({product}), 0) FROM {', '.join(sources)}"
        f" WHERE {' AND '.join(conditions)}"
    )


def q_error(actual, expected):
    actual = max(actual, 0.5)
    return max(actual / expected, expected / actual)


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def describe(errors):
    return (
        f"{len(errors):5} sub-plans, q-error median {statistics.median(errors):8.2f}"
        f"  p90 {quantile(errors, 0.9):9.2f}  max {max(errors):12.1f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--csv", help="directory of generated CSV files")
    source.add_argument("--duckdb", help="DuckDB file that holds the tables")
    parser.add_argument("--schema", help="CREATE TABLE text, with --csv")
    parser.add_argument("--queries", required=True, help="directory of the benchmark's queries")
    parser.add_argument("--statistics", required=True, help="published sizes (JSON)")
    parser.add_argument("--scale", type=float, default=1.0, help="scale of the generated data")
    parser.add_argument("--only", help="queries, separated by commas")
    parser.add_argument("--tables-max", type=int, default=99, help="skip larger sub-plans")
    parser.add_argument("--seconds", type=float, default=20, help="skip sub-plans that take longer")
    parser.add_argument("--memory", default="6GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worst", type=int, default=40, help="how many of the worst to list")
    parser.add_argument("--output", help="write all sizes to this file (JSON lines)")
    arguments = parser.parse_args()

    connection = duckdb.connect(arguments.duckdb or ":memory:", read_only=bool(arguments.duckdb))
    connection.execute(f"SET memory_limit='{arguments.memory}'")
    connection.execute(f"SET threads={arguments.threads}")
    if arguments.csv:
        if not arguments.schema:
            parser.error("--csv needs --schema")
        with open(arguments.schema) as file:
            load(connection, arguments.csv, file.read())
    with open(arguments.statistics) as file:
        published = json.load(file)
    stopwatch = Stopwatch(connection, arguments.seconds)
    only = set(arguments.only.split(",")) if arguments.only else None
    results, skipped, started = [], 0, time.monotonic()
    reduced = {}
    for query in sorted(published, key=lambda name: (int(name[:-1]), name)):
        if only and query not in only:
            continue
        with open(os.path.join(arguments.queries, query + ".sql")) as file:
            tables, filters, joins = parse(file.read())
        for name in reduced.values():
            connection.execute(f"DROP TABLE {name}")
        sizes, reduced = {}, {}
        for plan in published[query]:
            subset, expected = sorted(plan["tables"]), plan["rows"]
            if not 1 <= expected <= 1e8 or len(subset) > arguments.tables_max:
                continue
            sql = count_sql(connection, reduced, tables, filters, joins, subset)
            if sql not in sizes:
                sizes[sql] = stopwatch.run(sql)
            if sizes[sql] is None:
                skipped += 1
                continue
            actual = sizes[sql] / arguments.scale
            results.append((q_error(actual, expected), query, subset, actual, expected))
    by_query = collections.defaultdict(list)
    for error, query, *_ in results:
        by_query[query].append(error)
    for query, errors in by_query.items():
        plans = [(actual, expected) for _, q, _, actual, expected in results if q == query]
        bias = statistics.median(math.log10(max(a, 0.5) / e) for a, e in plans)
        print(f"{query:>4} {describe(errors)}  bias {10**bias:8.2f}")
    for error, query, subset, actual, expected in sorted(results, reverse=True)[: arguments.worst]:
        name = " ".join(subset)
        print(f"{error:10.1f}  {query:>4} {name:40} generated {actual:14.0f} real {expected:12}")
    if arguments.output:
        with open(arguments.output, "w") as file:
            for error, query, subset, actual, expected in results:
                row = {"query": query, "tables": subset, "generated": actual, "real": expected}
                file.write(json.dumps(row) + "\n")
    took = time.monotonic() - started
    print(f" all {describe([result[0] for result in results])}  skipped {skipped}, {took:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
