"""Experiments of several queries: history, batches."""

import contextlib
import threading

from update import result_sets
from update.systems import Measured

from . import tables, ways
from .conditions import GRADES, SETS

SETTING = "filter_history"


def history(run):
    """The paper's Fig. 4e: a query after another one whose condition it shares not at all, by half, as one that it
    implies, or wholly. The first one runs twice, as `on` keeps what comes a second time."""
    def measure(way, system, grade):
        table = tables.particles(run, system, run.place.topology.devices)
        first, second = (f"SELECT x, y, z FROM {table} WHERE {condition}" for condition in run.fresh.pair(grade))
        with system.connect(way.settings) as session:
            if way.name not in run.warm:
                result_sets.statement(session, way, f"SELECT x, y, z FROM {table} WHERE {run.fresh.pair(grade)[1]}")
                run.warm.add(way.name)
            times = [result_sets.statement(session, way, first)["seconds"] for _ in range(2)]
            found = result_sets.statement(session, way, second)
        return found | {"first_seconds": times[0], "again_seconds": times[1],
                        "pair_seconds": times[0] + found["seconds"]}

    for grade in GRADES:
        run.rounds("history", {"second condition": grade}, run.supported(ways.HISTORY, SETTING),
                   lambda way, system, grade=grade: measure(way, system, grade))


def batches(run):
    """Fig. 4d: four queries that share columns or not, and lie on the same nodes or not: one by one, concurrently in
    four sessions, and as a batch."""
    topology = run.place.topology

    def measure(way, system, kind):
        halves = [tables.particles(run, system, names) for names in topology.nodes]
        whole = tables.particles(run, system, topology.devices)
        queries = [f"SELECT {output} FROM {table} WHERE {condition}"
                   for table, output, condition in run.fresh.batch(kind, whole, halves)]
        with contextlib.ExitStack() as stack:
            sessions = [stack.enter_context(system.connect(way.settings))
                        for _ in (queries if way.name == ways.TOGETHER else [0])]
            with Measured(system) as measured:
                rows = perform(way.name, sessions, queries)
        if len(rows) != len(queries):
            raise AssertionError(f"{way.name}: {len(queries)} queries gave {len(rows)} results")
        return measured.record | {"rows": sum(rows)}

    found = ways.BATCHES
    if not knows_batches(run):
        run.note(f"skipped {ways.BATCH}: this server has no BATCH BEGIN")
        found = [way for way in found if way.name != ways.BATCH]
    for kind in SETS:
        if SETS[kind][1] and len(topology.nodes) < 2:
            run.note(f"skipped {kind}: there is one node")
            continue
        run.rounds("batches", {"set": kind}, found, lambda way, system, kind=kind: measure(way, system, kind))


def perform(name, sessions, queries):
    """Rows of each query, whose rows are fetched and not looked at."""
    if name == ways.IN_TURN:
        return [sessions[0].execute(query).rowcount for query in queries]
    if name == ways.BATCH:
        done = sessions[0].execute("; ".join(["BATCH BEGIN", *queries, "BATCH END"]))
        rows = []
        while True:
            if done.description:
                rows.append(done.rowcount)
            if not done.nextset():
                return rows
    rows, faults = [None] * len(queries), []

    def one(number):
        try:
            rows[number] = sessions[number].execute(queries[number]).rowcount
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=one, args=[number]) for number in range(len(queries))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return rows


def knows_batches(run):
    with run.systems["Cleave"].connect() as session:
        try:
            session.execute("BATCH BEGIN; SELECT 1; BATCH END")
        except run.psycopg.errors.SyntaxError:
            return False
    return True
