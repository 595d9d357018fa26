#!/usr/bin/env python3
"""Runs every query of some folders in DuckDB and in Cleave, on the same CSV, and compares the rows.

A query that returns one row of minima checks little of a join, so for each plain select-project-join query the number
of joined rows and an order-free checksum of their ids are compared too. Floats agree within 1e-9 relative, everything
else exactly. The exit code is 0 if all agree, 1 if some do not, 2 if the comparison could not be made.
"""

import argparse
import datetime
import decimal
import json
import pathlib
import re
import subprocess
import sys

import duckdb

from queries import for_duckdb

RELATIVE_TOLERANCE = 1e-9
CHECKSUM_PRIMES = [7919, 104729, 1299709, 15485863, 32452843, 49979687, 67867967, 86028121, 104395301,
                   122949823, 141650939, 160481183, 179424673, 198491317, 217645177, 236887691, 256203161]


def main():
    arguments = parse_arguments()
    queries = find_queries(arguments.folders)
    peer = load_duckdb(arguments.csv)
    cleave = Cleave(arguments.cleave, arguments.db)
    cleave.load(arguments.csv)
    failure_count = 0
    for name, query in queries:
        statements = [query] + checksum_query(query)
        try:
            expected = [normalised(statement, peer.execute(for_duckdb(statement)).fetchall())
                        for statement in statements]
        except duckdb.Error as error:
            print(f"{name}: DuckDB cannot run it: {error}", file=sys.stderr)
            failure_count += 1
            continue
        for settings in arguments.settings or [""]:
            problem = difference(statements, expected, cleave, settings)
            if problem:
                failure_count += 1
                print(f"{name} [{settings or 'default settings'}]: {problem}", file=sys.stderr)
        joined = f", {expected[1][0][0]} joined rows" if len(statements) > 1 else ""
        print(f"{name}: {len(expected[0])} rows{joined}", flush=True)
    runs = len(queries) * len(arguments.settings or [""])
    print(f"{len(queries)} queries, {runs} runs, {failure_count} differ from DuckDB {duckdb.__version__}")
    return 1 if failure_count else 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cleave", required=True, help="the program")
    parser.add_argument("--csv", required=True, type=pathlib.Path, help="folder with schema.sql and TABLE.csv")
    parser.add_argument("--db", required=True, type=pathlib.Path, help="database folder to create")
    parser.add_argument("--settings", action="append", help="as in split=h0,threads=1; repeat for more runs")
    parser.add_argument("folders", nargs="+", type=pathlib.Path, help="folders of .sql files, one query each")
    return parser.parse_args()


def find_queries(folders):
    queries = []
    for folder in folders:
        files = sorted(folder.glob("*.sql"))
        if not files:
            print(f"{folder} holds no .sql files", file=sys.stderr)
            sys.exit(2)
        queries += [(file.stem, file.read_text().strip().rstrip(";")) for file in files]
    return queries


def load_duckdb(csv):
    connection = duckdb.connect()
    fill(connection, csv)
    return connection


def fill(connection, csv):
    """The tables of a folder of schema.sql and TABLE.csv."""
    connection.execute((csv / "schema.sql").read_text())
    for file in sorted(csv.glob("*.csv")):
        connection.execute(
            f"COPY {file.stem} FROM '{file}' (FORMAT csv, HEADER false, NULLSTR '', ALLOW_QUOTED_NULLS false)")


class Cleave:
    def __init__(self, program, database):
        self.program, self.database = program, database

    def run(self, *arguments):
        command = [self.program, *arguments, "--db", str(self.database)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"exit code {result.returncode}: {result.stderr.strip()}")
        return result.stdout

    def load(self, csv):
        try:
            self.run("sql", "--create", "-f", str(csv / "schema.sql"))
            for file in sorted(csv.glob("*.csv")):
                self.run("load", file.stem, str(file))
        except (RuntimeError, OSError) as error:
            print(f"cannot load Cleave: {error}", file=sys.stderr)
            sys.exit(2)

    def query(self, statements, settings):
        arguments = ["sql", "--format", "json"]
        for setting in filter(None, settings.split(",")):
            arguments += ["--set", setting]
        for statement in statements:
            arguments += ["-c", statement]
        output = self.run(*arguments)
        decoder, results = json.JSONDecoder(parse_float=decimal.Decimal), []
        while output := output.lstrip():
            rows, end = decoder.raw_decode(output)
            results.append([tuple(row.values()) for row in rows])
            output = output[end:]
        return results


def difference(statements, expected, cleave, settings):
    """The difference between the peer's results and Cleave's, or None."""
    try:
        found = cleave.query(statements, settings)
    except (RuntimeError, ValueError) as error:
        return str(error)
    if len(found) != len(statements):
        return f"{len(found)} results for {len(statements)} statements"
    for statement, wanted, rows in zip(statements, expected, found):
        rows = normalised(statement, rows)
        if len(rows) != len(wanted):
            return f"{len(rows)} rows, DuckDB has {len(wanted)}"
        for number, (mine, theirs) in enumerate(zip(rows, wanted), 1):
            if len(mine) != len(theirs) or not all(map(same, mine, theirs)):
                return f"row {number}: {mine}, DuckDB has {theirs}"
    return None


def same(mine, theirs):
    """Whether two values are the same. JSON has numbers as decimals; only DuckDB tells which of them are floats."""
    if isinstance(theirs, float) and isinstance(mine, (int, float, decimal.Decimal)):
        mine = float(mine)
        return abs(mine - theirs) <= RELATIVE_TOLERANCE * max(abs(mine), abs(theirs))
    return mine == theirs


def normalised(statement, rows):
    def value(cell):
        if isinstance(cell, (datetime.date, datetime.time)):
            return str(cell)
        return cell

    rows = [tuple(value(cell) for cell in row) for row in rows]
    is_ordered = re.search(r"\border\s+by\b", statement, re.IGNORECASE)
    return rows if is_ordered else sorted(rows, key=lambda row: [(cell is None, str(cell)) for cell in row])


def checksum_query(query):
    """`SELECT count(*), checksum` over the rows that a plain select-project-join query joins."""
    text = re.sub(r"--[^\n]*", "", query)
    if re.search(r"\b(group\s+by|order\s+by|limit|distinct|union|join|having)\b", text, re.IGNORECASE):
        return []
    match = re.search(r"\bfrom\b(?P<tables>.*?)(?P<where>\bwhere\b.*)?$", text, re.IGNORECASE | re.DOTALL)
    if not match or "(" in match["tables"]:
        return []
    aliases = [table.split()[-1] for table in match["tables"].split(",")]
    terms = [f"CAST({alias}.id AS BIGINT) * {prime}" for alias, prime in zip(aliases, CHECKSUM_PRIMES)]
    checksum = f"CAST(coalesce(sum(({' + '.join(terms)}) % 1000003), 0) AS BIGINT)"
    return [f"SELECT count(*) AS joined, {checksum} AS checksum FROM{match['tables']}{match['where'] or ''}"]


if __name__ == "__main__":
    sys.exit(main())
