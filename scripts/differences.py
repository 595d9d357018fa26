#!/usr/bin/env python3
"""Finds where Cleave answers otherwise than PostgreSQL: random statements over small random tables, on both.

    scripts/differences.py                      for two minutes, seed 1
    scripts/differences.py --seconds 3600 --seed 7
    scripts/differences.py --count 500          so many statements
    scripts/differences.py --sql "SELECT 1 + '1'"   this one alone
    scripts/differences.py self-test            checks of the script itself, without servers

Each statement runs on PostgreSQL, and on Cleave with `split` host, h0, ndp and auto. Every third one also runs twice
with `stages` and `result_reuse`: as a query of WITH, unless it has an order, which is written to the device, and found
there. Compared are rows, types and errors. Each difference is shrunk to the smallest statement that still has it;
differences of one shape count as one and are printed with their number. Those of differences/known.py are documented,
with their reasons. The exit code is 1 if any other is a wrong row, a type, an internal error or an answer where
PostgreSQL has an error, or if there are more of the others than --refused for 10,000 statements. `--report FILE` writes
all of them as JSON.

Needs psycopg, which it installs into target/clients, PostgreSQL (`scripts/install_peers.sh postgresql`), and a build of
Cleave (CLEAVE_BINARY).
"""

import argparse
import json
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

from differences import known, outcomes, reports, self_test, tables
from differences.grammar import Grammar
from differences.systems import System, running
from differences.trees import node, shrunk

SPLITS = ["host", "h0", "ndp", "auto"]
# Of so many statements one runs with these too, so often: what is held is used again.
REUSED_EACH, REUSED_TIMES = 3, 2
REUSED = ["stages = 'always'", "result_reuse = on", "look_up_rows = 0"]
ACTIVITY = "SELECT what, count FROM cleave.activity WHERE what IN ('stages', 'reused stages', 'reused results')"
# What a split says that cannot run a statement.
CANNOT = re.compile(r"split|ndp|fragment", re.IGNORECASE)
# A statement that ends in an order of all its columns, by their places.
ORDERED = re.compile(r"ORDER BY [0-9][0-9, ACDEFILNRSTUG]*( (LIMIT|OFFSET|FETCH) ((?!ORDER BY).)*)?$")
# Kinds that fail a run, unless they are known.
WORST = {"crash", "value", "order", "accepted", "type"}


def main():
    options = arguments()
    if options.action == "self-test":
        sys.exit(self_test.run())
    prepared = reports.prepared()
    if prepared is None:
        return
    psycopg, binary = prepared
    with running([binary]) as (peer, own):
        expected = System(psycopg, "PostgreSQL", peer)
        found = [System(psycopg, split, own, [f"split = '{split}'"]) for split in SPLITS]
        reused = System(psycopg, "auto, reused", own, REUSED)
        for sql in tables.statements(random.Random(options.seed)):
            for system in (expected, found[0]):
                system.execute(sql)
        sys.exit(Run(expected, (found, reused), options).all())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", choices=["self-test"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--count", type=int, help="statements, in place of a time")
    parser.add_argument("--sql", help="this statement alone")
    parser.add_argument("--report", type=Path, help="write the differences to this file")
    parser.add_argument("--refused", type=float, default=1e9,
                        help="statements refused, or with another error, that are allowed in 10,000")
    parser.add_argument("--shrink", type=int, default=120, help="questions for each statement that is shrunk")
    return parser.parse_args()


class Run:
    """The statements of a run, and what came of them."""

    def __init__(self, expected, asked, options):
        self.expected, self.options = expected, options
        self.found, self.reused = asked
        self.count = 0
        # By kind and shape: a statement, its answers, how often.
        self.differences = {}
        self.numbers = Counter()

    def all(self):
        if self.options.sql:
            difference, split = self.compared(self.options.sql)
            print(f"{split}: {difference.kind}\n  PostgreSQL: {difference.expected}\n  Cleave:     {difference.found}"
                  if difference else "no difference")
            return int(difference is not None)
        chance = random.Random(self.options.seed)
        grammar = Grammar(chance)
        end = time.monotonic() + self.options.seconds
        while self.count < self.options.count if self.options.count else time.monotonic() < end:
            self.count += 1
            self.one(grammar.statement())
        return self.report()

    def one(self, tree):
        difference, _ = self.compared(str(tree))
        if difference is None:
            return
        self.numbers[difference.kind] += 1
        is_known = known.reason(difference.kind, str(tree), difference.expected, difference.found) is not None

        def is_same(variant):
            other, _ = self.compared(str(variant))
            return other is not None and other.codes() == difference.codes() and (
                known.reason(other.kind, str(variant), other.expected, other.found) is None)

        small = tree if is_known else shrunk(tree, is_same, self.options.shrink)
        final, split = self.compared(str(small))
        # A difference that comes and goes is one as well.
        final = final or difference
        reason = known.reason(final.kind, str(small), final.expected, final.found)
        key = (final.kind, reason or shape(str(small), final))
        entry = self.differences.setdefault(key, {
            "kind": final.kind, "sql": str(small), "split": split, "postgresql": final.expected, "cleave": final.found,
            "known": reason, "count": 0, "number": self.count,
        })
        entry["count"] += 1
        if len(str(small)) < len(entry["sql"]):
            entry.update(sql=str(small), postgresql=final.expected, cleave=final.found)

    def compared(self, sql):
        """The first difference of any split, and which."""
        is_ordered = ORDERED.search(sql) is not None
        expected = self.expected.answer(sql)
        is_reused = self.options.sql or self.count % REUSED_EACH == 0
        asked = [(system, sql) for system in self.found]
        asked += [(self.reused, sql if is_ordered else staged(sql))] * (REUSED_TIMES if is_reused else 0)
        for system, own in asked:
            found = system.answer(own)
            if found.is_error and system.name in ("h0", "ndp") and CANNOT.search(found.message):
                continue
            difference = outcomes.difference(expected, found, is_ordered)
            if difference is not None:
                return difference, system.name
        return None, None

    def report(self):
        found = reports.in_order(self.differences)
        for entry in found:
            print(f"\n{entry['count']} x {entry['kind']} (split {entry['split']}, statement {entry['number']})"
                  + (f": known, {entry['known']}" if entry["known"] else ""))
            print(f"  {entry['sql']}\n  PostgreSQL: {entry['postgresql']}\n  Cleave:     {entry['cleave']}")
        unknown = reports.unknown(found)
        each = 10_000 / max(self.count, 1)
        print(f"\nOf {self.count // REUSED_EACH} statements:", dict(self.reused.answer(ACTIVITY).rows))
        print(f"{self.count} statements, seed {self.options.seed}. For 10,000 statements, without those known:")
        for kind in outcomes.KINDS:
            print(f"  {kind:9} {unknown[kind] * each:8.1f}   with them {self.numbers[kind] * each:8.1f}")
        if self.options.report:
            self.options.report.write_text(json.dumps({"count": self.count, "differences": found}, indent=1))
        return reports.exit_code(unknown, self.count, WORST, self.options.refused)


def staged(sql):
    """The same rows by a query of WITH, which becomes a stage: in no order."""
    return f"WITH staged AS MATERIALIZED ({sql}) SELECT * FROM staged"


def shape(sql, difference):
    """What statements that differ for one reason are taken to have in common."""
    sql = re.sub(r"'[^']*'", "'…'", sql)
    sql = re.sub(r"\bq\d+\b", "q", sql)
    sql = re.sub(r"\b\d+\b", "0", sql)
    if difference.kind in ("refused", "accepted", "code", "crash"):
        message = difference.expected if difference.kind == "accepted" else difference.found
        sql = re.sub(r"\d+", "0", re.sub(r'"[^"]*"|\'[^\']*\'', "…", message))[:90]
    return sql


if __name__ == "__main__":
    main()
