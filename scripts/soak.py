#!/usr/bin/env python3
"""Runs many kinds of statements of many clients for a chosen time, and checks the server's rows and resources.

    scripts/soak.py [--minutes M] [--clients N]     rows, memory, descriptors, threads and the log
    scripts/soak.py --space …                       also fails if the device's file grows (updates need vacuum for that)
    scripts/soak.py --autovacuum …                  also vacuums every five seconds
    scripts/soak.py --kill-every S …                kill -9 each so many seconds, and a restart over what is left
    scripts/soak.py self-test                       half a minute of both, as `.ci/run` does it

Clients move money between accounts, insert, delete, upsert, take numbers, define tables and roles, insert and delete
parents with children, back up, fail, vanish within blocks, COPY and pipelines, and ask the device for sums. Update
fragments change the wages of whole teams, and delete whole shifts. Parcels are loaded, by COPY and by fragments, while
others of them change. A materialized view of all wages is refreshed; queries of WITH and the rows of held cursors are
written to the device, and used again. The sum of all accounts and of all wages never changes for any reader, nor do two
wages of a team ever differ, or two rows of a shift, and each load is there as a whole. Each client's acknowledged
transactions and loads are there after each kill, and at most the one besides them that was not yet acknowledged; no
result that is used again lacks them. Sequence numbers never repeat. No result set outlives its client. Sampled
resources of two minutes and more must not be larger in the last third of the time than in the second by more than a
tolerance. Ends with 1 on any violation. Needs psycopg, which it installs into target/clients.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import servers

ACCOUNTS, EACH = 500, 1000
# Members of each team; rows of each shift, one for each client.
TEAMS, MEMBERS, SHIFT = 4, 2000, 300
# Rows of a load by COPY, so many that they are written beside writers, and by a fragment.
COPIED, INSERTED = 12_000, 2000
ACTIVITY = "SELECT what, count FROM cleave.activity WHERE what IN ('update fragments', 'stages', 'reused stages')"
# Rows that a reader must not find.
TORN_TEAMS = ("SELECT team, min(amount), max(amount), count(*) FROM wage GROUP BY team "
              f"HAVING min(amount) <> max(amount) OR count(*) <> {MEMBERS}")
TORN_SHIFTS = ("SELECT client, min(n), max(n), count(*) FROM shift GROUP BY client "
               f"HAVING min(n) <> max(n) OR count(*) <> {SHIFT}")
TORN_LOADS = "SELECT load, count(*), max(size) FROM parcel GROUP BY load HAVING count(*) <> max(size)"
PAYROLL = "SELECT team, count(*) AS n, sum(amount) AS amount FROM wage GROUP BY team"
STAGED_WAGES = """WITH x AS MATERIALIZED (SELECT team, amount FROM wage), y AS (SELECT min(amount) AS least, max(amount)
AS most, sum(amount) AS total FROM x GROUP BY team) SELECT sum(total), count(*) FILTER (WHERE least <> most) FROM y"""
# Result sets of clients.
RESULT_SETS = "SELECT name, owner, statement FROM cleave.result_sets WHERE owner IN ('run', 'cursor')"
# What may be lost to a conflict, and is tried again.
RETRIED = {"40001", "40P01", "55P03"}
# What a run has to use, and for how much longer a short one on a slow machine goes on until it has.
USED, LONGER_SECONDS = ("update fragments", "stages"), 120
# By how much what is sampled may grow: a share, and an amount.
TOLERANCES = {"resident MB": (1.1, 24), "descriptors": (1.0, 8), "threads": (1.0, 8), "log MB": (1.2, 24),
              "device MB": (1.1, 16)}
TABLES = f"""
CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL CHECK (balance > -1000000000), note text);
CREATE INDEX account_note ON account (note);
CREATE TABLE client (id int PRIMARY KEY, done bigint NOT NULL);
CREATE TABLE counter (id int PRIMARY KEY, n bigint NOT NULL);
CREATE SEQUENCE number;
CREATE TABLE ledger (id bigint PRIMARY KEY, client int NOT NULL, delta int NOT NULL);
CREATE TABLE parent (id bigint PRIMARY KEY, client int NOT NULL, children int NOT NULL);
CREATE TABLE child (id bigint PRIMARY KEY, parent bigint NOT NULL REFERENCES parent ON DELETE CASCADE);
CREATE INDEX child_parent ON child (parent);
CREATE TABLE toy (id bigint PRIMARY KEY, child bigint REFERENCES child ON DELETE SET NULL);
CREATE INDEX toy_child ON toy (child);
CREATE TABLE wage (id int PRIMARY KEY, team int NOT NULL, amount bigint NOT NULL, note text);
CREATE INDEX wage_team ON wage (team);
CREATE TABLE shift (id int PRIMARY KEY, client int NOT NULL, n int NOT NULL);
CREATE TABLE parcel (id bigint PRIMARY KEY, client int NOT NULL, load bigint NOT NULL, size int NOT NULL, n int);
CREATE INDEX parcel_load ON parcel (load);
INSERT INTO wage SELECT i, i % {TEAMS}, {EACH}, 'note' FROM generate_series(1, {TEAMS * MEMBERS}) AS g (i);
INSERT INTO account SELECT i, {EACH}, 'note ' || i % 50 FROM generate_series(1, {ACCOUNTS}) AS g (i);
CREATE MATERIALIZED VIEW payroll AS {PAYROLL};
"""
# Far more often than by default.
AUTOVACUUM = "ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET autovacuum_naptime = 5;"


class Run:
    """The state that all clients share."""

    def __init__(self, folder, address, seed):
        self.folder, self.address, self.seed = folder, address, seed
        self.port = None
        self.is_over = threading.Event()
        self.faults, self.counts = [], {}
        # The most that a server has counted between two starts, of each thing.
        self.activity = {}
        self.guard = threading.Lock()

    def fault(self, text):
        with self.guard:
            self.faults.append(text)
        self.is_over.set()

    def note_activity(self, psycopg):
        with psycopg.connect(self.address.format(port=self.port), connect_timeout=60) as connection:
            for what, count in connection.execute(ACTIVITY):
                self.activity[what] = max(self.activity.get(what, 0), count)

    def unused(self):
        return [what for what in USED if not self.activity.get(what)]

    def count(self, kind):
        with self.guard:
            self.counts[kind] = self.counts.get(kind, 0) + 1


class Client:
    """One connection, opened again whenever it is lost."""

    def __init__(self, psycopg, run, number):
        self.psycopg, self.run, self.number = psycopg, run, number
        self.random = random.Random(run.seed * 1000 + number)
        self.done, self.in_doubt, self.last_number = 0, False, 0
        # Own loads that are acknowledged, and those whose load or deletion is not.
        self.loads, self.loads_in_doubt = set(), set()
        self.connection = None
        kinds = [(self.transfer, 12), (self.upsert, 4), (self.sums, 3), (self.look_up, 6), (self.add, 4),
                 (self.forget, 1),
                 (self.raise_family, 3), (self.leave_family, 2), (self.define, 1), (self.roles, 1), (self.fail, 2),
                 (self.vanish, 2), (self.raise_wages, 2), (self.note_wage, 3), (self.change_shift, 1), (self.torn, 2),
                 (self.load, 1), (self.move_parcel, 4), (self.refresh, 1), (self.staged, 3), (self.hold, 1)]
        if number == 0:
            kinds.append((self.back_up, 1))
        self.kinds, self.weights = zip(*kinds)

    def work(self):
        while not self.run.is_over.is_set():
            try:
                if self.connection is None:
                    self.connect()
                kind = self.random.choices(self.kinds, self.weights)[0]
                kind()
                self.run.count(kind.__name__)
            except self.psycopg.OperationalError as error:
                if error.sqlstate in RETRIED:
                    self.run.count(error.sqlstate)
                    self.connection.rollback()
                    continue
                # The server is gone, or going: another one comes.
                self.connection = None
                time.sleep(0.05)
            except AssertionError as error:
                self.run.fault(f"client {self.number}: {error}")
            except Exception as error:
                self.run.fault(f"client {self.number}: {type(error).__name__}: {getattr(error, 'sqlstate', None)} "
                               f"{error}")
        if self.connection is not None:
            self.connection.close()

    def connect(self):
        self.connection = self.psycopg.connect(self.run.address.format(port=self.run.port), connect_timeout=60)
        place = "host" if self.number % 2 else "h0"
        with self.connection.transaction():
            self.connection.execute(f"SET split = {place}")
            found = self.connection.execute("SELECT done FROM client WHERE id = %s", [self.number]).fetchone()
            done = found[0] if found else 0
        most = self.done + self.in_doubt
        assert self.done <= done <= most, f"{done} transactions are there, {self.done} to {most} were acknowledged"
        self.done, self.in_doubt = done, False
        found = self.connection.execute("SELECT DISTINCT load FROM parcel WHERE client = %s", [self.number]).fetchall()
        self.connection.commit()
        loads = {load for load, in found}
        wrong = (loads ^ self.loads) - self.loads_in_doubt
        assert not wrong, f"of the loads {wrong} should be there {wrong & self.loads}"
        self.loads, self.loads_in_doubt = loads, set()

    def transfer(self):
        one, other = self.random.sample(range(1, ACCOUNTS + 1), 2)
        amount = self.random.randrange(100)
        execute = self.connection.execute
        # First by number: two that want the same rows wait, and seldom for each other.
        for account, change in sorted([(one, -amount), (other, amount)]):
            execute("UPDATE account SET balance = balance + %s WHERE id = %s", [change, account])
        execute("INSERT INTO client VALUES (%s, 1) ON CONFLICT (id) DO UPDATE SET done = client.done + 1",
                [self.number])
        self.in_doubt = True
        self.connection.commit()
        self.done, self.in_doubt = self.done + 1, False

    def by_fragments(self):
        locking = self.random.choice(["shared", "shared", "optimistic", "table"])
        self.connection.execute(f"SET LOCAL update_placement = device; SET LOCAL update_locking = {locking}")

    def raise_wages(self):
        """What one team gets, another one loses, some of it in vain."""
        self.by_fragments()
        execute, amount = self.connection.execute, self.random.randrange(1, 100)
        one, other = self.random.sample(range(TEAMS), 2)
        if self.random.random() < 0.3:
            execute("SAVEPOINT s")
            execute("UPDATE wage SET amount = 0, note = NULL WHERE team = %s", [one])
            execute("ROLLBACK TO s")
        for team, change in sorted([(one, -amount), (other, amount)]):
            execute("UPDATE wage SET amount = amount + %s WHERE team = %s", [change, team])
        if self.random.random() < 0.1:
            self.connection.rollback()
        else:
            self.connection.commit()

    def note_wage(self):
        """One row, beside fragments that change it and others."""
        found = self.connection.execute("UPDATE wage SET note = %s WHERE id = %s RETURNING amount", [
            f"by client {self.number}", self.random.randrange(1, TEAMS * MEMBERS + 1)]).fetchall()
        assert len(found) == 1, f"wages are {found}"
        self.connection.commit()

    def change_shift(self):
        """A fragment deletes the own rows, and others with the same keys take their place."""
        self.by_fragments()
        execute = self.connection.execute
        gone = execute("DELETE FROM shift WHERE client = %s", [self.number]).rowcount
        assert gone in (0, SHIFT), f"a shift had {gone} rows"
        first = self.number * SHIFT
        execute(f"INSERT INTO shift SELECT i, {self.number}, {self.random.randrange(1000)} FROM "
                f"generate_series({first}, {first + SHIFT - 1}) AS g (i)")
        self.connection.commit()

    def load(self):
        """Parcels come beside all writers, outside of a block. Of five loads the first goes."""
        load = self.number_now()
        self.connection.commit()
        self.loads_in_doubt = {load}
        self.connection.autocommit = True
        try:
            if self.random.random() < 0.5:
                first = load * COPIED
                rows = (f"{first + row}\t{self.number}\t{load}\t{COPIED}\t0\n" for row in range(COPIED))
                with self.connection.cursor().copy("COPY parcel FROM STDIN") as copy:
                    copy.write("".join(rows))
            else:
                self.connection.execute("SET update_placement = device")
                self.connection.execute(f"INSERT INTO parcel SELECT {load * COPIED} + id, {self.number}, {load}, "
                                        f"{INSERTED}, 0 FROM wage WHERE id <= {INSERTED}")
                self.connection.execute("RESET update_placement")
        finally:
            if self.connection.info.status != self.psycopg.pq.ConnStatus.BAD:
                self.connection.autocommit = False
        self.loads |= self.loads_in_doubt
        if len(self.loads) > 5:
            self.loads_in_doubt = {min(self.loads)}
            gone = self.connection.execute("DELETE FROM parcel WHERE load = %s", [min(self.loads)]).rowcount
            assert gone in (COPIED, INSERTED), f"a load had {gone} rows"
            self.connection.commit()
            self.loads -= self.loads_in_doubt
        self.loads_in_doubt = set()

    def move_parcel(self):
        """One of a load that is there, whoever loaded it."""
        found = self.connection.execute("UPDATE parcel SET n = n + 1 WHERE id = (SELECT max(id) FROM parcel WHERE load "
                                        "%% 5 = %s) RETURNING n", [self.random.randrange(5)]).fetchall()
        assert len(found) <= 1, f"{found} parcels have one key"
        self.connection.commit()

    def refresh(self):
        """The view has the rows of its query, from whatever it is refreshed."""
        execute = self.connection.execute
        if self.random.random() < 0.5:
            execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            execute("REFRESH MATERIALIZED VIEW payroll")
            found = execute(f"SELECT * FROM payroll EXCEPT {PAYROLL}").fetchall()
            assert found == [], f"the view has {found}"
        else:
            execute(f"SET LOCAL refresh_method = {self.random.choice(['changes', 'all', 'auto'])}")
            execute("REFRESH MATERIALIZED VIEW payroll")
        found = execute("SELECT count(*), sum(n), sum(amount) FROM payroll").fetchone()
        assert found == (TEAMS, TEAMS * MEMBERS, TEAMS * MEMBERS * EACH), f"the view has {found}"
        self.connection.commit()

    def on_device(self):
        """Results are written to the device, and held for others."""
        for setting in ["split = auto", "stages = always", "result_reuse = on"]:
            self.connection.execute(f"SET LOCAL {setting}")

    def staged(self):
        self.on_device()
        done = self.connection.execute("WITH x AS MATERIALIZED (SELECT id, done FROM client) SELECT max(done) FROM x "
                                       "WHERE id = %s", [self.number]).fetchone()[0] or 0
        assert done == self.done, f"a stage knows of {done} transactions, {self.done} are acknowledged"
        found = self.connection.execute(STAGED_WAGES).fetchone()
        assert found == (TEAMS * MEMBERS * EACH, 0), f"wages of a stage are {found}"
        self.connection.commit()

    def hold(self):
        """A held cursor gives the rows of one moment, whatever becomes of them."""
        execute = self.connection.execute
        execute("CLOSE ALL")
        self.on_device()
        execute("DECLARE held CURSOR WITH HOLD FOR SELECT team, amount FROM wage")
        self.connection.commit()
        self.note_wage()
        rows = execute("FETCH 10 FROM held").fetchall() + execute("FETCH ALL FROM held").fetchall()
        execute("CLOSE held")
        self.connection.commit()
        assert len(rows) == TEAMS * MEMBERS and sum(amount for _, amount in rows) == TEAMS * MEMBERS * EACH, (
            f"a held cursor has {len(rows)} wages, {sum(amount for _, amount in rows)} in all")
        assert len(set(rows)) == TEAMS, f"wages of a held cursor are {set(rows)}"

    def torn(self):
        for sql in [TORN_TEAMS, TORN_SHIFTS, TORN_LOADS]:
            found = self.connection.execute(sql).fetchall()
            assert found == [], f"{sql} finds {found}"
        found = self.connection.execute("SELECT sum(amount) FROM wage").fetchone()
        assert found == (TEAMS * MEMBERS * EACH,), f"wages are {found}"
        self.connection.commit()

    def upsert(self):
        sql = "INSERT INTO counter VALUES (%s, 1) ON CONFLICT (id) DO UPDATE SET n = counter.n + 1 RETURNING n"
        assert self.connection.execute(sql, [self.random.randrange(20)]).fetchone()[0] >= 1
        self.connection.commit()

    def sums(self):
        hint = "" if self.number % 2 else "/*+ split(ndp) */"
        found = self.connection.execute(f"SELECT {hint} sum(balance), count(*) FROM account").fetchone()
        self.connection.commit()
        assert found == (ACCOUNTS * EACH, ACCOUNTS), f"accounts have {found}"

    def look_up(self):
        account = self.random.randrange(1, ACCOUNTS + 1)
        assert self.connection.execute("SELECT balance FROM account WHERE id = %s", [account]).fetchone()
        note = f"note {self.random.randrange(50)}"
        found = self.connection.execute("SELECT count(*) FROM account WHERE note = %s", [note]).fetchone()
        assert found == (ACCOUNTS // 50,), f"{found} accounts have {note}"
        self.connection.commit()

    def add(self):
        number = self.connection.execute("SELECT nextval('number')").fetchone()[0]
        assert number > self.last_number, f"number {number} after {self.last_number}"
        self.last_number = number
        self.connection.execute("INSERT INTO ledger VALUES (%s, %s, 1), (-%s, %s, -1)", [number, self.number] * 2)
        self.connection.commit()

    def number_now(self):
        number = self.connection.execute("SELECT nextval('number')").fetchone()[0]
        assert number > self.last_number, f"number {number} after {self.last_number}"
        self.last_number = number
        return number

    def raise_family(self):
        execute, count = self.connection.execute, self.random.randrange(1, 6)
        parent = self.number_now()
        execute("INSERT INTO parent VALUES (%s, %s, %s)", [parent, self.number, count])
        if self.random.random() < 0.3:
            execute("SAVEPOINT s")
            execute("DELETE FROM parent WHERE client = %s", [self.number])
            execute("ROLLBACK TO s")
        for _ in range(count):
            child = self.number_now()
            execute("INSERT INTO child VALUES (%s, %s)", [child, parent])
            execute("INSERT INTO toy VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET child = excluded.child",
                    [child % 100, child])
        self.connection.commit()

    def leave_family(self):
        """Deleting parents deletes their children, and toys stay; no reader sees a part of it."""
        execute = self.connection.execute
        execute("DELETE FROM parent WHERE id IN (SELECT id FROM parent WHERE client = %s ORDER BY id LIMIT 2)",
                [self.number])
        for sql in ["SELECT count(*) FROM child LEFT JOIN parent ON parent.id = child.parent WHERE parent.id IS NULL",
                    "SELECT count(*) FROM toy LEFT JOIN child ON child.id = toy.child WHERE child.id IS NULL AND "
                    "toy.child IS NOT NULL",
                    "SELECT (SELECT coalesce(sum(children), 0) FROM parent) - (SELECT count(*) FROM child)"]:
            found = execute(sql).fetchone()
            assert found == (0,), f"{sql}: {found}"
        self.connection.commit()

    def roles(self):
        execute, name = self.connection.execute, f"role{self.number}"
        execute(f"CREATE ROLE {name}")
        execute(f"GRANT SELECT ON counter TO {name}")
        execute(f"SET ROLE {name}")
        execute("SELECT count(*) FROM counter")
        try:
            with self.connection.transaction():
                execute("SELECT count(*) FROM account")
            raise AssertionError("a role reads what it may not")
        except self.psycopg.errors.InsufficientPrivilege:
            pass
        execute("RESET ROLE")
        if self.random.random() < 0.5:
            execute(f"REVOKE ALL ON counter FROM {name}")
            execute(f"DROP ROLE {name}")
            self.connection.commit()
        else:
            self.connection.rollback()

    def back_up(self):
        """A backup is a consistent snapshot, wherever it is restored."""
        if self.random.random() > 0.25:
            return
        place = self.run.folder / f"backup{self.random.randrange(1 << 30)}"
        self.connection.rollback()
        self.connection.autocommit = True
        try:
            self.connection.execute(f"BACKUP TO '{place}'")
        finally:
            self.connection.autocommit = False
        restored = place.with_suffix(".db")
        servers.output([servers.cleave(), "restore", place, restored])
        sql = f"SELECT sum(balance) - {ACCOUNTS * EACH}, (SELECT coalesce(sum(delta), 0) FROM ledger) FROM account"
        found = servers.output([servers.cleave(), "sql", "--db", restored, "--format", "csv", "-c", sql]).split()[-1]
        assert found == "0,0", f"a backup has {found}"
        shutil.rmtree(place)
        shutil.rmtree(restored)
        self.run.count("backups")

    def forget(self):
        self.connection.execute("DELETE FROM ledger WHERE client = %s", [self.number])
        found = self.connection.execute("SELECT coalesce(sum(delta), 0) FROM ledger").fetchone()
        assert found == (0,), f"the ledger has {found}"
        self.connection.commit()

    def define(self):
        name = f"own{self.number}"
        for sql in ["CREATE TEMP TABLE t (a int); INSERT INTO t VALUES (1), (2)", f"CREATE TABLE {name} (a int "
            f"PRIMARY KEY, b text)",
                    f"INSERT INTO {name} SELECT i, 'b' || i FROM generate_series(1, 200) AS g (i)", f"ALTER TABLE "
                        f"{name} ADD COLUMN c int",
                    f"UPDATE {name} SET c = a WHERE a < 100", f"TRUNCATE {name}", f"DROP TABLE {name}", "DROP TABLE t"]:
            self.connection.execute(sql)
        if self.random.random() < 0.5:
            self.connection.commit()
        else:
            self.connection.rollback()

    def fail(self):
        sql, state = self.random.choice([("SELECT 1 / 0", "22012"), ("SELEC 1", "42601"),
                                         ("SELECT * FROM nowhere", "42P01"),
                                         ("INSERT INTO account VALUES (1, 0, '')", "23505")])
        try:
            self.connection.execute(sql)
            raise AssertionError(f"{sql} does not fail")
        except self.psycopg.OperationalError:
            raise
        except self.psycopg.Error as error:
            assert error.sqlstate == state, f"{sql}: {error.sqlstate} {error}"
        self.connection.rollback()

    def vanish(self):
        """Disconnects silently, in a block that has changed rows, or amid an answer."""
        self.connection.execute("UPDATE account SET balance = balance - 7 WHERE id = %s",
                                [self.random.randrange(1, ACCOUNTS + 1)])
        wire, how = self.connection.pgconn, self.random.randrange(6)
        if how == 0:
            wire.send_query(b"SELECT a.id, b.id FROM account AS a, account AS b")
        elif how == 1:
            # Amid rows that it sends.
            if self.random.random() < 0.5:
                wire.exec_(b"COPY ledger FROM STDIN")
                wire.put_copy_data(b"".join(b"%d\t0\t5\n" % (-1000000000 - row) for row in range(5000)))
            else:
                wire.exec_(b"COPY parcel FROM STDIN")
                wire.put_copy_data(b"".join(b"%d\t0\t0\t0\t0\n" % -row for row in range(1, 2 * COPIED)))
            wire.flush()
        elif how == 2:
            # Amid statements that nobody has asked the answers of.
            wire.enter_pipeline_mode()
            for _ in range(50):
                wire.send_query_params(b"UPDATE account SET balance = balance - 1 WHERE id = $1",
                                       [b"%d" % self.random.randrange(1, ACCOUNTS + 1)])
            wire.flush()
        elif how == 3:
            # Amid rows that a device has written, and before they are.
            wire.exec_(b"SET stages = always; SET split = auto; "
                       b"DECLARE left_over CURSOR WITH HOLD FOR SELECT * FROM wage")
            if self.random.random() < 0.5:
                wire.send_query(b"FETCH 100 FROM left_over; WITH x AS MATERIALIZED (SELECT id, note FROM wage) SELECT "
                                b"a.note, b.note FROM x AS a, x AS b")
        with socket.socket(fileno=os.dup(self.connection.fileno())) as stream:
            stream.shutdown(socket.SHUT_RDWR)
        self.connection.close()
        self.connection = None


def sample(process, database):
    place = Path(f"/proc/{process.pid}")
    status = (place / "status").read_text()
    size = lambda files: sum(file.stat().st_blocks * 512 for file in files if file.exists()) / 1e6
    return {
        "resident MB": int(status.split("VmRSS:")[1].split()[0]) / 1e3,
        "descriptors": len(os.listdir(place / "fd")),
        "threads": int(status.split("Threads:")[1].split()[0]),
        "log MB": size(list((database / "log").iterdir())),
        "device MB": size([database / "device-0.media"]),
    }


def left_behind(psycopg, run):
    """Result sets of clients that have gone, in words."""
    with psycopg.connect(run.address.format(port=run.port), connect_timeout=60, autocommit=True) as connection:
        end = time.monotonic() + 60
        while (found := connection.execute(RESULT_SETS).fetchall()) and time.monotonic() < end:
            time.sleep(0.1)
        return [f"the result set {name} of a {owner} is left of {statement}" for name, owner, statement in found]


def grown(samples, with_space, is_long):
    """The sampled resources that grew, in words. A short run ends while pools of threads and buffers still fill."""
    third = len(samples) // 3
    for name, (share, amount) in TOLERANCES.items():
        before, after = (statistics.median(one[name] for one in part)
                         for part in (samples[third:2 * third], samples[2 * third:]))
        is_judged = is_long and (name != "device MB" or with_space)
        print(f"    {name}: {before:.1f}, then {after:.1f}{'' if is_judged else ' (not judged)'}")
        if is_judged and after > before * share + amount:
            yield f"{name} grew from {before:.1f} to {after:.1f}"


def soak(psycopg, options):
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}, {options.clients} clients, {options.minutes:g} minutes", flush=True)
    dice = random.Random(seed)
    binary = servers.cleave()
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "db"
        tables = Path(folder) / "tables.sql"
        tables.write_text(TABLES + (AUTOVACUUM if options.autovacuum else ""))
        servers.output([binary, "sql", "--create", "--db", database, "-f", tables])
        run = Run(Path(folder), "host=127.0.0.1 port={port} user=ada dbname=db", seed)
        process, run.port = servers.serve(binary, database, "--allow-files")
        clients = [Client(psycopg, run, number) for number in range(options.clients)]
        threads = [threading.Thread(target=client.work, daemon=True) for client in clients]
        for thread in threads:
            thread.start()
        end = time.monotonic() + options.minutes * 60
        samples, kills = [], 0
        try:
            while (time.monotonic() < end + (LONGER_SECONDS if run.unused() else 0)) and not run.is_over.is_set():
                if options.kill_every:
                    time.sleep(options.kill_every * dice.uniform(0.5, 1.5))
                    run.note_activity(psycopg)
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    kills += 1
                    process, run.port = servers.serve(binary, database, "--allow-files")
                else:
                    time.sleep(min(1, options.minutes * 2))
                    assert process.poll() is None, "the server has ended"
                    run.note_activity(psycopg)
                    samples.append(sample(process, database))
            if options.kill_every:
                # Everybody looks once more.
                time.sleep(2)
        finally:
            run.is_over.set()
            for thread in threads:
                thread.join(120)
            left = left_behind(psycopg, run) if process.poll() is None and not run.faults else []
            code = servers.stop(process)
        faults = run.faults + left + [f"the server ended with {code}"] * (code != 0) + [
            f"client {client.number} hangs" for client, thread in zip(clients, threads) if thread.is_alive()]
        print("   ", ", ".join(f"{count} {name}" for name, count in sorted(run.counts.items())), f"{kills} kills"
              if kills else "", ", ".join(f"{count} {what}" for what, count in run.activity.items()))
        if not faults:
            faults += [f"there were no {what}" for what in run.unused()]
        if samples and not faults:
            faults += grown(samples, options.space, options.minutes >= 2)
        if not faults:
            found = servers.output([binary, "sql", "--db", database, "--format", "csv", "-c", "SELECT sum(balance) "
                "FROM account"])
            faults += [f"accounts have {found}"] * (found.split()[-1] != str(ACCOUNTS * EACH))
            for sql in [TORN_TEAMS, TORN_SHIFTS, TORN_LOADS]:
                found = servers.output([binary, "sql", "--db", database, "--format", "csv", "-c", sql]).split()[1:]
                faults += [f"{sql} finds {row}" for row in found]
            servers.output([binary, "check", "--db", database])
        print("\n".join(faults) or "    all is well", flush=True)
        return not faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="?", choices=["run", "self-test"], default="run")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--kill-every", type=float, default=0, help="seconds")
    parser.add_argument("--space", action="store_true")
    parser.add_argument("--autovacuum", action="store_true")
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    psycopg = servers.psycopg()
    if psycopg is None:
        print("SKIPPED: psycopg cannot be installed")
        return
    if options.command == "self-test":
        options.minutes = 0.3
        is_well = soak(psycopg, options)
        options.kill_every = 4
        sys.exit(not (soak(psycopg, options) and is_well))
    sys.exit(not soak(psycopg, options))


if __name__ == "__main__":
    main()
