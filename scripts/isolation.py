#!/usr/bin/env python3
"""Runs the anomaly scripts of `crates/cleave-host/tests/data/isolation`, which `cargo test` runs on Cleave, on
PostgreSQL too.

    scripts/isolation.py              on PostgreSQL (as it is installed) and on `cleave serve`
    scripts/isolation.py postgresql   on one of them
    scripts/isolation.py cleave

`--only bulk` runs the scripts whose names begin so.

Lines `cleave a: SET …` and `postgresql a: SET …` are settings of session a that only one of them has. Every step of
every script, at each level, must give the script's expected result. KNOWN lists where PostgreSQL differs,
and why; the exit code is 1 if a difference is not listed there, or a listed one is gone. Needs psycopg, which it
installs into target/clients, and PostgreSQL (`scripts/install_peers.sh postgresql`).
"""

import argparse
import sys
import tempfile
import threading
from pathlib import Path

import servers

SCRIPTS = servers.ROOT / "crates" / "cleave-host" / "tests" / "data" / "isolation"
LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
# Longer than anything takes that does not wait, and after which something counts as waiting.
PATIENCE_SECONDS, MOMENT_SECONDS = 20, 0.15
# (script, level): why the two differ.
KNOWN = {
    ("different_keys", "SERIALIZABLE"): "PostgreSQL notes reads of a small table by page, Cleave by key",
    **{("truncate_counts_as_a_write", level): "there TRUNCATE waits for readers; in Cleave these hold a state and "
                                              "lock nothing" for level in LEVELS},
    ("bulk_row_that_comes_to_match", "READ COMMITTED"): "a bulk update that waits changes what matches when the "
                                                        "wait is over, PostgreSQL what matched before as well",
}


def scripts(system, prefix):
    for path in sorted(SCRIPTS.glob(f"{prefix}*.txt")):
        settings, setup, steps = {}, [], []
        for line in path.read_text().splitlines():
            if line.startswith("setup "):
                setup.append(line.removeprefix("setup "))
            elif line.split(" ", 1)[0] in ("cleave", "postgresql"):
                of, session, sql = line.split(" ", 2)
                if of == system:
                    settings[session.removesuffix(":")] = sql
            elif line and not line.startswith("#"):
                step, *expected = [part.strip() for part in line.split(" | ")]
                session, sql = step.split(": ", 1)
                steps.append((session, sql, expected))
        yield path.stem, settings, setup, steps


class Session:
    """A connection, and the thread of the statement that it runs."""

    def __init__(self, psycopg, address, level, settings):
        self.connection = psycopg.connect(address, autocommit=True)
        self.connection.execute(f"SET default_transaction_isolation = '{level.lower()}'")
        if settings:
            self.connection.execute(settings)
        self.psycopg, self.thread, self.outcome = psycopg, None, None

    def begin(self, sql):
        self.thread = threading.Thread(target=self.run, args=[sql], daemon=True)
        self.thread.start()

    def ended(self, seconds):
        self.thread.join(seconds)
        return not self.thread.is_alive()

    def run(self, sql):
        try:
            cursor = self.connection.execute(sql)
        except self.psycopg.Error as error:
            self.outcome = error.sqlstate or str(error)
            return
        if cursor.description is None:
            self.outcome = "rolled back" if sql == "COMMIT" and cursor.statusmessage == "ROLLBACK" else "ok"
            return
        rows = [",".join(map(str, row)) for row in cursor.fetchall()]
        self.outcome = " ".join(rows if "ORDER BY" in sql else sorted(rows)) or "none"


def differences(psycopg, address, settings, setup, steps, level):
    """The first difference of a script's results at a level; later ones follow from it."""
    with psycopg.connect(address, autocommit=True) as owner:
        for sql in setup:
            owner.execute(sql)
        sessions = {}
        try:
            for name, sql, expected in steps:
                if name not in sessions:
                    sessions[name] = Session(psycopg, address, level, settings.get(name))
                session = sessions[name]
                own, *others = (expected[LEVELS.index(level)] if len(expected) == 3 else expected[0]).split("; ")
                words = sql.split(" ", 1)
                if words[0] == "BEGIN":
                    sql = ", ".join([f"BEGIN ISOLATION LEVEL {level}", *words[1:]])
                session.begin(sql)
                if not session.ended(MOMENT_SECONDS if own == "waits" else PATIENCE_SECONDS):
                    if own != "waits":
                        return f"{name}: {sql} waits, not {own}"
                    continue
                if session.outcome != own:
                    return f"{name}: {sql} gives {session.outcome}, not {own}"
                for other in others:
                    name, outcome = other.split(" ", 1)
                    waiting = sessions[name]
                    if not waiting.ended(PATIENCE_SECONDS):
                        return f"{name} still waits after {sql}"
                    if waiting.outcome != outcome:
                        return f"{name} gives {waiting.outcome}, not {outcome}, after {sql}"
            return None
        finally:
            for session in sessions.values():
                if session.thread.is_alive():
                    session.connection.cancel()
                    session.ended(PATIENCE_SECONDS)
                session.connection.close()
            for sql in setup:
                if sql.startswith("CREATE TABLE "):
                    owner.execute(f"DROP TABLE {sql.split()[2]}")


def compare(psycopg, name, address, known, prefix):
    count, surprises = 0, []
    for script, settings, setup, steps in scripts(name, prefix):
        for level in LEVELS:
            count += 1
            found = differences(psycopg, address, settings, setup, steps, level)
            expected = known.get((script, level))
            if found and expected:
                print(f"{name}: {script}, {level}: {found} (known: {expected})")
            elif found or expected:
                surprises.append(f"{name}: {script}, {level}: {found or 'no longer differs'}")
                print(surprises[-1])
    print(f"{name}: {count} runs of scripts, {len(surprises)} surprises", flush=True)
    return surprises


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("systems", nargs="*", help="postgresql, cleave")
    parser.add_argument("--only", default="", help="the beginning of the scripts' names")
    options = parser.parse_args()
    wanted = options.systems or ["postgresql", "cleave"]
    psycopg = servers.psycopg()
    if psycopg is None:
        print("SKIPPED: psycopg cannot be installed")
        return
    surprises = []
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            place = Path(folder) / name
            place.mkdir()
            if name == "postgresql":
                server, port, user = servers.postgresql(place)
                address = f"host=127.0.0.1 port={port} user={user} dbname=postgres"
            else:
                database = place / "db"
                servers.output([servers.cleave(), "sql", "--create", "--db", database, "-c", "SELECT 1"])
                server, port = servers.serve(servers.cleave(), database)
                address = f"host=127.0.0.1 port={port} user=ada dbname=db"
            try:
                surprises += compare(psycopg, name, address, KNOWN if name == "postgresql" else {}, options.only)
            finally:
                servers.stop(server, signal=2 if name == "postgresql" else 15)
    sys.exit(1 if surprises else 0)


if __name__ == "__main__":
    main()
