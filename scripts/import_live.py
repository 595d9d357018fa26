#!/usr/bin/env python3
"""Imports from a running PostgreSQL, and compares the result with the source.

    scripts/import_live.py    starts Debian's PostgreSQL, with a password and TLS, and imports pgbench's tables and a
                              schema with all kinds of objects by `cleave import`

Needs PostgreSQL, psql, pgbench and openssl; CLEAVE_BINARY or a build of the program.
"""

import csv
import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import servers

SCHEMA = Path(__file__).resolve().parent / "clients" / "import.sql"
PASSWORD = "a p%ncil/:@"
IN_A_URL = "a%20p%25ncil%2F%3A%40"
# What is asked of both, and must be the same.
QUESTIONS = [
    "SELECT count(*), sum(abalance), min(aid), max(aid) FROM pgbench_accounts",
    "SELECT count(*), sum(bbalance) FROM pgbench_branches",
    "SELECT count(*), sum(tbalance) FROM pgbench_tellers",
    "SELECT count(*), sum(delta) FROM pgbench_history",
    # Without what is shown otherwise here: blanks behind character(n), and the scale of numeric without one.
    "SELECT id, small, big, exact, any_number = 1e20, half, whole, yes, length(letters), short, long, day, hour, at, "
    "at_zone, span, bytes, name "
    "FROM kinds ORDER BY id",
    'SELECT * FROM "Odd name" ORDER BY "Ä b"',
    "SELECT * FROM parts ORDER BY id",
    "SELECT * FROM part_names ORDER BY id",
    "SELECT count(*), sum(length(text)) FROM wide",
    # Types that are taken as text.
    "SELECT id, feels::text FROM moods ORDER BY id",
    "SELECT id, place::text, tags::text FROM spots ORDER BY id",
    "SELECT sequencename, start_value, increment_by, min_value, max_value, cycle, last_value FROM pg_sequences ORDER "
    "BY 1",
    "SELECT obj_description('parts'::regclass, 'pg_class'), col_description('parts'::regclass, 3)",
    "SELECT tablename, indexname FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2",
    "SELECT conrelid::regclass::text, conname, contype FROM pg_constraint WHERE contype IN ('p', 'u', 'f', 'c') AND "
    "connamespace = "
    "(SELECT oid FROM pg_namespace WHERE nspname = 'public') ORDER BY 1, 2",
]
# What is there of kinds that are not taken, by the words that tell of it.
MISSING = ["type mood", "function twice", "trigger noted", "materialized view public.seen", "table other.hidden",
           "nothing, which has no columns"]


def main():
    binary = servers.cleave()
    for program in ["psql", "pgbench", "openssl"]:
        if shutil.which(program) is None:
            sys.exit(f"{program} is not there: run `scripts/install_peers.sh postgresql`")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "peer").mkdir()
        process, port, owner = servers.postgresql(folder / "peer", **certificate(folder))
        try:
            compare(binary, folder, port, owner)
        finally:
            servers.stop(process)


def certificate(folder):
    """Settings of a PostgreSQL with TLS, whose certificate is `root.crt`."""
    key, crt = folder / "root.key", folder / "root.crt"
    servers.output(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
         "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", crt]
    )
    if os.geteuid() == 0:
        shutil.chown(key, "postgres", "postgres")
    os.chmod(key, 0o600)
    return {"ssl": "on", "ssl_cert_file": crt, "ssl_key_file": key, "password_encryption": "scram-sha-256"}


def rows(text):
    return list(csv.reader(io.StringIO(text)))


def compare(binary, folder, port, owner):
    place = ["-h", "127.0.0.1", "-p", str(port)]
    ask = lambda *command: servers.output(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *place, "-U", owner, *command])
    quoted = PASSWORD.replace("'", "''")
    ask("-c", f"CREATE ROLE ada LOGIN PASSWORD '{quoted}'", "-c", "CREATE DATABASE shop")
    servers.output(["pgbench", "-i", "-q", "-s", "1", "--foreign-keys", *place, "-U", owner, "shop"])
    servers.output(["pgbench", "-n", "-c", "2", "-t", "50", *place, "-U", owner, "shop"])
    ask("-d", "shop", "-f", SCHEMA)
    ask("-d", "shop", "-c", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO ada; GRANT SELECT ON ALL SEQUENCES IN "
                            "SCHEMA public TO ada")
    (folder / "peer" / "data" / "pg_hba.conf").write_text(f"host all {owner} 127.0.0.1/32 trust\nhostssl all all "
                                                          f"127.0.0.1/32 scram-sha-256\n")
    ask("-c", "SELECT pg_reload_conf()")

    def imported(url, into, *options):
        command = [binary, "import", url, "--db", folder / into, *options]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600)
        return done.returncode, done.stdout + done.stderr

    at = f"127.0.0.1:{port}/shop?sslrootcert={folder / 'root.crt'}"
    for url, expected in [
        (f"postgres://ada:wrong@{at}", "28P01"),
        (f"postgres://ada@{at}", "asks for the password"),
        (f"postgres://nobody:x@{at}", "28P01"),
        (f"postgres://ada:{IN_A_URL}@127.0.0.1:{port}/shop?sslmode=disable", "28000"),
        (f"postgres://ada:{IN_A_URL}@127.0.0.1:{port}/nothing?sslrootcert={folder / 'root.crt'}", "does not exist"),
        (f"postgres://ada:x@127.0.0.1:{servers.free_port()}/shop", "refused"),
        (f"postgres://ada:x@{at}&sslmode=perhaps", "sslmode"),
        (f"postgres://ada:x@{at.replace('root.crt', 'none.crt')}", "none.crt"),
    ]:
        code, told = imported(url, "wrong")
        assert code == 1 and expected in told and "wrong@" not in told, (url, code, told)
        assert not (folder / "wrong").exists(), "a database was made of nothing"

    url = f"postgres://ada:{IN_A_URL}@{at}"
    code, dry = imported(url, "dry", "--dry-run")
    assert code == 3 and not (folder / "dry").exists(), dry
    code, told = imported(url, "taken")
    assert dry.replace("would be taken:", "taken:", 1) in told, (dry, told)
    print(told)
    assert code == 3, (code, told)
    for expected in MISSING:
        assert expected in told.split("not taken:")[1], (expected, told)
    for expected in ["moods.feels: mood", "spots.place: point", "spots.tags: text[]"]:
        assert expected in told.split("taken as text")[1], (expected, told)
    code, again = imported(url, "forgiven", "--skip-unsupported")
    assert code == 0, (code, again)

    for question in QUESTIONS:
        theirs = rows(ask("-d", "shop", "--csv", "-t", "-c", question))
        command = [binary, "sql", "--db", folder / "taken", "--format", "csv", "-c", question]
        ours = rows(servers.output(command))[1:]
        assert ours == theirs, f"{question}\nPostgreSQL:\n{theirs}\nCleave:\n{ours}"
    definitions_are_no_scripts(ask, imported, url, folder)
    # They go on where they were, and keep what they promise.
    sql = lambda text: subprocess.run(
        [str(part) for part in [binary, "sql", "--db", folder / "taken", "-c", text]], capture_output=True, text=True
    )
    for text in ["INSERT INTO parts (name, kind) VALUES ('new', 1)", "INSERT INTO part_names (part) VALUES (1)"]:
        done = sql(text)
        assert done.returncode == 0, done.stderr
    for text, state in [
        ("INSERT INTO parts (name, kind) VALUES ('one', 1)", "23505"),
        ("INSERT INTO parts (name, kind) VALUES ('other', -1)", "23514"),
        ("INSERT INTO part_names (part) VALUES (4711)", "23503"),
    ]:
        done = sql(text)
        assert state in done.stderr, (text, done.stderr)
    print("imported from PostgreSQL: the same rows, keys, sequences and constraints")


def definitions_are_no_scripts(ask, imported, url, folder):
    """A server whose catalog functions answer with more than a definition."""
    stolen = folder / "stolen"
    ask("-c", "CREATE DATABASE evil")
    more = f"; COPY (SELECT 1) TO ''{stolen}''"
    ask("-d", "evil", "-c", f"""
        SET allow_system_table_mods = on;
        CREATE TABLE t (a int DEFAULT 1, b int);
        CREATE VIEW v AS SELECT a FROM t;
        CREATE INDEX i ON t (a);
        GRANT ALL ON ALL TABLES IN SCHEMA public TO ada;
        CREATE OR REPLACE FUNCTION pg_catalog.pg_get_indexdef(oid) RETURNS text LANGUAGE sql
            AS $$ SELECT 'CREATE INDEX i ON t (a){more}' $$;
        CREATE OR REPLACE FUNCTION pg_catalog.pg_get_viewdef(oid) RETURNS text LANGUAGE sql
            AS $$ SELECT 'SELECT 1{more}' $$;
        CREATE OR REPLACE FUNCTION pg_catalog.pg_get_expr(pg_node_tree, oid) RETURNS text LANGUAGE sql
            AS $$ SELECT '1{more}' $$""")
    for options in [["--dry-run"], []]:
        code, told = imported(url.replace("/shop", "/evil"), "evil", *options)
        print(told)
        assert code == 3 and not stolen.exists(), told
        assert told.count("--trust-statements") == 3, told


if __name__ == "__main__":
    main()
