#!/usr/bin/env python3
"""Small statements that were never seen before: their time in Cleave and in PostgreSQL, over the wire, in turns.

    scripts/bench_statements.py [--shapes 1000] [--rounds 5] [--beside PROGRAM]
    scripts/bench_statements.py self-test

Kinds: an expression of constants, a look-up by a key that is computed, an aggregate with conditions, and a join of two
tables of 3,000 rows, each with new constants each time; and random statements of the grammar of `differences.py` over
its small tables, each once. Both systems run each statement in turns, in the simple protocol of one connection, and
each begins in half of the rounds. Printed are medians of a statement's time and the ratio of the medians; of the random
statements, about half of which are errors and do not count, the median and the geometric mean of the ratios.

Needs psycopg, which it installs into target/clients, PostgreSQL (`scripts/install_peers.sh postgresql`), and
`cargo build --release` (or CLEAVE_BINARY). Timing mode: unthrottled.
"""

import argparse
import math
import random
import statistics
import sys
import time
from pathlib import Path

import servers
from differences import tables
from differences.grammar import Grammar
from differences.systems import System, running

TABLES = [
    "CREATE TABLE a (id integer PRIMARY KEY, x integer, t text)",
    "CREATE TABLE b (id integer PRIMARY KEY, a integer, v integer)",
    "INSERT INTO a SELECT v, v % 100, 'text ' || v FROM generate_series(1, 3000) s(v)",
    "INSERT INTO b SELECT v, v, v % 7 FROM generate_series(1, 3000) s(v)",
    "ANALYZE",
]
KINDS = {
    "constants": lambda one: f"SELECT {one(10 ** 6)} + {one(100)}",
    "look-up by a computed key": lambda one: f"SELECT * FROM a WHERE id = {one(2990)} + {one(10)}",
    "aggregate": lambda one: f"SELECT count(*), sum(x + {one(100)}) FROM a "
                             f"WHERE x < {one(100)} AND t LIKE '%{one(10)}'",
    "join": lambda one: f"SELECT a.x, count(*) FROM a JOIN b ON a.id = b.a WHERE b.v < {one(7)} AND a.x <> {one(100)} "
                        f"GROUP BY a.x ORDER BY 1 LIMIT {1 + one(50)}",
}
# Statements of each kind in a round, and before the first.
STATEMENTS, WARM = 200, 50


def main():
    options = arguments()
    psycopg = servers.psycopg()
    if psycopg is None:
        sys.exit("psycopg cannot be installed")
    if options.action == "self-test":
        options.shapes, options.rounds, options.statements = 20, 1, 5
    binary = servers.cleave()
    if binary is None:
        sys.exit("there is no build of Cleave: run `cargo build --release`, or set CLEAVE_BINARY")
    programs = {"Cleave": binary, **({"beside": options.beside} if options.beside else {})}
    with running(programs.values()) as addresses:
        systems = {name: System(psycopg, name, address)
                   for name, address in zip(["PostgreSQL", *programs], addresses)}
        for sql in [*TABLES, *tables.statements(random.Random(options.seed))]:
            for system in systems.values():
                system.execute(sql)
        report(options, systems)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", choices=["self-test"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", type=int, default=1000, help="random statements")
    parser.add_argument("--rounds", type=int, default=5, help="of the kinds")
    parser.add_argument("--statements", type=int, default=STATEMENTS, help="of each kind in a round")
    parser.add_argument("--beside", type=Path, help="another build of Cleave")
    return parser.parse_args()


def report(options, systems):
    others = [name for name in systems if name != "PostgreSQL"]
    print("| statement | PostgreSQL ms |", " | ".join(f"{name} ms | times PostgreSQL's" for name in others), "|")
    print("|---|---|" + "---|---|" * len(others))
    chance = random.Random(options.seed)
    for name, kind in KINDS.items():
        line(name, kind_times(systems, lambda kind=kind: kind(chance.randrange), options), others)
    times, answered = shape_times(systems, options)
    line(f"{answered} random statements", times, others)
    for name in others:
        ratios = [ours / theirs for ours, theirs in zip(times[name], times["PostgreSQL"])]
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
        print(f"\n{name}: the random statements take {mean:.2f} times PostgreSQL's time in geometric mean, "
              f"{sum(times[name]) / sum(times['PostgreSQL']):.2f} times in all.")


def line(name, times, others):
    medians = {system: statistics.median(times[system]) for system in times}
    ours = " | ".join(f"{medians[name] * 1e3:.3f} | {medians[name] / medians['PostgreSQL']:.2f}" for name in others)
    print(f"| {name} | {medians['PostgreSQL'] * 1e3:.3f} | {ours} |", flush=True)


def kind_times(systems, statement, options):
    """The seconds of each statement of a kind, by system."""
    times = {name: [] for name in systems}
    for system in systems.values():
        for _ in range(WARM):
            timed(system, statement())
    for number in range(options.rounds):
        order = list(systems)[number % 2::1] + list(systems)[:number % 2]
        for _ in range(options.statements):
            sql = statement()
            for name in order:
                times[name].append(timed(systems[name], sql)[0])
    return times


def shape_times(systems, options):
    """The seconds of each random statement that all systems answer, by system, and how many these are."""
    times = {name: [] for name in systems}
    grammar = Grammar(random.Random(options.seed))
    answered = 0
    for _ in range(options.shapes):
        sql = str(grammar.statement())
        answers = {name: timed(system, sql) for name, system in systems.items()}
        if any(answer.is_error for _, answer in answers.values()):
            continue
        answered += 1
        for name, (seconds, _) in answers.items():
            times[name].append(seconds)
    if answered < options.shapes / 4:
        raise AssertionError(f"only {answered} of {options.shapes} statements have an answer")
    return times, answered


def timed(system, sql):
    begun = time.perf_counter()
    answer = system.answer(sql)
    return time.perf_counter() - begun, answer


if __name__ == "__main__":
    main()
