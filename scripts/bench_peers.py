#!/usr/bin/env python3
"""Benchmarks of Cleave on one machine against DuckDB, PostgreSQL and SQLite; all figures of a table come from one run.

    scripts/bench_peers.py queries [--scale S]   TPC-H Q1, Q6, filter and aggregate, warm, host-only: DuckDB
    scripts/bench_peers.py joins [--scale S] [--queries DIR] [--only 1a,6a]
                                                 joins of many tables, warm, host-only, planning included: DuckDB
    scripts/bench_peers.py load [--scale S]      CSV into tables with their indexes: DuckDB, PostgreSQL
    scripts/bench_peers.py points [--scale S]    rows by primary and by secondary key, warm, one thread: SQLite,
                                                 PostgreSQL

Needs `cargo build --release` and `scripts/install_peers.sh duckdb postgresql sqlite`; runs under the Python that the
latter made: target/peers/python/bin/python. Timing mode: unthrottled. Data is generated once into target/bench and
kept.
"""

import argparse
import os
import pwd
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench
from bench import CLEAVE, WORK, interval, run, warm_times
from queries import for_duckdb

QUERIES = {
    "Q1": """SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
        sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
        sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, avg(l_quantity) AS avg_qty,
        avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY
        GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    "Q6": """SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
        AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "filter, aggregate": """SELECT l_shipmode, count(*), sum(l_extendedprice), max(l_partkey) FROM lineitem
        WHERE l_quantity > 25 AND l_shipinstruct = 'DELIVER IN PERSON' GROUP BY l_shipmode""",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark", choices=["queries", "joins", "load", "points"])
    parser.add_argument("--scale", type=float, help="TPC-H scale; lineitem has 6 million rows at 1; of joins, of the "
                                                    "IMDb-like data")
    parser.add_argument("--queries", type=Path, default=bench.ROOT / "crates/cleave/tests/imdb_queries",
                        help="joins: folder of .sql files, as the Join Order Benchmark's")
    parser.add_argument("--only", help="joins: names of queries, separated by commas")
    options = parser.parse_args()
    if not CLEAVE.exists():
        sys.exit(f"{CLEAVE} is not there: run `cargo build --release`")
    WORK.mkdir(parents=True, exist_ok=True)
    if options.benchmark == "joins":
        joins(options)
        return
    {"queries": queries, "load": load, "points": points}[options.benchmark](options.scale)


# --- queries: host-only against DuckDB -----------------------------------------------------------

def queries(scale):
    import duckdb

    scale = scale or 1.7  # 10 million rows
    place = WORK / f"tpch-{scale}"
    bench.generate(place, scale)
    connection = duckdb.connect(str(bench.duckdb_file(scale)), read_only=True)
    threads = os.cpu_count()
    connection.execute(f"SET threads = {threads}")
    rows = connection.execute("SELECT count(*) FROM lineitem").fetchone()[0]
    print(f"TPC-H {scale}, {rows / 1e6:.1f} million rows, warm, host-only, {threads} threads, DuckDB "
          f"{duckdb.__version__}; timing mode: unthrottled")
    print(f"{'statement':20} {'Cleave ms':>10} {'95 %':>17} {'DuckDB ms':>10} {'95 %':>17} {'speed':>7}")
    for name, query in QUERIES.items():
        ours, theirs = warm_times(place, query, ["stack=native", "split=host", f"threads={threads}"], connection)
        a, b = statistics.median(ours), statistics.median(theirs)
        (al, ah), (bl, bh) = interval(sorted(ours)), interval(sorted(theirs))
        print(f"{name:20} {a:10.1f} {al:7.1f}..{ah:8.1f} {b:10.1f} {bl:7.1f}..{bh:8.1f} {b / a:6.2f}x")


# --- joins: of many tables, host-only, against DuckDB -----------------------------------------------

def joins(options):
    import duckdb

    scale, threads = options.scale or 0.1, os.cpu_count()
    place, file = bench.analyzed("imdb", scale)
    connection = duckdb.connect(str(file), read_only=True)
    connection.execute(f"SET threads = {threads}")
    wanted = options.only.split(",") if options.only else None
    files = [file for file in sorted(options.queries.glob("*.sql")) if wanted is None or file.stem in wanted]
    print(f"{len(files)} queries over IMDb-like data at {scale:g}, warm, host-only, {threads} threads, planning "
          f"included, DuckDB "
          f"{duckdb.__version__}; timing mode: unthrottled")
    print(f"{'query':10} {'Cleave ms':>10} {'95 %':>17} {'planning':>9} {'DuckDB ms':>10} {'95 %':>17} {'speed':>7}")
    ratios = {}
    for file in files:
        query = file.read_text().strip().rstrip(";")
        ours, theirs, planning = [], [], []
        statements = [f"EXPLAIN (ANALYZE, FORMAT JSON) {query}"] * 3
        settings = ["stack=native", "split=host", f"threads={threads}"]
        for _ in range(bench.ROUNDS):
            line = bench.explain_lines(place, statements, settings, ["--buffer-pool", "4GB"])[-1]
            measured = bench.figures(line)
            ours.append(measured["ms"] + measured["planning_ms"])
            planning.append(measured["planning_ms"])
            theirs.append(duckdb_ms(connection, for_duckdb(query)))
        a, b = statistics.median(ours), statistics.median(theirs)
        ratios[file.stem] = b / a
        (al, ah), (bl, bh) = interval(sorted(ours)), interval(sorted(theirs))
        print(f"{file.stem:10} {a:10.1f} {al:7.1f}..{ah:8.1f} {statistics.median(planning):9.1f} {b:10.1f} "
              f"{bl:7.1f}..{bh:8.1f} "
              f"{b / a:6.2f}x", flush=True)
    if ratios:
        worst = min(ratios, key=ratios.get)
        print(f"geometric mean {statistics.geometric_mean(ratios.values()):.2f}x, {worst} least with "
              f"{ratios[worst]:.2f}x")


def duckdb_ms(connection, query):
    """Milliseconds of a statement that has just run twice."""
    connection.execute(query).fetchall()
    connection.execute(query).fetchall()
    start = time.perf_counter()
    connection.execute(query).fetchall()
    return (time.perf_counter() - start) * 1e3


# --- load: CSV into tables with their indexes ----------------------------------------------------

LOAD_ROUNDS = 3
TABLES = {
    "orders": ("PRIMARY KEY (o_orderkey)", ["o_custkey"]),
    "lineitem": ("PRIMARY KEY (l_orderkey, l_linenumber)", ["l_partkey", "l_shipdate"]),
}


def load(scale):
    scale = scale or 0.5
    folder = WORK / f"tpch-{scale}-csv"
    if not (folder / "done").exists():
        run([CLEAVE, "generate", "tpch", "--scale", scale, "--out", folder])
        (folder / "done").write_text("")
    rows = sum(line_count(folder / f"{table}.csv") for table in TABLES)
    size = sum((folder / f"{table}.csv").stat().st_size for table in TABLES)
    print(f"TPC-H {scale}, {' and '.join(TABLES)}: {rows / 1e6:.2f} million rows, {size / 1e6:.0f} MB of CSV, "
          f"primary keys "
          f"and {sum(len(i) for _, i in TABLES.values())} indexes; medians of {LOAD_ROUNDS}; timing mode: unthrottled")
    ways = {"Cleave, COPY + CREATE INDEX": load_cleave, "Cleave, indexes first": load_cleave_indexes_first,
            "DuckDB, COPY, no index": load_duckdb, "PostgreSQL, COPY + CREATE INDEX": load_postgresql}
    seconds = {way: [] for way in ways}
    with PostgreSQL() as server:
        for _ in range(LOAD_ROUNDS):
            for way, action in ways.items():
                seconds[way].append(action(folder, server))
    for way, times in seconds.items():
        median = statistics.median(times)
        print(f"{way:34} {median:7.2f} s  {rows / median / 1e6:6.2f} million rows/s  "
              f"({min(times):.2f} to {max(times):.2f})")


def line_count(path):
    with open(path, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def definitions(folder, table):
    """CREATE TABLE of one table, without its keys."""
    text = (folder / "schema.sql").read_text()
    for statement in text.split(";"):
        if f"table {table} " in " ".join(statement.lower().replace("(", " ( ").split()):
            return statement.strip() + ";"
    sys.exit(f"{folder}/schema.sql does not create {table}")


def indexes(table):
    return [f"CREATE INDEX {column}_index ON {table} ({column});" for column in TABLES[table][1]]


def load_cleave(folder, _server, indexes_first=False):
    place = WORK / "load"
    shutil.rmtree(place, ignore_errors=True)
    script = []
    for table in TABLES:
        copy = f"COPY {table} FROM '{folder}/{table}.csv' (FORMAT csv);"
        steps = [*indexes(table), copy] if indexes_first else [copy, *indexes(table)]
        script += [definitions(folder, table), *steps]
    start = time.perf_counter()
    run([CLEAVE, "sql", "--create", "--db", place, "-c", "\n".join(script)], quiet=True)
    seconds = time.perf_counter() - start
    shutil.rmtree(place)
    return seconds


def load_cleave_indexes_first(folder, server):
    return load_cleave(folder, server, indexes_first=True)


def load_duckdb(folder, _server):
    import duckdb

    file = WORK / "load.duckdb"
    file.unlink(missing_ok=True)
    start = time.perf_counter()
    connection = duckdb.connect(str(file))
    connection.execute(f"SET threads = {os.cpu_count()}")
    for table in TABLES:
        connection.execute(without_key(definitions(folder, table)))
        connection.execute(f"COPY {table} FROM '{folder}/{table}.csv' (HEADER false)")
    connection.execute("CHECKPOINT")
    connection.close()
    seconds = time.perf_counter() - start
    file.unlink()
    return seconds


def load_postgresql(folder, server):
    server.sql("DROP TABLE IF EXISTS orders, lineitem;")
    script = ""
    for table, (key, _) in TABLES.items():
        script += without_key(definitions(folder, table))
        script += f"\n\\copy {table} FROM '{folder}/{table}.csv' (FORMAT csv)\n"
        script += f"ALTER TABLE {table} ADD {key};" + "".join(indexes(table))
    start = time.perf_counter()
    server.sql(script)
    return time.perf_counter() - start


def without_key(definition):
    """The same CREATE TABLE without PRIMARY KEY, which these systems build faster afterwards, or not at all."""
    lines = [line for line in definition.splitlines() if not line.strip().lower().startswith("primary key")]
    text = "\n".join(lines).replace(" PRIMARY KEY", "").replace(" primary key", "")
    head, _, tail = text.rpartition(")")
    return head.rstrip().rstrip(",") + "\n)" + tail


# --- points: rows by key -------------------------------------------------------------------------

LOOKUPS = 50_000


def points(scale):
    """Statements as text through each program's own shell, minus the program's start-up; PostgreSQL through pgbench."""
    scale = scale or 0.5
    folder = WORK / f"tpch-{scale}-csv"
    if not (folder / "done").exists():
        run([CLEAVE, "generate", "tpch", "--scale", scale, "--out", folder])
        (folder / "done").write_text("")
    rows = line_count(folder / "orders.csv")
    place, lite = WORK / "points", WORK / "points.sqlite"
    shutil.rmtree(place, ignore_errors=True)
    lite.unlink(missing_ok=True)
    definition, index = definitions(folder, "orders"), "CREATE INDEX o_custkey_index ON orders (o_custkey);"
    load_csv = f"COPY orders FROM '{folder}/orders.csv' (FORMAT csv);"
    run([CLEAVE, "sql", "--create", "--db", place, "-c", f"{definition} {load_csv} {index}"], quiet=True)
    script = f"{definition}\n.mode csv\n.import {folder}/orders.csv orders\n{index}\n"
    subprocess.run(["sqlite3", str(lite)], input=script, text=True, check=True)
    print(f"TPC-H {scale}, orders, {rows / 1e6:.2f} million rows, {LOOKUPS} look-ups of three columns by random keys, "
          "warm, one client; timing mode: unthrottled")
    print(f"{'key':24} {'Cleave us':>10} {'SQLite us':>10} {'speed':>7} {'PostgreSQL us':>14} {'speed':>7}")
    with PostgreSQL() as server:
        server.sql(without_key(definition) + f"\n\\copy orders FROM '{folder}/orders.csv' (FORMAT csv)\n"
                   f"ALTER TABLE orders ADD PRIMARY KEY (o_orderkey); {index} ANALYZE orders;")
        for name, column, keys in (("primary, o_orderkey", "o_orderkey", [k * 32 + 1 for k in range(rows // 8)]),
                                   ("secondary, o_custkey", "o_custkey", range(1, int(150_000 * scale)))):
            query = f"SELECT o_orderkey, o_totalprice, o_orderdate FROM orders WHERE {column} = "
            lines = [f"{query}{random.choice(keys)};\n" for _ in range(LOOKUPS)]
            ours, sqlite = [], []
            for _ in range(5):
                ours.append(shell_us([CLEAVE, "sql", "--db", place, "--format", "csv", "--buffer-pool", "2GB"], lines))
                sqlite.append(shell_us(["sqlite3", "-csv", lite], lines))
            postgres = server.lookup_us(query, keys)
            a, b = statistics.median(ours), statistics.median(sqlite)
            print(f"{name:24} {a:10.1f} {b:10.1f} {b / a:6.2f}x {postgres:14.1f} {postgres / a:6.2f}x")
    shutil.rmtree(place)
    lite.unlink()


def shell_us(command, lines):
    """Microseconds a statement: all statements minus a tenth of them, so that neither start-up nor first reads
    count."""
    def seconds(lines):
        start = time.perf_counter()
        subprocess.run([str(part) for part in command], input="".join(lines), text=True, check=True,
                       stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    tenth = lines[: len(lines) // 10]
    return (seconds(lines) - seconds(tenth)) / (len(lines) - len(tenth)) * 1e6


class PostgreSQL:
    """A server of its own in a folder of its own, on a Unix socket, with memory for the builds."""

    def __enter__(self):
        binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not binaries:
            sys.exit("PostgreSQL is not there: run `scripts/install_peers.sh postgresql`")
        self.bin = binaries[-1].parent
        # The server refuses to run as root, and a socket's path must be short.
        self.user = "postgres" if os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="cleave-pg-"))
        if self.user:
            account = pwd.getpwnam(self.user)
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        self.run([self.bin / "initdb", "-D", self.folder / "data", "-A", "trust", "-E", "UTF8", "--locale=C"])
        options = (f"-k {self.folder} -c listen_addresses= -c shared_buffers=1GB -c maintenance_work_mem=512MB "
                   "-c max_wal_size=8GB -c checkpoint_timeout=30min")
        self.run([self.bin / "pg_ctl", "-D", self.folder / "data", "-w", "-o", options, "-l",
                  self.folder / "log", "start"])
        return self

    def __exit__(self, *_):
        self.run([self.bin / "pg_ctl", "-D", self.folder / "data", "-m", "immediate", "stop"])
        shutil.rmtree(self.folder)

    def run(self, command):
        subprocess.run([str(part) for part in command], check=True, user=self.user, cwd="/",
                       stdout=subprocess.DEVNULL)

    def sql(self, script):
        user = self.user or pwd.getpwuid(os.getuid()).pw_name
        subprocess.run(["psql", "-h", str(self.folder), "-U", user, "-q", "-v", "ON_ERROR_STOP=1", "-d", "postgres"],
                       input=script, text=True, check=True, stdout=subprocess.DEVNULL)


    def lookup_us(self, query, keys):
        """Microseconds a look-up, one client of pgbench on the Unix socket, prepared statements."""
        script = self.folder / "lookup.sql"
        script.write_text(f"\\set n random(0, {len(keys) - 1})\n{query}{keys[0]} + :n * {keys[1] - keys[0]};\n")
        user = self.user or pwd.getpwuid(os.getuid()).pw_name
        output = subprocess.run(
            ["pgbench", "-h", str(self.folder), "-U", user, "-n", "-M", "prepared", "-c", "1", "-T", "5", "-f",
             str(script), "postgres"], check=True, capture_output=True, text=True).stdout
        return 1e3 * float(re.search(r"latency average = ([0-9.]+) ms", output).group(1))


if __name__ == "__main__":
    main()
