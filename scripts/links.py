#!/usr/bin/env python3
"""Cuts, stalls or loses a link with its device amid every kind of statement, and checks what is there afterwards.

    scripts/links.py [--rounds N] [--seed S]      `cleave serve`, a device process over TLS, and a proxy between them
    scripts/links.py --full …                     full disks, in memory, instead of failing links; needs the right to
                                                  mount
    scripts/links.py self-test                    a few rounds, of both if it may mount, as `.ci/run` does it

The proxy counts the messages of each direction (TLS records). Each round runs one statement, or one block, over tables
on the device (`r_…`) and lets the link fail at one of its messages: cut for a while, cut once, silent, or its device
killed. Now and then the host is killed at the same time. Every second round update fragments on the device change rows.
Acknowledged statements are then applied, row by row, to tables of the same shape on the host (`h_…`). Both must be the
same, read on either side, as soon as the link is back: an error means that nothing happened, and each statement ends in
time. Ends with 1 on any violation. Needs openssl, and psycopg, which it installs into target/clients.
"""

import argparse
import errno
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import servers

# How long a statement may take, and the link to be used again.
STATEMENT_SECONDS, RETURN_SECONDS = 90, 60
TABLES = """
CREATE SEQUENCE {p}number;
CREATE TABLE {p}far (id int PRIMARY KEY, v bigint NOT NULL CHECK (v > -1000000), note text) WITH (devices = ({far}));
CREATE INDEX {p}far_v ON {p}far (v);
CREATE TABLE {p}both (id int PRIMARY KEY, v bigint, note text) WITH (devices = ({both}), tablets = 4, tablet_by = hash
(id)); CREATE UNIQUE INDEX {p}both_v ON {p}both (v); CREATE TABLE {p}near (id int PRIMARY KEY, far_id int REFERENCES
{p}far ON DELETE CASCADE, both_id int REFERENCES {p}both ON DELETE SET NULL)
    WITH (devices = (embedded));
CREATE INDEX {p}near_far ON {p}near (far_id);
CREATE TABLE {p}child (id int PRIMARY KEY, near_id int REFERENCES {p}near ON DELETE CASCADE, far_id int REFERENCES
{p}far ON DELETE CASCADE)
    WITH (devices = ({far}));
INSERT INTO {p}far SELECT i, i * 3 % 1000, 'note ' || i % 17 FROM generate_series(1, 2000) AS g (i);
INSERT INTO {p}both SELECT i, i, 'both ' || i % 13 FROM generate_series(1, 2000) AS g (i);
INSERT INTO {p}near SELECT i, i, 2 * i FROM generate_series(1, 1000) AS g (i);
INSERT INTO {p}child SELECT i, 2 * i, i FROM generate_series(1, 500) AS g (i);
"""
NAMES = ["far", "both", "near", "child"]


class Proxy:
    """Forwards messages between the host and the device, one by one."""

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.guard = threading.Condition()
        self.pairs = []
        self.counts = {"up": 0, "down": 0}
        self.is_open, self.is_silent = True, False
        # What is done at which message of which direction, and whether it is being done.
        self.trap, self.is_acting = None, False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            one, _ = self.listener.accept()
            try:
                assert self.is_open
                other = socket.create_connection(("127.0.0.1", self.target), 5)
                other.settimeout(None)
            except (OSError, AssertionError):
                reset(one)
                continue
            for stream in (one, other):
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.guard:
                self.pairs.append((one, other))
            for source, sink, way in ((one, other, "up"), (other, one, "down")):
                threading.Thread(target=self.pump, args=(source, sink, way, (one, other)), daemon=True).start()

    def pump(self, source, sink, way, pair):
        try:
            while True:
                head = receive(source, 5)
                record = head + receive(source, struct.unpack("!H", head[3:])[0])
                if not self.passes(way):
                    raise OSError("cut")
                sink.sendall(record)
        except OSError:
            for stream in pair:
                reset(stream)
            with self.guard:
                self.pairs = [other for other in self.pairs if other is not pair]

    def passes(self, way):
        """Counts a message, fires the armed action at its number, and waits if the link is silent."""
        with self.guard:
            self.counts[way] += 1
            trap = self.trap
            is_due = trap and trap[0] == way and self.counts[way] > trap[1]
            if is_due:
                self.trap, self.is_acting = None, True
        if is_due:
            try:
                does_pass = trap[2]()
            finally:
                with self.guard:
                    self.is_acting = False
                    self.guard.notify_all()
            if not does_pass:
                return False
        with self.guard:
            while self.is_silent:
                self.guard.wait()
            return True

    def arm(self, way, number, action):
        """Calls `action` at the message with this number from now on; it returns whether the message passes."""
        with self.guard:
            self.trap = (way, self.counts[way] + number, action)

    def disarm(self):
        """Whether the action was called; it is over."""
        with self.guard:
            was, self.trap = self.trap, None
            # The statement may not need the answer, and end before a device is dead.
            while self.is_acting:
                self.guard.wait()
            return was is None

    def cut(self):
        with self.guard:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for stream in pair:
                reset(stream)

    def hush(self, is_silent):
        with self.guard:
            self.is_silent = is_silent
            self.guard.notify_all()


def receive(stream, count):
    data = b""
    while len(data) < count:
        part = stream.recv(count - len(data))
        if not part:
            raise OSError("closed")
        data += part
    return data


def reset(stream):
    try:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Wakes whoever reads from it.
        stream.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    stream.close()


class World:
    """A host and a device, each a process that can be killed."""

    def __init__(self, psycopg, binary, folder, dice, modes):
        self.psycopg, self.binary, self.folder, self.dice, self.modes = psycopg, binary, folder, dice, modes
        self.certificate = folder / "device.crt"
        servers.output(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                        folder / "device.key",
                        "-out", self.certificate])
        (folder / "token").write_text("a-token-that-nobody-guesses-0123456789")
        (folder / "token").chmod(0o600)
        self.device_port = servers.free_port()
        self.device = None
        self.start_device()
        self.proxy = Proxy(self.device_port)
        self.database = folder / "host" / "disk"
        servers.output([binary, "sql", "--create", "--db", self.database, "-c", "SELECT 1"])
        servers.output([binary, "device", "--db", self.database, "add", "nas", "--address",
                        f"127.0.0.1:{self.proxy.port}",
                        "--token-file", folder / "token", "--ca", self.certificate])
        self.host, self.port, self.connection = None, None, None
        self.start_host()

    def start_device(self):
        ready = self.folder / "device.port"
        ready.unlink(missing_ok=True)
        command = [self.binary, "device-process", "--media", self.folder / "nas" / "disk" / "media", "--listen",
                   f"127.0.0.1:{self.device_port}",
                   "--token-file", self.folder / "token", "--tls-cert", self.certificate, "--tls-key",
                   self.folder / "device.key",
                   "--port-file", ready]
        with (self.folder / "device.log").open("a") as log:
            self.device = subprocess.Popen([str(part) for part in command], stderr=log)
        wait_until(lambda: ready.exists() and ready.read_text().strip(), 60, "the device does not listen")

    def kill_device(self):
        self.device.kill()
        self.device.wait()

    def start_host(self):
        self.host, self.port = servers.serve(self.binary, self.database)
        self.connection = self.connect()

    def kill_host(self):
        self.host.kill()
        self.host.wait()
        self.connection = None

    def connect(self):
        address = f"host=127.0.0.1 port={self.port} user=ada dbname=disk connect_timeout=20"
        connection = self.psycopg.connect(address, autocommit=True)
        connection.execute(f"SET statement_timeout = {STATEMENT_SECONDS * 1000}")
        return connection

    def connection_now(self):
        if self.connection is None or self.connection.closed:
            self.connection = self.connect()
        return self.connection

    def fill(self, mode, room):
        """Leaves `room` bytes on a side's file system."""
        for side in (["host", "nas"] if mode == "full both" else [mode.split()[1]]):
            filler = self.folder / side / "disk" / "filler"
            with filler.open("wb") as file:
                while (free := os.statvfs(filler).f_bavail * os.statvfs(filler).f_frsize) > room:
                    try:
                        os.posix_fallocate(file.fileno(), 0, free - room)
                        break
                    except OSError as error:
                        # The side has taken some of it meanwhile.
                        if error.errno != errno.ENOSPC:
                            raise
                        file.truncate(0)

    def mend(self):
        for side in ("host", "nas"):
            (self.folder / side / "disk" / "filler").unlink(missing_ok=True)
        if self.device.poll() is not None:
            self.start_device()
        self.proxy.is_open = True
        self.proxy.hush(False)
        if self.host.poll() is not None:
            self.start_host()


def wait_until(check, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(what() if callable(what) else what)


def work(dice, fresh):
    """A statement or a block of them, with `{p}` before each name of a table."""
    id, some = dice.randrange(1, 2000), dice.randrange(7)
    new = lambda count=1: fresh(count)
    numbers = lambda count: range((first := new(count)), first + count)
    table = dice.choice(["far", "both"])
    rows = lambda count: "INSERT INTO {p}%s SELECT i, i, 'new ' || i %% 10 FROM generate_series(%d, %d) AS g (i)" % (
        table, (first := new(count)), first + count - 1)
    kinds = [
        lambda: [f"INSERT INTO {{p}}{table} VALUES ({(n := new())}, {n}, 'one')"],
        lambda: [f"UPDATE {{p}}far SET v = v + 1, note = 'by key' WHERE id = {id}"],
        lambda: [f"UPDATE {{p}}both SET note = 'by key' WHERE id IN ({id}, {id + 1}, {id + 2})"],
        lambda: [f"UPDATE {{p}}{table} SET note = note || '.' WHERE id % 7 = {some}"],
        lambda: [f"UPDATE {{p}}far SET v = f.v + b.v % 3 FROM {{p}}both AS b, {{p}}far AS f WHERE {{p}}far.id = b.id "
                 f"AND f.id = b.id AND b.id % 90 = {id % 90}"],
        lambda: [f"UPDATE {{p}}{table} SET note = 'bulk {some}' WHERE id % 3 = {some % 3}"],
        lambda: [f"UPDATE {{p}}{table} SET note = f.note || f.v FROM {{p}}far AS f WHERE f.id = {{p}}{table}.id AND "
                 f"f.v % 7 = {some}"],
        lambda: ["BEGIN", f"UPDATE {{p}}both SET note = 'all'", f"INSERT INTO {{p}}both VALUES ({(n := new())}, {n}, "
            f"'in the block')", "SAVEPOINT s", f"DELETE FROM {{p}}both WHERE id % 5 = {some % 5}",
                 "ROLLBACK TO s", f"UPDATE {{p}}far SET note = 'some' WHERE id % 4 = {some % 4}",
                 f"DELETE FROM {{p}}child WHERE id % 11 = {some}", "COMMIT"],
        lambda: [f"DELETE FROM {{p}}far WHERE id = {id}"],
        lambda: [f"DELETE FROM {{p}}{table} WHERE id % 97 = {id % 97}"],
        lambda: [f"DELETE FROM {{p}}near USING {{p}}far AS f WHERE far_id = f.id AND f.v = {id}"],
        lambda: [rows(dice.choice([5, 200, 3000, 20000]))],
        lambda: [f"INSERT INTO {{p}}both VALUES ({id}, {(n := new())}, 'a'), ({n}, {n}, 'b') ON CONFLICT (id) DO "
                 f"UPDATE SET note = excluded.note || {{p}}both.note"],
        lambda: ["BEGIN", f"INSERT INTO {{p}}far VALUES ({(n := new())}, 1, 'in a block')", "SAVEPOINT s", f"DELETE "
            f"FROM {{p}}far WHERE id % 9 = {some}",
                 "ROLLBACK TO s", "CREATE TEMP TABLE own (id int PRIMARY KEY, a int)", f"INSERT INTO own SELECT i, i "
                     f"% 7 FROM generate_series({n}, {n + 20}) AS g (i)",
                 f"INSERT INTO {{p}}near SELECT id, {n}, NULL FROM own WHERE a > 1", f"UPDATE {{p}}both SET note = "
                     f"'block' WHERE id < {some * 20}",
                 "DROP TABLE own", f"SELECT count(*) FROM {{p}}far WHERE v = {id}", "COMMIT"] if new(30) else [],
        lambda: ["BEGIN", f"SELECT v FROM {{p}}far WHERE id = {id} FOR UPDATE", f"UPDATE {{p}}far SET v = v + 5 "
            f"WHERE id = {id}",
                 f"UPDATE {{p}}both SET note = 'a', v = -v WHERE id = {id}", "COMMIT"],
        lambda: ["BEGIN", rows(50), f"CREATE INDEX {{p}}extra ON {{p}}{table} (note)", f"DELETE FROM {{p}}{table} "
            f"WHERE id = {id}",
                 f"DROP INDEX {{p}}extra", "COMMIT"],
        lambda: [f"CREATE INDEX {{p}}more ON {{p}}{table} (note, id)", "DROP INDEX {p}more"],
        lambda: [f"ALTER TABLE {{p}}{table} ADD COLUMN c int DEFAULT 7", f"ALTER TABLE {{p}}{table} DROP COLUMN c"],
        lambda: ["BEGIN", "TRUNCATE {p}child", f"INSERT INTO {{p}}child SELECT id, id, far_id FROM {{p}}near WHERE "
                                               f"far_id % 3 = {some % 3}", "COMMIT"],
        lambda: ["TRUNCATE {p}child"],
        lambda: ["CREATE TABLE {p}brief (id int PRIMARY KEY, note text) WITH (devices = (%s))" % dice.choice(["{far}",
            "{both}"]),
                 f"INSERT INTO {{p}}brief SELECT id, note FROM {{p}}{table}", "DROP TABLE {p}brief"],
        lambda: view_of("{p}" + table, dice.choice(["{far}", "{both}"]), some),
        lambda: staged("{p}" + table, some),
        # One message, so that all of it runs again.
        lambda: [f"CLOSE ALL; SET stages = always; DECLARE held CURSOR WITH HOLD FOR SELECT id, note FROM {{p}}{table} "
                 f"ORDER BY id; FETCH 3 FROM held; FETCH ALL FROM held; CLOSE held; RESET stages"],
        lambda: ["CHECKPOINT"],
        lambda: [f"VACUUM {{p}}{table}"],
        lambda: ["VACUUM FULL {p}%s" % table],
        lambda: [f"SELECT count(*), sum(v) FROM {{p}}{table}"],
        lambda: [(f"COPY {{p}}{table} FROM STDIN", [(n, n, "copied") for n in numbers(dice.choice([10, 800, 5000]))])],
        lambda: [f"UPDATE {{p}}far SET id = -id WHERE id = {id}"],
    ]
    return dice.choice(kinds)()


def view_of(table, places, some):
    """A materialized view that is refreshed after a change. Each statement can run again, whatever became of it before;
    the last but one fails with a division by zero if the view has other rows than its query."""
    query = f"SELECT length(note) AS g, count(*) AS n, sum(v) AS s FROM {table} GROUP BY 1"
    return ["DROP MATERIALIZED VIEW IF EXISTS {p}sums",
            f"CREATE MATERIALIZED VIEW IF NOT EXISTS {{p}}sums WITH (devices = ({places})) AS {query}",
            f"UPDATE {table} SET note = note || '.' WHERE id % 7 = {some}", "REFRESH MATERIALIZED VIEW {p}sums",
            f"SELECT 1 / ((SELECT count(*) FROM (SELECT * FROM {{p}}sums EXCEPT {query}) AS x) = 0 "
            f"AND (SELECT sum(n) FROM {{p}}sums) = (SELECT count(*) FROM {table}))::int",
            "DROP MATERIALIZED VIEW IF EXISTS {p}sums"]


def staged(table, some):
    """A stage that is held, and used again before and after a change of its table. It fails with a division by zero if
    its rows are not those of the table."""
    chosen = f"FROM {table} WHERE id % 3 = {some % 3}"
    query = (f"WITH x AS MATERIALIZED (SELECT id, note {chosen}) SELECT 1 / (sum(length(a.note)) = "
             f"(SELECT sum(length(note)) {chosen}))::int FROM x a JOIN x b ON a.id = b.id")
    return ["SET stages = always; SET result_reuse = on", query, query,
            f"UPDATE {table} SET note = note || '.' WHERE id % 7 = {some}", query, "RESET stages; RESET result_reuse"]


class Mover(threading.Thread):
    """Moves money between tables on the host and on the device during all other events: the sum never changes."""

    TABLES = ["bank_far", "bank_both", "bank_near"]

    def __init__(self, world, seed):
        super().__init__(daemon=True)
        self.world, self.dice = world, random.Random(seed)
        self.is_over, self.moves, self.failures, self.fault = False, 0, 0, None
        # The most that the server has counted between two starts.
        self.fragments = 0

    def run(self):
        connection = None
        while not self.is_over and self.fault is None:
            try:
                connection = connection or self.world.connect()
                self.move(connection)
                self.moves += 1
            except self.world.psycopg.OperationalError as error:
                # 58030: the device is away; without a code: the host is.
                if error.sqlstate not in (None, "58030", "53100", "40001", "40P01", "57P01", "57P03"):
                    self.fault = f"{error.sqlstate} {error}"
                self.failures += 1
                if connection is not None:
                    connection.close()
                connection = None
                time.sleep(0.02)
            except Exception as error:
                self.fault = f"{type(error).__name__} {error}"
        if connection is not None:
            connection.close()

    def move(self, connection):
        dice, execute = self.dice, connection.execute
        one, other, amount = dice.choice(self.TABLES), dice.choice(self.TABLES), dice.randrange(100)
        execute("BEGIN")
        if dice.random() < 0.3:
            execute("SAVEPOINT s")
            execute(f"UPDATE {one} SET money = money + 1000 WHERE id < %s", [dice.randrange(50)])
            execute("ROLLBACK TO s")
        if dice.random() < 0.3:
            execute("SET LOCAL update_placement = device")
            execute(f"UPDATE {one} SET money = money - {amount}")
            execute(f"UPDATE {other} SET money = money + {amount}")
            found = execute(FRAGMENTS).fetchone()[0]
            self.fragments = max(self.fragments, found)
        else:
            execute(f"UPDATE {one} SET money = money - %s WHERE id = %s", [amount, dice.randrange(50)])
            execute(f"UPDATE {other} SET money = money + %s WHERE id = %s", [amount, dice.randrange(50)])
        execute(dice.choice(["COMMIT"] * 4 + ["ROLLBACK"]))
        if dice.random() < 0.1:
            split = dice.choice(["host", "h0"])
            sums = " + ".join(f"(SELECT sum(money) FROM {name})" for name in self.TABLES)
            found = execute(f"SELECT /*+ split({split}) */ {sums}").fetchone()
            assert found == (150 * 1000,), f"the money is {found}"


class Round:
    """One block, the failure in it, and the comparison."""

    def __init__(self, world, next_id):
        self.world, self.next_id, self.dice = world, next_id, world.dice
        self.placement = self.dice.choice(["device", "host"])
        self.locking = self.dice.choice(["shared", "optimistic", "table"])

    def fresh(self, count):
        first = self.next_id
        self.next_id += count
        return first

    def run(self, connection, statements, places):
        placement = self.placement if places is FAR else "host"
        connection.execute(f"SET update_placement = {placement}; SET update_locking = {self.locking}")
        for statement in statements:
            if isinstance(statement, tuple):
                with connection.cursor() as cursor, cursor.copy(statement[0].format(**places)) as copy:
                    for row in statement[1]:
                        copy.write_row(row)
            else:
                connection.execute(statement.format(**places))

    def play(self, number):
        world, dice = self.world, self.dice
        statements = work(dice, self.fresh)
        way, mode = dice.choice(["up", "down"]), dice.choice(world.modes)
        at = min(int(dice.expovariate(1 / 4)), 60)
        shown = "; ".join(s if isinstance(s, str) else s[0] for s in statements)
        print(f"{number}: {mode} at message {at} {way}: {shown} [{self.placement}, {self.locking}]", flush=True)
        if mode.startswith("full"):
            room = dice.choice([0, 1, 3, 8, 20, 50, 120, 300, 700, 1500]) << 12
            print(f"    room for {room} bytes", flush=True)
            world.fill(mode, room)
        else:
            world.proxy.arm(way, at, lambda: self.spring(mode))
        before = time.monotonic()
        error, done = self.attempt(statements)
        if error is None and dice.random() < 0.5:
            # What was committed becomes pages; whether or not that goes well, it was committed.
            late, _ = self.attempt([f"SELECT count(*) FROM {{p}}{dice.choice(NAMES)} WHERE id > -1"])
            error_of_look = late
        else:
            error_of_look = None
        seconds = time.monotonic() - before
        was_hit = world.proxy.disarm()
        if was_hit and mode == "host":
            world.host.wait()
        for what in (error, error_of_look):
            if what is not None:
                print(f"    {what.sqlstate} in {seconds:.1f} s: {str(what).splitlines()[0]}", flush=True)
                # A host that was to be killed, and was not reached, refuses as any other does.
                is_fault = (mode == "host" and was_hit) or what.sqlstate in ("58030", "53100")
                is_expected = what.sqlstate in ("23505", "23503")
                if is_fault:
                    is_expected = was_hit if what.sqlstate != "53100" else mode.startswith("full")
                assert is_expected, f"{what.sqlstate} {what}"
        if not (error or error_of_look):
            print(f"    done in {seconds:.1f} s{', hit' if was_hit else ''}", flush=True)
        assert seconds < STATEMENT_SECONDS, f"it takes {seconds:.0f} s"
        # An answer that never came says nothing of what was about to be over.
        is_unknown = error is not None and mode == "host" and was_hit
        if mode.startswith("full"):
            self.meanwhile_full()
        elif mode != "host" and dice.random() < 0.6:
            self.meanwhile()
        if mode != "host" and dice.random() < (0.5 if mode.startswith("full") else 0.2):
            print("    the host is killed", flush=True)
            world.kill_host()
            if dice.random() < 0.5:
                # Opens while the device is away, or the disk is full.
                world.start_host()
                if mode.startswith("full"):
                    self.meanwhile_full()
        world.mend()
        is_block = statements[0] == "BEGIN"
        if error is None or not is_block:
            self.run(world.connection_now(), statements[:done], HOME)
        unsure = [] if error is None else statements if is_block else statements[done:done + 1]
        was_there = self.compare(unsure if is_unknown else [])
        if error is not None and not is_block and not (error.sqlstate or "").startswith("23"):
            # The rest, now that nothing is in its way.
            rest, codes = statements[done + was_there:], []
            for places in (FAR, HOME):
                try:
                    self.run(world.connection, rest, places)
                    codes.append(None)
                except world.psycopg.IntegrityError as error:
                    codes.append(error.sqlstate)
            assert codes[0] == codes[1], f"the rest gives {codes}"
            self.compare([])

    def spring(self, mode):
        world = self.world
        if mode == "host":
            world.host.send_signal(signal.SIGKILL)
            return False
        if mode == "silent":
            world.proxy.hush(True)
            # Long enough to be noticed, and ended by a cut.
            threading.Timer(self.dice.choice([0.5, 2]), lambda: (world.proxy.cut(), world.proxy.hush(False))).start()
            return True
        if mode == "kill":
            world.kill_device()
            return False
        world.proxy.is_open = mode == "once"
        if self.dice.random() < 0.3:
            # Later than the message itself, so that it arrives and its answer does not.
            threading.Timer(0.002, world.proxy.cut).start()
            return True
        world.proxy.cut()
        return False

    def attempt(self, statements):
        """The error that statements end with, if any, and how many were done before."""
        world, done = self.world, 0
        try:
            for statement in statements:
                self.run(world.connection, [statement], FAR)
                done += 1
            return None, done
        except world.psycopg.Error as error:
            if world.host.poll() is None and not world.connection.closed:
                try:
                    world.connection.execute("ROLLBACK")
                except world.psycopg.Error as second:
                    # It may be dying.
                    try:
                        world.host.wait(5)
                    except subprocess.TimeoutExpired:
                        raise AssertionError(f"ROLLBACK: {second}") from second
            return error, done

    def meanwhile(self):
        """Everything else goes on while the device is offline."""
        execute = self.world.connection.execute
        id = self.fresh(1)
        for statement in ["INSERT INTO alone VALUES (%d, 'there')", "UPDATE alone SET note = 'still there' WHERE id "
            "= %d", "CHECKPOINT"]:
            execute(statement % id if "%" in statement else statement)
        found = execute("SELECT count(*) FROM alone WHERE note = 'still there' AND id = %s", [id]).fetchone()
        assert found == (1,), f"row {id} at home: {found}"

    def meanwhile_full(self):
        """Stored rows can be read, and statements that free space work."""
        execute = self.world.connection_now().execute
        found = [execute(f"SELECT count(*) FROM {p}_{name} WHERE id > -100000000").fetchone() for p in "rh"
                 for name in NAMES]
        print(f"    {found}")
        before = execute("SELECT count(*) FROM alone").fetchone()[0]
        gone = execute("DELETE FROM alone WHERE id = (SELECT min(id) FROM alone) RETURNING id").fetchall()
        assert execute("SELECT count(*) FROM alone").fetchone()[0] == before - len(gone), "a DELETE is not there"

    def compare(self, unsure):
        """Compares all; `unsure` may be there too, and whole: returns whether it is."""
        world = self.world
        execute = world.connection_now().execute

        last = None

        def answers():
            nonlocal last
            try:
                execute("SELECT count(*) FROM r_far, r_both LIMIT 1")
                return True
            except world.psycopg.Error as error:
                assert error.sqlstate == "58030", f"{error.sqlstate} {error}"
                last = error
                return False
        wait_until(answers, RETURN_SECONDS, lambda: f"the link is back, and not used: {last}")
        found, was_there = self.differing(execute), False
        if found and unsure:
            print("    it is there after all", flush=True)
            was_there = True
            self.run(world.connection, unsure, HOME)
            found = self.differing(execute)
        assert not found, f"differing: {found}"
        number = execute("SELECT nextval('r_number')").fetchone()[0]
        assert number > getattr(world, "number", 0), f"number {number} comes again"
        world.number = number
        return was_there

    def differing(self, execute):
        for name in NAMES:
            home = execute(f"SELECT * FROM h_{name} ORDER BY id").fetchall()
            for split in ("host", "h0", "auto"):
                execute(f"SET split = {split}")
                far = execute(f"SELECT * FROM r_{name} ORDER BY id").fetchall()
                if far != home:
                    surplus, missing = sorted(set(far) - set(home)), sorted(set(home) - set(far))
                    return (f"{name} under {split}: {len(far)} rows, not {len(home)}; surplus {surplus[:5]}, missing "
                            f"{missing[:5]}")
            column = {"far": "v", "both": "v", "near": "far_id"}.get(name, "id")
            for row in self.dice.sample(home, min(4, len(home))):
                key = row[1] if column != "id" else row[0]
                if key is None:
                    continue
                both = [sorted(execute(f"SELECT * FROM {p}_{name} WHERE {column} = {key}").fetchall(), key=str)
                        for p in "rh"]
                if both[0] != both[1]:
                    return f"{name} where {column} = {key}: {both}"
        return None


LOST = ["cut", "cut", "once", "once", "silent", "kill", "host"]
FULL = ["full host", "full nas", "full both"]
FAR = {"p": "r_", "far": "nas", "both": "embedded, nas"}
HOME = {"p": "h_", "far": "embedded", "both": "embedded"}
FRAGMENTS = "SELECT count FROM cleave.activity WHERE what = 'update fragments'"


def play(psycopg, options):
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}, {options.rounds} rounds", flush=True)
    folder = Path(tempfile.mkdtemp())
    for side in ("host", "nas"):
        (folder / side / "disk").mkdir(parents=True)
        if options.full:
            servers.output(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", folder / side / "disk"])
    world = World(psycopg, servers.cleave(), folder, random.Random(seed), FULL if options.full else LOST)
    mover = Mover(world, seed)
    try:
        for places in (FAR, HOME):
            world.connection.execute(TABLES.format(**places))
        world.connection.execute("CREATE TABLE alone (id int PRIMARY KEY, note text)")
        for name, places in zip(Mover.TABLES, ["nas", "embedded, nas", "embedded"]):
            tablets = ", tablets = 4, tablet_by = hash (id)" if "," in places else ""
            world.connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, money bigint) WITH (devices = "
                                     f"({places}){tablets})")
            world.connection.execute(f"INSERT INTO {name} SELECT i, 1000 FROM generate_series(0, 49) AS g (i)")
        mover.start()
        next_id = 10000
        for number in range(options.rounds):
            now = Round(world, next_id)
            now.play(number)
            next_id = now.next_id
            assert mover.fault is None, mover.fault
        mover.is_over = True
        mover.join(STATEMENT_SECONDS)
        assert not mover.is_alive(), "a move hangs"
        print(f"    {mover.moves} moves beside it, {mover.failures} failed; {mover.fragments} update fragments")
        assert mover.fragments, "no update fragment has run"
        world.connection.close()
        assert servers.stop(world.host) == 0, "the server does not end well"
        servers.output([world.binary, "check", "--db", world.database])
    except (AssertionError, psycopg.Error) as error:
        print(f"FAILED: {type(error).__name__}: {error}\nfiles: {folder}, seed {seed}", flush=True)
        return False
    finally:
        for process in (world.host, world.device):
            if process.poll() is None:
                process.kill()
                process.wait()
        if options.full:
            for side in ("host", "nas"):
                subprocess.run(["umount", folder / side / "disk"], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    print("    all is well", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="?", choices=["run", "self-test"], default="run")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--full", action="store_true", help="file systems that are full, in memory: needs the right "
        "to mount them")
    options = parser.parse_args()
    psycopg = servers.psycopg()
    if psycopg is None:
        print("SKIPPED: psycopg cannot be installed")
        return
    if options.command == "self-test":
        # The same each time, but for the moments at which a message is on its way.
        options.rounds, options.seed = 12, 12 if options.seed is None else options.seed
        is_well = play(psycopg, options)
        options.full = os.geteuid() == 0
        sys.exit(not (is_well and (not options.full or play(psycopg, options))))
    sys.exit(not play(psycopg, options))


if __name__ == "__main__":
    main()
