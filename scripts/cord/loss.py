"""Experiment `loss`: one of the devices is lost while scans and transactions run over mirrored tables.

All tables lie on mirrors of two devices in a ring. Some clients scan the particles, some add up counters, and others
make transactions that count a row up by its key and insert one. A session checkpoints a second after it last did, so
that pages are written to the lost device too. After some seconds the process of a device is killed, or stopped so that
it hangs, and the clients go on. Afterwards every transaction that was acknowledged must be there, once. Then the device
is started again, its mirrors are resynchronised, and all rows are counted once more.

Throughput is counted over 500 ms, every 100 ms. It is back at the end of the first 500 ms since the loss, so 0.5 s
after it at best, in which it is three quarters of the median before or more, as it is in the 500 ms after these: three
of four devices are left.
"""

import contextlib
import random
import statistics
import threading
import time

from update import timelines
from update.traffic import Operation

from . import tables, ways

# Sessions and caches warm up at first.
WARM_UP_SECONDS, SECONDS_BEFORE, SECONDS_AFTER = 1.0, 3.0, 5.0
# What --quick takes.
QUICK = (0.3, 0.7, 1.5)
SLICE, WINDOW, BACK_SHARE = 0.1, 0.5, 0.75
SCANNING, ADDING, CHANGING = 2, 1, 4
COUNTERS = 10_000
CHECKPOINT_EVERY_SECONDS = 1.0
# Those after which a client has to try again: serialisation failure, deadlock.
RETRYABLE = {"40001", "40P01"}
SCANS, TRANSACTIONS, CHECKPOINTS = "scans", "transactions", "checkpoints"
LOSSES = ["killed", "hanging"]
# Of each round and kind, in the notes.
FAULTS_SHOWN = 3


def loss(run):
    """A device is killed, or hangs, while scans and transactions run over mirrors."""
    topology, place = run.place.topology, run.place
    if run.options.engines or len(topology.devices) < 3:
        run.note("skipped: it takes three devices, each a process of its own")
        return
    if place.has_shares:
        place.give_host(False)
    for number in range(run.options.rounds):
        # Each round another device, and each way first once.
        lost = topology.devices[number % len(topology.devices)]
        for way in ways.LOSS if number % 2 == 0 else ways.LOSS[::-1]:
            for how in LOSSES[:1] if run.options.quick else LOSSES:
                for kind, figures in one_loss(run, way, run.systems["Cleave"], lost, how).items():
                    run.add("loss", {"device": how, "clients": kind}, way, number + 1, figures)


def one_loss(run, way, system, lost, how):
    """{kind of clients: the figures of a loss}."""
    table = mirrored(run, system)
    warm_up, before, after = QUICK if run.options.quick else (WARM_UP_SECONDS, SECONDS_BEFORE, SECONDS_AFTER)
    system.say("DELETE FROM entries", "UPDATE counters SET n = 0", "CHECKPOINT")
    with system.connect() as session:
        rows = session.execute(scan(table)).rowcount
    clients = [*(Scanning(system, way, table, rows) for _ in range(SCANNING)),
               *(Adding(system, way) for _ in range(ADDING)),
               *(Changing(system, way, number) for number in range(CHANGING)), Checkpointing(system, way)]
    for client in clients:
        client.adding_up = clients
    try:
        with contextlib.ExitStack() as stack:
            for client in clients:
                stack.callback(client.end)
                client.start()
            time.sleep(warm_up)
            begun = time.monotonic()
            time.sleep(before)
            at = time.monotonic()
            run.place.lose(lost, is_hanging=how == "hanging")
            time.sleep(after)
            over = time.monotonic()
        figures = {kind: figures_of(of_kind(clients, kind), begun, at, over) for kind in (SCANS, TRANSACTIONS)}
        figures[TRANSACTIONS]["failed"] += sum(client.failed for client in of_kind(clients, CHECKPOINTS))
        changing = [client for client in clients if isinstance(client, Changing)]
        figures[TRANSACTIONS]["rows_missing"] = missing(system, changing)
    finally:
        run.place.bring_back(lost)
    for name, in system.say("SELECT name FROM cleave.devices WHERE kind = 'mirror'"):
        system.say(f'ALTER DEVICE "{name}" RESYNC')
    figures[TRANSACTIONS]["rows_missing"] += missing(system, changing)
    with system.connect() as session:
        if (found := session.execute(scan(table)).rowcount) != rows:
            raise AssertionError(f"after the loss of {lost} {table} has {found} rows of {rows}")
    for client in clients:
        for text in client.faults[:FAULTS_SHOWN]:
            run.note(f"{way.name}, {lost} {how}: {text}")
    return figures


def mirrored(run, system):
    """The name of a table of the particles on mirrors, and with it the counters and entries of the transactions."""
    name = "particles_mirrored"
    if not tables.is_there(system, name):
        tables.generate(run, system, "particles")
        devices = spread(run.place.topology.nodes)
        tablets = f"devices = ({', '.join(devices)}), mirrors = 2, tablets = {len(devices)}"
        for table, columns, rows in (
                ("counters", "id bigint PRIMARY KEY, n bigint NOT NULL",
                 f"SELECT i, 0 FROM generate_series(1, {COUNTERS}) AS s (i)"),
                ("entries", "client bigint NOT NULL, number bigint NOT NULL, PRIMARY KEY (client, number)", None),
                # An eighth: a scan ends many times within 500 ms.
                (name, tables.columns("particles"), "SELECT * FROM particles WHERE id % 8 = 0")):
            key = "client" if table == "entries" else "id"
            system.say(f"CREATE TABLE {table} ({columns}) WITH ({tablets}, tablet_by = hash ({key}))")
            if rows:
                system.say(f"INSERT INTO {table} {rows}")
            system.say(f"ANALYZE {table}", "CHECKPOINT")
    return name


def spread(nodes):
    """The devices of nodes in turn, so that neighbours are of different nodes where they can be."""
    longest = max(map(len, nodes))
    return [node[place] for place in range(longest) for node in nodes if place < len(node)]


def scan(table):
    return f"SELECT x, y, z FROM {table} WHERE ke > 0.424"


def missing(system, changing):
    """How many acknowledged transactions are not there, or only a part of them, or more than were made."""
    there = {}
    for client, number in system.say("SELECT client, number FROM entries"):
        there.setdefault(client, set()).add(number)
    counted = system.say("SELECT sum(n)::bigint FROM counters")[0][0]
    return (sum(len(client.committed - there.get(client.number, set())) for client in changing)
            + sum(len(there.get(client.number, set()) - client.committed - client.uncertain) for client in changing)
            + abs(counted - sum(map(len, there.values()))))


def of_kind(clients, kind):
    return [client for client in clients if client.kind == kind]


def figures_of(clients, begun, at, over):
    """The figures of the clients of one kind, of which a device was lost at a time."""
    operations = sorted(one for client in clients for one in client.operations)
    base = statistics.median(windows(operations, begun, at) or [0])
    after = windows(operations, at, over)
    back = back_seconds(after, base)
    figures = {"seconds": over - at if back is None else back, "is_back": float(back is not None),
               "per_second_before": base, "kept": statistics.median(after) / base if base and after else None,
               "longest_s": longest_pause(operations, at, over),
               "failed": sum(client.failed for client in clients), "retried": sum(client.retried for client in clients),
               "slices": timelines.slices(operations, begun, over, SLICE), "marks": {"loss": at - begun}}
    return {name: value for name, value in figures.items() if value is not None}


def windows(operations, begin, end):
    """The rates over each 500 ms that lie within a time, every 100 ms."""
    counts = [reads + updates for _, reads, updates, _ in timelines.slices(operations, begin, end, SLICE)]
    each = round(WINDOW / SLICE)
    return [sum(counts[place:place + each]) / each for place in range(len(counts) - each + 1)]


def back_seconds(after, base):
    """Seconds until the end of the first window since the loss that has its share of the rate before, as the next one
    without common time has too; None: never."""
    each = round(WINDOW / SLICE)
    return next((WINDOW + place * SLICE for place in range(len(after) - each)
                 if min(after[place], after[place + each]) >= BACK_SHARE * base), None)


def longest_pause(operations, begin, end):
    """The longest time without an end of an operation."""
    ends = [begin, *(one.end for one in operations if begin < one.end < end), end]
    return max(later - earlier for earlier, later in zip(ends, ends[1:]))


class Client:
    """A thread with a session that repeats an operation until it is ended, whatever becomes of it."""

    kind = None

    def __init__(self, system, way):
        self.system, self.way = system, way
        self.operations, self.faults, self.failed, self.retried = [], [], 0, 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)

    def start(self):
        self.thread.start()

    def end(self):
        self.is_over.set()
        self.thread.join()

    def work(self):
        session = None
        while not self.is_over.is_set():
            begin = time.monotonic()
            try:
                if session is None or session.closed:
                    session = self.system.connect(self.way.settings)
                self.perform(session)
            except self.system.psycopg.Error as fault:
                self.fault(fault, begin)
            except AssertionError as fault:
                self.fail(str(fault))
            else:
                end = time.monotonic()
                self.operations.append(Operation(end, end - begin, self.kind == TRANSACTIONS, False))
        if session:
            session.close()

    def fault(self, fault, begin):
        if fault.sqlstate in RETRYABLE:
            self.retried += 1
        else:
            self.fail(f"{type(self).__name__.lower()} failed after {time.monotonic() - begin:.2f} s with "
                      f"{fault.sqlstate}: {' '.join(str(fault).split())}")

    def fail(self, text):
        self.failed += 1
        if text not in self.faults:
            self.faults.append(text)
        # The next one may fail at once too.
        self.is_over.wait(SLICE)


class Scanning(Client):
    """Scans a table that nobody changes."""

    kind = SCANS

    def __init__(self, system, way, table, rows):
        super().__init__(system, way)
        self.table, self.rows = table, rows

    def perform(self, session):
        if (found := session.execute(scan(self.table)).rowcount) != self.rows:
            raise AssertionError(f"a scan gave {found} rows of {self.rows}")


class Adding(Client):
    """Adds up the counters, whose sum is never less than what was acknowledged before."""

    kind = SCANS

    def perform(self, session):
        least = sum(len(client.committed) for client in self.adding_up if isinstance(client, Changing))
        count, total = session.execute("SELECT count(*), sum(n)::bigint FROM counters").fetchone()
        if count != COUNTERS or total < least:
            raise AssertionError(f"{count} counters of {COUNTERS} are {total} in all, and {least} were acknowledged")


class Changing(Client):
    """Makes transactions that count up a row and insert one."""

    kind = TRANSACTIONS

    def __init__(self, system, way, number):
        super().__init__(system, way)
        self.number, self.next, self.chance = number, 0, random.Random(number)
        self.committed, self.uncertain = set(), set()

    def perform(self, session):
        number, self.next = self.next, self.next + 1
        try:
            with session.transaction():
                session.execute("UPDATE counters SET n = n + 1 WHERE id = %s", [self.chance.randint(1, COUNTERS)])
                session.execute("INSERT INTO entries VALUES (%s, %s)", [self.number, number])
        except self.system.psycopg.Error:
            if session.closed:
                self.uncertain.add(number)
            raise
        self.committed.add(number)


class Checkpointing(Client):
    """Writes what has changed to the devices, again and again."""

    kind = CHECKPOINTS

    def perform(self, session):
        session.execute("CHECKPOINT")
        self.is_over.wait(CHECKPOINT_EVERY_SECONDS)
