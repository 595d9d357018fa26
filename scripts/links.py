#!/usr/bin/env python3
"""Cuts, stalls or loses a link with its device amid every kind of statement, and checks what is there afterwards.

    scripts/links.py [--rounds N] [--seed S]      `cleave serve`, a device process over TLS, and a proxy between them
    scripts/links.py --layout mirror …            tables on a mirror of two devices
    scripts/links.py --layout four …              tables over four devices of two nodes, with stealing and history
    scripts/links.py --full …                     full disks, in memory, instead of failing links; needs the right to
                                                  mount
    scripts/links.py self-test                    a few rounds, of both if it may mount, as `.ci/run` does it

The proxy counts the messages of each direction (TLS records). Each round runs one statement, or one block, over tables
on the device (`r_…`) and lets the link fail at one of its messages: cut for a while, cut once, silent, or its device
killed. Now and then the host is killed at the same time. Every second round update fragments on the device change rows.
With several devices one link fails, or all do, and may be silent in one direction or slow; while one copy of a mirror
is away, the other one is read, and at the end both are equal.
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
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import servers
from device_links import Node, wait_until

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


class World:
    """A host and devices, in processes that can be killed."""

    def __init__(self, psycopg, binary, folder, dice, modes, layout):
        self.psycopg, self.binary, self.folder, self.dice, self.modes = psycopg, binary, folder, dice, modes
        self.layout = layout
        self.far = {"p": "r_", "far": layout["far"], "both": layout["both"]}
        certificate = folder / "device.crt"
        servers.output(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                        folder / "device.key",
                        "-out", certificate])
        (folder / "token").write_text("a-token-that-nobody-guesses-0123456789")
        (folder / "token").chmod(0o600)
        self.timers = []
        self.nodes = []
        for name, devices in layout["nodes"].items():
            self.nodes.append(Node(binary, folder, name, devices))
        self.database = folder / "host" / "disk"
        servers.output([binary, "sql", "--create", "--db", self.database, "-c", "SELECT 1"])
        # The node and the proxy of each device.
        self.links = {}
        for node in self.nodes:
            for device, proxy in node.proxies.items():
                self.links[device] = (node, proxy)
                servers.output([binary, "device", "--db", self.database, "add", device, "--address",
                                f"127.0.0.1:{proxy.port}",
                                "--token-file", folder / "token", "--ca", certificate])
        self.host, self.port, self.connection = None, None, None
        self.start_host()
        self.connection.execute(layout.get("setup", "SELECT 1"))

    def later(self, seconds, action):
        self.timers.append(threading.Timer(seconds, action))
        self.timers[-1].start()

    def is_mirrored(self):
        return self.layout is LAYOUTS["mirror"]

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
        connection.execute(self.layout.get("settings", "SELECT 1"))
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
        # What is to happen to a link later belongs to the round.
        for timer in self.timers:
            timer.join()
        self.timers.clear()
        for node in self.nodes:
            node.mend()
        if self.host.poll() is not None:
            self.start_host()

    def make_copies_equal(self):
        """Gives the copies of a mirror what they lack, once their links are back."""
        last = None

        def is_done():
            nonlocal last
            try:
                self.connection_now().execute("ALTER DEVICE m RESYNC")
                last = self.connection.execute("SELECT state FROM cleave.devices WHERE name = 'm'").fetchone()
                return last == ("online",)
            except self.psycopg.Error as error:
                assert error.sqlstate == "58030", f"{error.sqlstate} {error}"
                last = error
                return False
        wait_until(is_done, RETURN_SECONDS, lambda: f"the links are back, and the copies differ: {last}")


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
        placement = self.placement if places is self.world.far else "host"
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
        self.hit = list(world.links)
        if len(self.hit) > 1:
            dice.shuffle(self.hit)
            self.hit = self.hit if dice.random() < 0.2 else self.hit[:1]
        if world.is_mirrored():
            world.make_copies_equal()
        at = min(int(dice.expovariate(1 / 4)), 60)
        shown = "; ".join(s if isinstance(s, str) else s[0] for s in statements)
        print(f"{number}: {mode} of {', '.join(self.hit)} at message {at} {way}: {shown} "
              f"[{self.placement}, {self.locking}]", flush=True)
        if mode.startswith("full"):
            room = dice.choice([0, 1, 3, 8, 20, 50, 120, 300, 700, 1500]) << 12
            print(f"    room for {room} bytes", flush=True)
            world.fill(mode, room)
        else:
            world.links[self.hit[0]][1].arm(way, at, lambda: self.spring(mode))
        before = time.monotonic()
        error, done = self.attempt(statements)
        if error is None and dice.random() < 0.5:
            # What was committed becomes pages; whether or not that goes well, it was committed.
            late, _ = self.attempt([f"SELECT count(*) FROM {{p}}{dice.choice(NAMES)} WHERE id > -1"])
            error_of_look = late
        else:
            error_of_look = None
        seconds = time.monotonic() - before
        was_hit = world.links[self.hit[0]][1].disarm()
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
            if world.is_mirrored() and len(self.hit) == 1:
                self.read_the_other_copy()
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
            for places in (world.far, HOME):
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
        links = [world.links[name] for name in self.hit]
        proxies = [proxy for _, proxy in links]
        if mode in ("silent", "one way"):
            for proxy in proxies:
                proxy.hush(("down",) if mode == "one way" else ("up", "down"))
            # Long enough to be noticed, and ended by a cut.
            end = lambda: [(proxy.cut(), proxy.hush(())) for proxy in proxies]
            world.later(self.dice.choice([0.5, 2]), end)
            return True
        if mode == "slow":
            for proxy in proxies:
                proxy.delay = 0.03
            return True
        if mode == "kill":
            for node in {node.name: node for node, _ in links}.values():
                node.kill()
            return False
        for proxy in proxies:
            proxy.is_open = mode == "once"
        cut = lambda: [proxy.cut() for proxy in proxies]
        if self.dice.random() < 0.3:
            # Later than the message itself, so that it arrives and its answer does not.
            world.later(0.002, cut)
            return True
        cut()
        return False

    def attempt(self, statements):
        """The error that statements end with, if any, and how many were done before."""
        world, done = self.world, 0
        try:
            for statement in statements:
                self.run(world.connection, [statement], world.far)
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

    def read_the_other_copy(self):
        """A mirror is read while one copy is away, unless the other one lacks pages."""
        execute, last = self.world.connection.execute, None
        # A run that the failing link has begun to answer is not made again.
        for _ in range(3):
            try:
                execute("SELECT count(*), sum(v) FROM r_far")
                return
            except self.world.psycopg.OperationalError as error:
                last = error
        stale = execute("SELECT error FROM cleave.devices WHERE name = 'm'").fetchone()[0] or ""
        others = [name for name in self.world.links if name not in self.hit]
        assert any(name in stale.removeprefix("of its copies, ") for name in others), f"{last}; the mirror: {stale}"

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
LOST_OF_SEVERAL = [*LOST, "one way", "slow"]
FULL = ["full host", "full nas", "full both"]
# The devices of each process, and where tables lie.
LAYOUTS = {
    "one": {"nodes": {"nas": ["nas"]}, "far": "nas", "both": "embedded, nas"},
    "mirror": {"nodes": {"nas": ["nas"], "other": ["other"]}, "far": "m", "both": "embedded, m",
               "setup": "CREATE DEVICE m WITH (mirrors = 'nas, other')"},
    "four": {"nodes": {"n1": ["a", "b"], "n2": ["c", "d"]}, "far": "a, b, c, d", "both": "embedded, b, d",
             "settings": "SET stealing = always; SET filter_history = always"},
}
# The layouts of a self-test, and how many rounds each has.
SELF_TEST = {"one": 6, "mirror": 6, "four": 6}
HOME = {"p": "h_", "far": "embedded", "both": "embedded"}
FRAGMENTS = "SELECT count FROM cleave.activity WHERE what = 'update fragments'"


def play(psycopg, options):
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}, {options.rounds} rounds, layout {options.layout}", flush=True)
    layout = LAYOUTS[options.layout]
    modes = FULL if options.full else LOST if options.layout == "one" else LOST_OF_SEVERAL
    folder = Path(tempfile.mkdtemp())
    for side in ("host", *layout["nodes"]):
        (folder / side / "disk").mkdir(parents=True)
        if options.full:
            servers.output(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", folder / side / "disk"])
    world = World(psycopg, servers.cleave(), folder, random.Random(seed), modes, layout)
    mover = Mover(world, seed)
    try:
        for places in (world.far, HOME):
            world.connection.execute(TABLES.format(**places))
        world.connection.execute("CREATE TABLE alone (id int PRIMARY KEY, note text)")
        for name, places in zip(Mover.TABLES, [layout["far"], layout["both"], "embedded"]):
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
        # Those of a mirror lock row by row, on the host.
        assert mover.fragments or world.is_mirrored(), "no update fragment has run"
        if world.is_mirrored():
            world.make_copies_equal()
        world.connection.close()
        assert servers.stop(world.host) == 0, "the server does not end well"
        servers.output([world.binary, "check", "--db", world.database])
    except (AssertionError, psycopg.Error) as error:
        print(f"FAILED: {type(error).__name__}: {error}\nfiles: {folder}, seed {seed}", flush=True)
        return False
    finally:
        for process in (world.host, *(node.process for node in world.nodes)):
            if process.poll() is None:
                process.kill()
                process.wait()
        if options.full:
            for side in ("host", *layout["nodes"]):
                subprocess.run(["umount", folder / side / "disk"], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    print("    all is well", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="?", choices=["run", "self-test"], default="run")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--layout", choices=LAYOUTS, default="one", help="where tables lie (default: one device)")
    parser.add_argument("--full", action="store_true", help="file systems that are full, in memory: needs the right "
        "to mount them")
    options = parser.parse_args()
    if options.full and options.layout != "one":
        parser.error("--full is of one device")
    psycopg = servers.psycopg()
    if psycopg is None:
        print("SKIPPED: psycopg cannot be installed")
        return
    if options.command == "self-test":
        # The same each time, but for the moments at which a message is on its way.
        options.seed = 12 if options.seed is None else options.seed
        for options.layout, options.rounds in SELF_TEST.items():
            if not play(psycopg, options):
                sys.exit(1)
        options.layout, options.rounds, options.full = "one", 12, os.geteuid() == 0
        sys.exit(options.full and not play(psycopg, options))
    sys.exit(not play(psycopg, options))


if __name__ == "__main__":
    main()
