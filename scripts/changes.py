#!/usr/bin/env python3
"""Finds where Cleave changes rows otherwise than PostgreSQL: random transactions over small random tables, on both.

    scripts/changes.py                          for two minutes, seed 1
    scripts/changes.py --seconds 3600 --seed 7
    scripts/changes.py --count 500              so many transactions
    scripts/changes.py --ways host,shared       some ways alone

Each transaction runs on PostgreSQL, and on Cleave in several ways: rows changed on the host, and by update fragments
with each way to lock rows. Compared are counts of rows, rows of RETURNING and of queries, errors, and after each
transaction all rows of all tables. A difference is shrunk to the fewest and smallest statements that still have it.
Those of differences/known.py are documented, with their reasons. The exit code is 1 if any other is a wrong row, an
internal error or a change where PostgreSQL has an error, or if there are more of the others than --refused for 10,000
transactions.

Needs what `scripts/differences.py` needs.
"""

import argparse
import random
import re
import sys
import time
from dataclasses import replace

from differences import known, outcomes, reports, tables
from differences.changes import ALL_TABLES, CHILDREN, Changes
from differences.systems import System, running
from differences.trees import shrunk, smaller

# How Cleave changes rows. Without a shipped delta, fragments read what was committed just now from pages.
WAYS = {
    "host": ["update_placement = 'host'", "split = 'host'"],
    "shared": ["update_placement = 'device'", "update_locking = 'shared'", "shipped_delta_bytes = 0",
               "stages = 'always'"],
    "optimistic": ["update_placement = 'device'", "update_locking = 'optimistic'", "result_reuse = on",
                   "look_up_rows = 0"],
    "table": ["update_placement = 'device'", "update_locking = 'table'", "shipped_delta_bytes = 0", "split = 'h0'"],
    "keys": ["update_placement = 'keys'", "result_reuse = on", "stages = 'always'"],
    "tablets": ["update_placement = 'device'", "default_tablets = 3", "shipped_delta_bytes = 0"],
}
# Transactions after which the tables are made anew.
EACH = 12
COUNT = "SELECT count FROM cleave.activity WHERE what = '{}'"
# Kinds that fail a run, unless they are known.
WORST = {"crash", "value", "accepted"}


def main():
    options = arguments()
    prepared = reports.prepared()
    if prepared is None:
        return
    psycopg, binary = prepared
    ways = options.ways.split(",")
    with running([binary] * len(ways)) as (peer, *own):
        expected = System(psycopg, "PostgreSQL", peer)
        found = [System(psycopg, way, address, WAYS[way]) for way, address in zip(ways, own)]
        sys.exit(Run(expected, found, options).all())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--count", type=int, help="transactions, in place of a time")
    parser.add_argument("--ways", default=",".join(WAYS), help="of " + ", ".join(WAYS))
    parser.add_argument("--refused", type=float, default=1e9,
                        help="transactions refused, or with another error, that are allowed in 10,000")
    parser.add_argument("--shrink", type=int, default=60, help="questions for each transaction that is shrunk")
    return parser.parse_args()


class Run:
    """The transactions of a run, and what came of them."""

    def __init__(self, expected, found, options):
        self.expected, self.found, self.options = expected, found, options
        self.count, self.statements, self.errors = 0, 0, 0
        # The tables are filled from copies, by INSERT … SELECT.
        for system in [expected, *found]:
            for sql in [*tables.statements(random.Random(options.seed)), *CHILDREN]:
                system.execute(sql)
            for table in ALL_TABLES:
                system.execute(f"CREATE TABLE of_{table} AS SELECT * FROM {table}")
        # By kind and shape.
        self.differences = {}

    def all(self):
        grammar = Changes(random.Random(self.options.seed))
        end = time.monotonic() + self.options.seconds
        while self.count < self.options.count if self.options.count else time.monotonic() < end:
            if self.count % EACH == 0:
                self.made_anew()
            self.count += 1
            self.one(grammar.transaction())
        return self.report()

    def made_anew(self):
        for system in [self.expected, *self.found]:
            system.answer("ROLLBACK")
            system.execute("TRUNCATE " + ", ".join(ALL_TABLES))
            for table in ALL_TABLES:
                system.execute(f"INSERT INTO {table} SELECT * FROM of_{table}")

    def one(self, transaction):
        difference = self.compared(transaction)
        if difference is None:
            return
        again, small = None, transaction
        if difference[0].kind in WORST and self.reason(transaction, difference) is None:
            # Alone, over tables that nothing has changed before.
            again = self.alone(transaction)
            if again is not None:
                small = self.shrunk(transaction, again)
                difference = self.alone(small) or again
        self.note(small, difference, again is not None)
        self.made_anew()

    def reason(self, transaction, difference):
        """Why this difference stays; None if nobody knows it."""
        found, sql = difference[0], text_of(transaction)
        return known.reason(found.kind, sql, found.expected, found.found)

    def alone(self, transaction):
        self.made_anew()
        return self.compared(transaction)

    def shrunk(self, transaction, difference):
        def is_same(variant):
            other = self.alone(variant)
            return other is not None and other[0].codes() == difference[0].codes() and other[1] == difference[1]

        return shrunk(transaction, is_same, self.options.shrink, variants)

    def note(self, transaction, difference, is_alone):
        (found, way), sql = difference, text_of(transaction)
        reason = self.reason(transaction, difference)
        shape = re.sub(r"\d+", "0", re.sub(r"'[^']*'|\"[^\"]*\"", "…", found.found if found.kind != "value" else sql))
        entry = self.differences.setdefault((found.kind, reason or shape[:100]), {
            "kind": found.kind, "sql": sql, "way": way, "postgresql": found.expected, "cleave": found.found,
            "known": reason, "alone": is_alone, "number": self.count, "count": 0})
        entry["count"] += 1
        if len(sql) < len(entry["sql"]):
            entry.update(sql=sql, postgresql=found.expected, cleave=found.found, way=way, alone=is_alone)

    def compared(self, transaction):
        """The first difference of any way, and which."""
        for statement in transaction.statements:
            sql = str(statement)
            expected = self.expected.changed(sql)
            self.statements += 1
            self.errors += expected.is_error
            for system in self.found:
                difference = outcomes.difference(expected, system.changed(sql), False)
                # Types are compared by `scripts/differences.py`.
                if difference is not None and difference.kind != "type":
                    self.rolled_back()
                    return difference, system.name
        self.rolled_back()
        for table in ALL_TABLES:
            sql = f"WITH w AS MATERIALIZED (SELECT * FROM {table}) SELECT * FROM w"
            expected = self.expected.answer(sql)
            for system in self.found:
                difference = outcomes.difference(expected, system.answer(sql), False)
                if difference is not None and difference.kind != "type":
                    return in_table(table, expected, system.answer(sql)), system.name
        return None

    def rolled_back(self):
        for system in [self.expected, *self.found]:
            system.answer("ROLLBACK")

    def report(self):
        found = reports.in_order(self.differences)
        for entry in found:
            print(f"\n{entry['count']} x {entry['kind']} ({entry['way']}, transaction {entry['number']}"
                  + ("" if entry["alone"] else ", not alone")
                  + (f"): known, {entry['known']}" if entry["known"] else ")"))
            print(f"  {entry['sql']}\n  PostgreSQL: {entry['postgresql']}\n  Cleave:     {entry['cleave']}")
        unknown = reports.unknown(found)
        print(f"\n{self.count} transactions, {self.statements} statements, {self.errors} of which fail, seed "
              f"{self.options.seed}.")
        for what in ["update fragments", "stages", "reused stages", "reused results"]:
            counts = {system.name: system.answer(COUNT.format(what)).rows[0][0] for system in self.found}
            print(f"{what.capitalize()}: {counts}")
        print("For 10,000 transactions, without those known:",
              {kind: round(number * 10_000 / max(self.count, 1), 1) for kind, number in unknown.items()})
        return reports.exit_code(unknown, self.count, WORST, self.options.refused)


def text_of(transaction):
    return "; ".join(str(statement) for statement in transaction.statements)


def variants(transaction):
    """Transactions that are smaller: without one of the statements, then with a smaller one."""
    if len(transaction.statements) > 1:
        for place in range(len(transaction.statements)):
            yield transaction.without(place)
    for place, statement in enumerate(transaction.statements):
        for other in smaller(statement):
            yield transaction.with_other(place, other)


def in_table(table, expected, found):
    """The rows in which a table differs."""
    one, other = (set(outcomes.normal(answer)) for answer in (expected, found))
    only = [replace(answer, rows=tuple(rows)) for answer, rows in ((expected, one - other), (found, other - one))]
    return outcomes.Difference("value", *(f"{table}: {outcomes.shown(answer)}" for answer in only))


if __name__ == "__main__":
    main()
