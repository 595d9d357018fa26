"""One process with clients: threads, each with a session, that run operations until they are told to stop.

Reads its task as one line of JSON, answers `ready` once all sessions are there, starts at the next line, and ends at
the one after that (or at the end of its input). Then every operation is in a file as four integers: when it ended and
how long it took (both in nanoseconds; the clock is the machine's), its kind, its outcome. An operation that still runs
is finished first. With a rate, operations arrive at that rate whether clients are free or not, and the time that one
waited for a client counts.
"""

import array
import json
import random
import sys
import threading
import time

import psycopg

from .workloads import WORKLOADS, Arrivals

DONE, ABORTED = 0, 1
# Serialisation failure, deadlock, lock not available.
ABORTS = {"40001", "40P01", "55P03"}


class Run:
    """What the threads of this process share."""

    def __init__(self, task):
        self.task, self.workload = task, WORKLOADS[task["workload"]](task)
        self.is_over, self.go = threading.Event(), threading.Event()
        self.connected = threading.Barrier(task["clients"] + 1)
        self.arrivals, self.guard = Arrivals(task.get("rate"), self.is_over), threading.Lock()
        self.fault, self.events = None, array.array("q")

    def client(self, number):
        try:
            self.work(number)
        except BaseException as fault:
            self.fault = self.fault or fault
            self.is_over.set()
            self.connected.abort()

    def work(self, number):
        chance = random.Random(f"{self.task['seed']} {number}")
        events = array.array("q")
        with psycopg.connect(self.task["address"], autocommit=True) as session:
            for name, value in self.task["settings"].items():
                session.execute(f"SET {name} = '{value}'")
            self.connected.wait(60)
            self.go.wait()
            while not self.is_over.is_set():
                begin = self.arrivals.next()
                if begin is None:
                    break
                outcome = DONE
                try:
                    kind = self.workload.perform(session, chance)
                except psycopg.Error as fault:
                    if fault.sqlstate not in ABORTS:
                        raise
                    kind, outcome = 1, ABORTED
                end = time.monotonic_ns()
                events.extend((end, end - begin, kind, outcome))
        with self.guard:
            self.events.extend(events)


def main():
    run = Run(json.loads(sys.stdin.readline()))
    threads = [threading.Thread(target=run.client, args=[number], daemon=True) for number in
               range(run.task["clients"])]
    for thread in threads:
        thread.start()
    try:
        run.connected.wait(60)
    except threading.BrokenBarrierError:
        sys.exit(f"a client cannot connect: {run.fault}")
    print("ready", flush=True)
    sys.stdin.readline()
    run.arrivals.began = time.monotonic_ns()
    run.go.set()
    sys.stdin.readline()
    run.is_over.set()
    for thread in threads:
        thread.join()
    if run.fault:
        sys.exit(f"a client failed: {run.fault!r}")
    with open(run.task["file"], "wb") as file:
        run.events.tofile(file)


if __name__ == "__main__":
    main()
