"""Experiments of the package of Python: its wheel, its import, rows to a client, data frames, and files.

Each figure of rows, frames and files comes from a new process (`process`): the first run of a statement in it is set
against the first run of the peer in its own, and runs after it against the peer's.
"""

import shutil
import statistics
import sys
import time

import bench
import servers

from . import pythons

# Interpreters that are started for one figure.
STARTS = 5
IMPORTED = ["cleave", "duckdb"]
FIRST_QUERY = "import cleave; print(cleave.connect(':memory:').execute('SELECT 6 * 7').fetchall())"

SEEN = ["CREATE TABLE seen (id int NOT NULL, amount double precision, note text, day date)",
        "INSERT INTO seen SELECT n, n * 0.25, 'note no. ' || n, DATE '2000-01-01' + n % 10000 "
        "FROM generate_series(1, {rows}) AS s (n)"]
ALL_ROWS = "SELECT id, amount, note, day FROM seen"
BUFFERS = "512MB"

OVER_FRAME = {
    "groups": "SELECT k, sum(a), sum(b), count(*) FROM frame GROUP BY k ORDER BY k",
    "filter": "SELECT count(*), sum(a), sum(b) FROM frame WHERE a < 250000 AND b > 0.5",
    "groups of text": "SELECT s, count(*), sum(b) FROM frame GROUP BY s ORDER BY s",
}
OVER_LINEITEM = {
    "groups": "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice * (1 - l_discount)), count(*) "
              "FROM {source} WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus "
              "ORDER BY l_returnflag, l_linestatus",
    "filter": "SELECT sum(l_extendedprice * l_discount) FROM {source} WHERE l_shipdate >= DATE '1994-01-01' "
              "AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
}
COLUMNS = ("l_orderkey l_partkey l_suppkey l_linenumber l_quantity l_extendedprice l_discount l_tax l_returnflag "
           "l_linestatus l_shipdate l_commitdate l_receiptdate l_shipinstruct l_shipmode l_comment").split()


def wheel(run):
    """A new environment, the wheel in it, and the first query."""
    run.rounds("wheel", {}, {"cleave": ("Cleave", lambda: installed(run))})


def installed(run):
    place = run.folder / "environment"
    marks = [time.perf_counter()]
    for command in ([sys.executable, "-m", "venv", place],
                    [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
                     "--no-cache-dir", run.python.wheel],
                    [place / "bin" / "python", "-c", FIRST_QUERY]):
        said = servers.output(command, cwd="/")
        marks.append(time.perf_counter())
    if said.strip() != "[(42,)]":
        raise AssertionError(f"the first query gives {said}")
    shutil.rmtree(place)
    made, wheel_in, answered = (after - before for before, after in zip(marks, marks[1:]))
    return {"total_s": marks[-1] - marks[0], "environment_s": made, "install_s": wheel_in, "query_s": answered,
            "wheel_bytes": run.python.wheel.stat().st_size}


def imports(run):
    """A new interpreter that imports a package, less one that imports nothing."""
    run.rounds("import", {}, {name: (name, lambda name=name: imported(run.python.interpreter, name))
                              for name in IMPORTED})


def imported(interpreter, name):
    def seconds(code):
        return pythons.run_seconds(time.perf_counter, [interpreter, "-c", code])

    pythons.forget(pythons.package_files(interpreter, name))
    cold = seconds(f"import {name}") - seconds("pass")
    warm = [seconds(f"import {name}") - seconds("pass") for _ in range(STARTS)]
    return {"import_s": statistics.median(warm), "import_cold_s": cold}


def rows(run):
    """A million rows to a client: from a database of this process, and from PostgreSQL."""
    count, threads = run.options.rows, run.options.threads
    statements = [statement.format(rows=count) for statement in SEEN]
    place = str(run.folder / "seen")
    run.python.task("fill", system="Cleave", place=place, sql=[*statements, "ANALYZE"])

    def way(system, place, name):
        return system, lambda: run.python.task("rows", system=system, way=name, place=place, sql=ALL_ROWS,
                                               threads=threads)

    ways = {"Arrow": way("Cleave", place, "arrow"), "fetchall": way("Cleave", place, "fetchall")}
    server = None
    try:
        if run.options.without_postgresql:
            run.note("skipped psycopg: PostgreSQL is not there")
        else:
            folder = run.folder / "postgresql"
            folder.mkdir()
            server, port, user = servers.postgresql(folder, shared_buffers=BUFFERS)
            address = f"host=127.0.0.1 port={port} user={user} dbname=postgres"
            run.python.task("fill", system="PostgreSQL", place=address, sql=[*statements, "VACUUM ANALYZE seen"])
            ways |= {"psycopg": way("PostgreSQL", address, "text"),
                     "psycopg, binary": way("PostgreSQL", address, "binary")}
        run.rounds("rows", {}, ways)
    finally:
        if server:
            servers.stop(server, signal=2)


def frames(run):
    """Aggregates over a data frame of pandas and over a table of pyarrow."""
    for kind in ("pandas", "pyarrow"):
        for name, sql in OVER_FRAME.items():
            compare(run, "frames", {"object": kind, "query": name}, "frames", kind=kind,
                    count=run.options.frame_rows, sql=sql)


def files(run):
    """Aggregates over TPC-H's lineitem in files."""
    found = lineitem(run)
    for reader in ("read_csv", "read_parquet"):
        file = found[reader]
        for name, sql in OVER_LINEITEM.items():
            compare(run, "files", {"reader": reader, "query": name}, "files", file=str(file),
                    sql=sql.format(source=f"{reader}('{file}')"))


def compare(run, experiment, case, task, **arguments):
    """Runs a task with Cleave and with DuckDB, on as many threads."""
    run.rounds(experiment, case, {
        system: (system, lambda system=system: run.python.task(task, system=system, threads=run.options.threads,
                                                               **arguments))
        for system in ("Cleave", "DuckDB")})


def lineitem(run):
    """The same rows as text with a line of names, and as DuckDB's package writes Parquet; both are made once."""
    scale = run.options.scale
    folder = bench.WORK / f"people-lineitem-{scale:g}"
    found = {"read_csv": folder / "lineitem.csv", "read_parquet": folder / "lineitem.parquet"}
    if (folder / "done").exists():
        return found
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows_of = folder / "generated"
    servers.output([bench.CLEAVE, "generate", "tpch", "--scale", scale, "--out", rows_of])
    with found["read_csv"].open("wb") as named, (rows_of / "lineitem.csv").open("rb") as content:
        named.write(f"{','.join(COLUMNS)}\n".encode())
        shutil.copyfileobj(content, named, 1 << 20)
    run.python.task("parquet", schema=str(rows_of / "schema.sql"), table="lineitem", source=str(found["read_csv"]),
                    target=str(found["read_parquet"]))
    shutil.rmtree(rows_of)
    # What is not yet on the disk cannot be taken out of the page cache.
    pythons.forget(found.values())
    (folder / "done").write_text("")
    return found
