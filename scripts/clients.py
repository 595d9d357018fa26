#!/usr/bin/env python3
"""Runs PostgreSQL's real clients against `cleave serve`, with a password and TLS.

    scripts/clients.py            all of them: installs missing ones into target/clients, or prints SKIPPED
    scripts/clients.py psql jdbc  only these
    scripts/clients.py --but dbt  all but these

psql, pgbench, pg_dump, sysbench and Active Record come with apt-get (root or sudo), psycopg, asyncpg, SQLAlchemy,
Django, dbt and pgAdmin 4 with pip, pg, knex and TypeORM with npm, pgx with go, JDBC and Hibernate from Maven. A client
that cannot be installed is skipped with a message; one that runs must succeed.
"""

import contextlib
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import servers

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "clients"
PROGRAMS = ROOT / "scripts" / "clients"
JDBC = "https://repo1.maven.org/maven2/org/postgresql/postgresql/42.7.4/postgresql-42.7.4.jar"
PYTHON_PACKAGES = ["psycopg[binary]", "asyncpg", "SQLAlchemy>=2", "jinja2"]
NODE_PACKAGES = ["pg", "pg-cursor", "pg-query-stream", "knex", "typeorm"]
USER, PASSWORD = "ada", "a pencil"


class Skipped(Exception):
    """A client that is missing and cannot be installed."""


def run(command, **options):
    options.setdefault("env", environment())
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} failed ({done.returncode}):\n{done.stdout}\n{done.stderr}")
    return done.stdout


def install(command, what, **options):
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=600, **options)
    except (OSError, subprocess.SubprocessError) as error:
        raise Skipped(f"{what} cannot be installed: {getattr(error, 'stderr', None) or error}") from error


SERVER = {}


def environment():
    return {
        **os.environ,
        "PGHOST": "127.0.0.1",
        "PGPORT": SERVER.get("port", ""),
        "PGUSER": USER,
        "PGPASSWORD": PASSWORD,
        "PGDATABASE": "shop",
        "PGSSLMODE": "require",
        "PGCONNECT_TIMEOUT": "20",
        # Certificates that speak for themselves are not in any store.
        "NODE_TLS_REJECT_UNAUTHORIZED": "0",
        "NODE_NO_WARNINGS": "1",
    }


def cleave():
    binary = os.environ.get("CLEAVE_BINARY")
    if binary:
        return binary
    binary = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "cleave"
    if not binary.exists():
        subprocess.run(["cargo", "build", "--package", "cleave"], cwd=ROOT, check=True)
    return str(binary)


def start_server(folder):
    database = folder / "shop"
    run([cleave(), "sql", "--create", "--db", str(database), "-f", str(PROGRAMS / "shop.sql")])
    run([cleave(), "user", "add", USER, "--db", str(database)], input=PASSWORD + "\n")
    process, port = servers.serve(cleave(), database, "--tls-self-made")
    SERVER["port"] = str(port)
    return process


@contextlib.contextmanager
def database_of_its_own(name, *statements):
    """What programs need in their environment to connect to a new database, made by `statements`."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / name
        made = sum((["-c", statement] for statement in statements or ["SELECT 1"]), [])
        run([cleave(), "sql", "--create", "--db", str(database), *made])
        run([cleave(), "user", "add", USER, "--db", str(database)], input=PASSWORD + "\n")
        process, port = servers.serve(cleave(), database, "--tls-self-made")
        try:
            yield {**environment(), "PGPORT": str(port), "PGDATABASE": name}
        finally:
            servers.stop(process)


def debian(program, packages=("postgresql-client", "postgresql-contrib")):
    if shutil.which(program):
        return
    apt_get(program, packages)


def apt_get(what, packages):
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    install([*as_root, "apt-get", "update", "-qq"], what)
    # Others may be installing, too.
    apt = [*as_root, "apt-get", "-o", "DPkg::Lock::Timeout=300"]
    install([*apt, "install", "-y", "-qq", "--no-install-recommends", *packages], what)


def python():
    interpreter = servers.python_with(PYTHON_PACKAGES, "import psycopg, asyncpg, sqlalchemy, jinja2")
    if interpreter is None:
        raise Skipped("psycopg, asyncpg and SQLAlchemy cannot be installed")
    return interpreter


def psql():
    debian("psql")
    say = lambda *commands: run(["psql", "-X", "-v", "ON_ERROR_STOP=1", *sum((["-c", c] for c in commands), [])])
    assert "customers_email_key" in say(r"\d customers"), say(r"\d customers")
    assert '"orders_customer" btree (customer, placed DESC)' in say(r"\d orders")
    assert "Access method: heap" in say(r"\d+ orders")
    assert "btree, for table" in say(r"\d orders_customer")
    for command in [r"\d", r"\dt", r"\dt+", r"\di", r"\l", r"\dn", r"\du", r"\df", r"\dv", r"\dT", r"\dx", r"\dp",
                    r"\ds", r"\conninfo"]:
        say(command)
    say("CREATE MATERIALIZED VIEW per_customer AS SELECT customer, count(*) FROM orders GROUP BY customer")
    assert "per_customer" in say(r"\dm"), say(r"\dm")
    assert 'Materialized view "public.per_customer"' in say(r"\d per_customer"), say(r"\d per_customer")
    say("DROP MATERIALIZED VIEW per_customer")
    assert say("SELECT count(*) FROM orders").split()[2] == "1000"
    assert say("SELECT email FROM customers WHERE id = 7").split()[2] == "c7@example.org"
    say("COPY (SELECT * FROM customers) TO STDOUT CSV HEADER")
    # The connect sequences of programs that are not installed here.
    run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(PROGRAMS / "connect.sql")])
    fetched = run(["psql", "-X", "-v", "FETCH_COUNT=300", "-At", "-c", "SELECT id FROM orders ORDER BY id"])
    assert len(fetched.split()) == 1000
    failed = subprocess.run(["psql", "-X", "-c", "SELECT emal FROM customers"], capture_output=True, text=True,
                            env=environment())
    assert failed.returncode == 1 and "did you mean" in failed.stderr, failed.stderr
    wrong = {**environment(), "PGPASSWORD": "wrong"}
    failed = subprocess.run(["psql", "-X", "-c", "SELECT 1"], capture_output=True, text=True, env=wrong)
    assert failed.returncode == 2 and "password authentication failed" in failed.stderr, failed.stderr


def pgbench():
    debian("pgbench")
    rates = []
    for mode in ["simple", "extended", "prepared"]:
        out = run(["pgbench", "-n", "-S", "-c", "4", "-j", "2", "-t", "200", "-M", mode])
        assert "number of failed transactions: 0" in out, out
        rates.append(f"{mode} {out.split('tps = ')[1].split('.')[0]}/s")
    # Blocks that write, of clients that wait for each other's rows.
    for script in ["-N", "-b tpcb-like"]:
        out = run(["pgbench", "-n", *script.split(), "-c", "4", "-j", "2", "-t", "20"])
        assert "number of failed transactions: 0" in out, out
        rates.append(f"{script} {out.split('tps = ')[1].split('.')[0]}/s")
    sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history) AS equal"
    assert " t" in run(["psql", "-X", "-t", "-c", sums]), "what was added is not what accounts have"
    print("   ", ", ".join(rates), "(a debug build says nothing of speed)")


    # What `pgbench -i` sends, as far as it works: TRUNCATE and ALTER TABLE are tried by `initialised`.
    steps = [
        "drop table if exists loaded_branches, loaded_tellers",
        "create table loaded_branches(bid int not null,bbalance int,filler char(88)) with (fillfactor=100)",
        "begin",
        "insert into loaded_branches(bid,bbalance) values(1,0)",
        "copy loaded_branches from stdin with (freeze on)",
        "commit",
        "vacuum analyze loaded_branches",
    ]
    run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *sum((["-c", step] for step in steps), [])],
        input="2\t0\t\n\\.\n")
    initialised = subprocess.run(["pgbench", "-i", "-I", "dtgvp", "-q"], capture_output=True, text=True,
                                 env=environment())
    if initialised.returncode == 0:
        out = run(["pgbench", "-n", "-c", "2", "-t", "20"])
        assert "number of failed transactions: 0" in out, out
    else:
        print("    pgbench -i stops at:", initialised.stderr.strip().splitlines()[-1])


def sysbench():
    debian("sysbench", ["sysbench"])
    place = ["--pgsql-host=127.0.0.1", f"--pgsql-port={SERVER['port']}", f"--pgsql-user={USER}",
             f"--pgsql-password={PASSWORD}", "--pgsql-db=shop"]
    common = ["--db-driver=pgsql", *place, "--tables=2", "--table-size=1000"]
    rates = []
    for script in ["oltp_point_select", "oltp_read_only", "oltp_read_write"]:
        run(["sysbench", script, *common, "prepare"])
        out = run(["sysbench", script, *common, "--threads=4", "--time=3", "run"])
        done = int(out.split("transactions:")[1].split()[0])
        assert done > 0 and "FATAL" not in out, out
        rates.append(f"{script} {done // 3}/s")
        run(["sysbench", script, *common, "cleanup"])
    print("    transactions of sysbench (this build):", ", ".join(rates))


# What pg_dump has to tell beside tables, indexes and rows.
TO_DUMP = [
    "CREATE SEQUENCE numbers AS integer INCREMENT 5 START 7 CYCLE MAXVALUE 1000",
    "SELECT nextval('numbers'), nextval('numbers')",
    "CREATE TABLE parts (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer integer REFERENCES customers "
    "(id) ON DELETE CASCADE,"
    " \"Odd Name\" text DEFAULT 'a ''b', price numeric(10,2) CONSTRAINT dear CHECK (price < 1000), made date DEFAULT "
    "now())",
    "INSERT INTO parts (customer, \"Odd Name\", price) VALUES (1, E'a\\tb\\\\', 2.50), (2, NULL, NULL)",
    "CREATE TABLE counted (id serial, at timestamptz DEFAULT now(), bits bytea, whole uuid UNIQUE)",
    "INSERT INTO counted (bits) VALUES ('\\x00ff'), (NULL)",
    "CREATE VIEW b_view AS SELECT p.id, c.email FROM parts p JOIN customers c ON c.id = p.customer",
    "CREATE VIEW a_view AS SELECT count(*) AS many FROM b_view",
    "CREATE MATERIALIZED VIEW a_kept AS SELECT id, price FROM parts WHERE id > 0",
    "CREATE UNIQUE INDEX kept_ids ON a_kept (id)",
    "CREATE MATERIALIZED VIEW a_later AS SELECT count(*) AS many FROM a_kept WITH NO DATA",
    "COMMENT ON TABLE parts IS 'it''s parts'",
    "COMMENT ON COLUMN parts.price IS 'each'",
    "CREATE ROLE reader",
    "CREATE ROLE \"Odd \"\"Role\"",
    "GRANT SELECT ON parts TO reader WITH GRANT OPTION",
    "GRANT SELECT (id), UPDATE (price) ON parts TO \"Odd \"\"Role\"",
    "GRANT USAGE ON SEQUENCE numbers TO PUBLIC",
    "ALTER TABLE counted OWNER TO reader",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO reader",
]


def pg_dump():
    debian("pg_dump")
    version = run(["pg_dump", "--version"]).split()[2]
    if version.split(".")[0] != "15":
        raise Skipped(f"pg_dump {version} may ask for more than that of version 15, which is the one that is tried")
    psql = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1"]
    run([*psql, *sum((["-c", command] for command in TO_DUMP), [])])
    # Every run has another key in its first and last line.
    dumped = lambda *options, **given: "".join(
        line
        for line in run(["pg_dump", "--exclude-table-data=pgbench_*", *options], **given).splitlines(True)
        if not line.startswith(("\\restrict", "\\unrestrict"))
    )
    whole = dumped()
    assert "CREATE VIEW public.b_view" in whole.split("CREATE VIEW public.a_view")[0], whole
    assert "CREATE TABLE" not in dumped("--data-only") and "COPY public" not in dumped("--schema-only")
    assert "CREATE TABLE public.customers" not in dumped("-t", "parts") and "CREATE TABLE public.parts" in dumped("-t",
        "par*")
    for options in [(), ("--inserts",), ("--column-inserts", "--no-owner"), ("--clean", "--if-exists")]:
        roles = ["CREATE ROLE reader", "CREATE ROLE \"Odd \"\"Role\""]
        with database_of_its_own("restored", *roles) as there:
            run([*psql, "-f", "-"], input=dumped(*options), env=there)
            again = dumped("--no-owner", env=there) if "--no-owner" in options else dumped(env=there)
        expected = dumped("--no-owner") if "--no-owner" in options else whole
        assert again == expected, "\n".join(difflib.unified_diff(expected.splitlines(), again.splitlines(),
            lineterm=""))


def in_python(program):
    return lambda: print("   ", run([python(), str(PROGRAMS / program)]).strip())


def pgadmin():
    interpreter = python()
    folder = WORK / "pgadmin"
    packages = lambda: sorted(folder.glob("pgadmin4-*.whl"))
    if not packages():
        download = [interpreter, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder)]
        install([*download, "pgadmin4"], "pgAdmin 4")
    print("   ", run([interpreter, str(PROGRAMS / "with_pgadmin.py"), str(packages()[-1])]).strip())


def in_node(program):
    return lambda: node(program)


def node(program):
    if not shutil.which("npm"):
        raise Skipped("npm is not here")
    modules = WORK / "node" / "node_modules"
    modules.mkdir(parents=True, exist_ok=True)
    if not all((modules / package).exists() for package in NODE_PACKAGES):
        install(["npm", "install", "--silent", "--prefix", str(modules.parent), *NODE_PACKAGES], "what runs in Node")
    print("   ", run(["node", str(PROGRAMS / program)], env={**environment(), "NODE_PATH": str(modules)}).strip())


def activerecord():
    libraries = ["ruby", "-r", "logger", "-r", "active_record", "-r", "pg", "-e", ""]
    there = lambda: shutil.which("ruby") and subprocess.run(libraries, capture_output=True).returncode == 0
    if not there():
        apt_get("Active Record", ["ruby", "ruby-activerecord", "ruby-pg"])
        if not there():
            raise Skipped("this Ruby does not find Active Record")
    print("   ", run(["ruby", str(PROGRAMS / "with_activerecord.rb")]).strip())


def pgx():
    if not shutil.which("go"):
        raise Skipped("go is not here")
    folder = WORK / "pgx"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(PROGRAMS / "client.go", folder / "main.go")
    (folder / "go.mod").write_text("module client\n\ngo 1.21\n\nrequire github.com/jackc/pgx/v5 v5.7.2\n")
    install(["go", "mod", "tidy"], "pgx", cwd=folder)
    install(["go", "build", "-o", "client", "."], "pgx", cwd=folder)
    print("   ", run([str(folder / "client")]).strip())


def jdbc():
    if not shutil.which("javac"):
        raise Skipped("javac is not here")
    folder = WORK / "jdbc"
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / "postgresql.jar"
    if not jar.exists():
        try:
            urllib.request.urlretrieve(JDBC, jar)
        except OSError as error:
            raise Skipped(f"the JDBC driver cannot be fetched: {error}") from error
    run(["javac", "-d", str(folder), str(PROGRAMS / "Client.java")])
    print("   ", run(["java", "-cp", f"{folder}:{jar}", "Client"]).strip())


def python_project(name, packages, check):
    """Runs the project `scripts/clients/NAME`, in a Python and with a database of its own."""
    def client():
        interpreter = servers.python_with(packages, check, WORK / name)
        if interpreter is None:
            raise Skipped(f"{name} cannot be installed")
        # The programs write into their folder.
        with tempfile.TemporaryDirectory() as folder, database_of_its_own(name) as there:
            shutil.copytree(PROGRAMS / name, folder, dirs_exist_ok=True)
            print("   ", run([interpreter, "run.py"], cwd=folder, env=there).strip())
    return client


def hibernate():
    if not shutil.which("javac") or not shutil.which("mvn"):
        raise Skipped("javac or mvn is not here")
    folder = WORK / "hibernate"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(PROGRAMS / "hibernate" / "pom.xml", folder)
    if not any(folder.glob("jars/hibernate-core-*.jar")):
        install(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"], "Hibernate", cwd=folder)
    run(["javac", "-cp", f"{folder}/jars/*", "-d", str(folder), str(PROGRAMS / "hibernate" / "Shop.java")])
    with database_of_its_own("hibernate") as there:
        print("   ", run(["java", "-cp", f"{folder}:{folder}/jars/*", "Shop"], env=there).strip())


CLIENTS = {
    "psql": psql,
    "pgbench": pgbench,
    "sysbench": sysbench,
    "psycopg": in_python("with_psycopg.py"),
    "asyncpg": in_python("with_asyncpg.py"),
    "sqlalchemy": in_python("with_sqlalchemy.py"),
    "pgadmin": pgadmin,
    "node": in_node("client.js"),
    "knex": in_node("with_knex.js"),
    "typeorm": in_node("with_typeorm.js"),
    "activerecord": activerecord,
    "pgx": pgx,
    "jdbc": jdbc,
    "hibernate": hibernate,
    "django": python_project("django", ["Django==5.2.*", "psycopg[binary]"],
                             "import django, psycopg; assert django.VERSION[:2] == (5, 2)"),
    "dbt": python_project("dbt", ["dbt-core==1.10.*", "dbt-postgres==1.10.*"],
                          "import dbt.version, dbt.adapters.postgres"),
    # Last: it makes what the others do not expect.
    "pg_dump": pg_dump,
}


def main():
    named = sys.argv[1:]
    is_but = named[:1] == ["--but"]
    named = named[is_but:]
    wanted = [name for name in CLIENTS if name not in named] if is_but else named or list(CLIENTS)
    unknown = [name for name in named if name not in CLIENTS]
    if unknown:
        sys.exit(f"there is no client {unknown[0]}; there are {', '.join(CLIENTS)}")
    WORK.mkdir(parents=True, exist_ok=True)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        server = start_server(Path(folder))
        try:
            for name in wanted:
                try:
                    CLIENTS[name]()
                    print(f"{name}: ok")
                except Skipped as reason:
                    print(f"{name}: SKIPPED: {reason}")
                except (AssertionError, subprocess.SubprocessError) as error:
                    failed.append(name)
                    print(f"{name}: FAILED: {error}")
                assert server.poll() is None, "the server has ended"
        finally:
            code = servers.stop(server)
    if failed or code != 0:
        sys.exit(f"failed: {', '.join(failed)}; the server ended with {code}")


if __name__ == "__main__":
    main()
