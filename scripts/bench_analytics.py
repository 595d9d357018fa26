#!/usr/bin/env python3
"""Analytic queries over the wire, warm, beside DuckDB 2.0 on the same rows and as many threads.

    scripts/bench_analytics.py tpch [--scale 1] [--only 03,21] [--rounds 7]
    scripts/bench_analytics.py job [--scale 0.1] [--queries DIR]
    scripts/bench_analytics.py web [--scale 1]           one wide table of visits, 10 million rows at 1 (web_visits.py)
    scripts/bench_analytics.py tpch --beside PROGRAM     another build of Cleave, in the same rounds; peaks of memory

In each round every system runs the query once, in turns; before the first one, each runs it twice, and their rows are
compared. Printed for each query: medians of the time until all rows are there, the CPU time of a run, and how many
cores that keeps busy; then geometric means, and the ten queries in which Cleave is furthest behind. Cleave is a server
with the defaults and the settings given by `--set`; DuckDB runs in this process, so its rows do not cross a socket.
Needs `cargo build --release` (or CLEAVE_BINARY). DuckDB and psycopg are installed into target/analytics. Data is
generated once into target/bench and kept. Timing mode: unthrottled.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import bench
import servers
from queries import for_duckdb

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "target" / "analytics" / "python"
FOLDERS = {"tpch": ROOT / "scripts" / "tpch", "job": ROOT / "crates" / "cleave" / "tests" / "imdb_queries",
           "web": ROOT / "scripts" / "web"}
GENERATORS = {"tpch": "tpch", "job": "imdb"}
BUFFERS = "8GB"
WORST = 10
TICKS = os.sysconf("SC_CLK_TCK")


def main():
    options = arguments()
    in_own_python()
    threads = options.threads or os.cpu_count()
    bench.WORK.mkdir(parents=True, exist_ok=True)
    place, file = tables(options.benchmark, options.scale)
    wanted = options.only.split(",") if options.only else None
    files = [file for file in sorted((options.queries or FOLDERS[options.benchmark]).glob("*.sql"))
             if wanted is None or file.stem in wanted]
    if not files:
        sys.exit("there are no such queries")
    settings = [f"threads={threads}", *options.set]
    systems = {"Cleave": Cleave(bench.CLEAVE, place, settings)}
    if options.beside:
        copy = place.with_name(place.name + "-beside")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place, copy)
        systems["beside"] = Cleave(options.beside, copy, settings)
    systems["DuckDB"] = DuckDB(file, threads)
    try:
        report(options, systems, {file.stem: measured(file, systems, options.rounds) for file in files}, threads)
    finally:
        for system in systems.values():
            system.close()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=list(FOLDERS))
    parser.add_argument("--scale", type=float)
    parser.add_argument("--queries", type=Path, help="folder of .sql files, as the Join Order Benchmark's")
    parser.add_argument("--only", help="names of queries, separated by commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, help="of each system (default: cores of this machine)")
    parser.add_argument("--set", action="append", default=[], help="a setting of Cleave, as in index_scan=off")
    parser.add_argument("--beside", type=Path, help="another build of Cleave")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    options.scale = options.scale or {"tpch": 1.0, "job": 0.1, "web": 1.0}[options.benchmark]
    if not bench.CLEAVE.exists():
        parser.error(f"{bench.CLEAVE} is not there: run `cargo build --release`, or set CLEAVE_BINARY")
    return options


def tables(benchmark, scale):
    """The folder of Cleave's database and DuckDB's file, with the same rows."""
    if benchmark in GENERATORS:
        return bench.analyzed(GENERATORS[benchmark], scale)
    import duckdb
    import web_visits

    place, file = bench.WORK / f"web-{scale:g}", bench.WORK / f"web-{scale:g}.duckdb"
    if (place / "done").exists() and file.exists():
        return place, file
    shutil.rmtree(place, ignore_errors=True)
    file.unlink(missing_ok=True)
    rows = bench.WORK / "visits.parquet"
    with duckdb.connect(str(file)) as connection:
        connection.execute(web_visits.SCHEMA)
        count = int(web_visits.ROWS_PER_SCALE * scale)
        connection.execute(f"INSERT INTO visits {web_visits.rows(count)}")
        connection.execute("ANALYZE; CHECKPOINT")
        connection.execute(f"COPY visits TO '{rows}' (FORMAT parquet)")
    bench.run([bench.CLEAVE, "sql", "--create", "--db", place, "-c", web_visits.SCHEMA], quiet=True)
    bench.run([bench.CLEAVE, "load", "--db", place, "visits", rows])
    bench.run([bench.CLEAVE, "sql", "--db", place, "-c", "ANALYZE"], quiet=True)
    rows.unlink()
    (place / "done").write_text("")
    return place, file


def in_own_python():
    """Runs this command again by a Python that has both clients."""
    python = servers.python_with(["duckdb==2.0.0", "psycopg[binary]"], "import duckdb, psycopg", PYTHON)
    if python is None:
        sys.exit("duckdb and psycopg cannot be installed")
    if Path(sys.prefix) != PYTHON:
        sys.exit(subprocess.run([python, *sys.argv]).returncode)


# --- systems ---------------------------------------------------------------------------------------

class Cleave:
    """A server, and one session."""

    def __init__(self, program, place, settings):
        import psycopg

        given = [word for setting in settings for word in ("--set", setting)]
        self.process, port = servers.serve(program, place, "--trust", "--buffer-pool", BUFFERS, *given)
        self.session = psycopg.connect(host="127.0.0.1", port=port, user="bench", dbname=place.name, autocommit=True)
        # Parsed and planned each time, as a query that is asked once.
        self.session.prepare_threshold = None

    def run(self, query):
        return self.session.execute(query).fetchall()

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def peak_bytes(self, query):
        """The most memory that the server has while it runs `query`, its buffer pool included."""
        status = Path(f"/proc/{self.process.pid}")
        # proc(5): the peak is counted anew.
        (status / "clear_refs").write_text("5")
        self.run(query)
        peak = next(line for line in (status / "status").read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024

    def close(self):
        self.session.close()
        servers.stop(self.process)


class DuckDB:
    def __init__(self, file, threads):
        import duckdb

        self.connection = duckdb.connect(str(file), read_only=True)
        self.connection.execute(f"SET threads = {threads}")

    def run(self, query):
        return self.connection.execute(for_duckdb(query)).fetchall()

    def cpu_seconds(self):
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    def close(self):
        self.connection.close()


# --- measuring -------------------------------------------------------------------------------------

def measured(file, systems, rounds):
    """Milliseconds and CPU seconds of each system for the query in `file`."""
    query = file.read_text().strip().rstrip(";")
    compare(file.stem, query, systems)
    times = {name: [] for name in systems}
    cpu = dict.fromkeys(systems, 0.0)
    for number in range(rounds):
        names = list(systems)
        for name in names[number % len(names):] + names[:number % len(names)]:
            system = systems[name]
            before = system.cpu_seconds()
            begun = time.perf_counter()
            system.run(query)
            times[name].append((time.perf_counter() - begun) * 1e3)
            cpu[name] += system.cpu_seconds() - before
    figures = {name: {"ms": statistics.median(times[name]), "cpu_ms": cpu[name] * 1e3 / rounds,
                      "cores": cpu[name] * 1e3 / sum(times[name])} for name in systems}
    if "beside" in systems:
        for name in ("Cleave", "beside"):
            figures[name]["peak_bytes"] = systems[name].peak_bytes(query)
    shown = "  ".join(f"{name} {of['ms']:8.1f} ms {of['cpu_ms']:7.0f} CPU {of['cores']:4.2f} cores"
                      for name, of in figures.items())
    print(f"{file.stem:6} {shown}  {figures['DuckDB']['ms'] / figures['Cleave']['ms']:5.2f}x", flush=True)
    return figures


def compare(name, query, systems):
    """Warms each system up, and ends the program if their rows differ."""
    import compare_duckdb

    found = {}
    for system, running in systems.items():
        running.run(query)
        found[system] = compare_duckdb.normalised(query, running.run(query))
    wanted = found["DuckDB"]
    for system, rows in found.items():
        is_same = len(rows) == len(wanted) and all(
            len(mine) == len(theirs) and all(map(alike, mine, theirs)) for mine, theirs in zip(rows, wanted))
        if not is_same:
            sys.exit(f"{name}: {system} has other rows than DuckDB")


def alike(mine, theirs):
    """Quotients of decimals are rounded elsewhere, or are floats."""
    if mine is None or theirs is None or isinstance(mine, str):
        return mine == theirs
    return abs(float(mine) - float(theirs)) <= 1e-6 * max(abs(float(mine)), abs(float(theirs)), 1.0)


def report(options, systems, figures, threads):
    import duckdb

    commit = bench.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"]).strip()
    print(f"\n{options.benchmark} at {options.scale:g}, warm, {threads} threads, {options.rounds} interleaved rounds, "
          f"commit {commit}, DuckDB {duckdb.__version__}; timing mode: unthrottled")
    for name in systems:
        if name != "DuckDB":
            of = {query: by["DuckDB"]["ms"] / by[name]["ms"] for query, by in figures.items()}
            cpu = {query: by["DuckDB"]["cpu_ms"] / by[name]["cpu_ms"] for query, by in figures.items()
                   if by["DuckDB"]["cpu_ms"] and by[name]["cpu_ms"]}
            print(f"{name}: {statistics.geometric_mean(of.values()):.2f}x the speed of DuckDB (geometric mean), CPU "
                  f"{statistics.geometric_mean(cpu.values()):.2f}x, least " +
                  ", ".join(f"{query} {of[query]:.2f}x" for query in sorted(of, key=of.get)[:WORST]))
    for name in systems:
        longer = [by[name] for by in figures.values() if by[name]["ms"] > 20]
        if longer:
            print(f"{name}: {sum(of['cpu_ms'] for of in longer) / sum(of['ms'] for of in longer):.2f} cores busy in "
                  f"queries above 20 ms")
    if options.beside:
        beside(figures)
    if options.json:
        options.json.write_text(json.dumps({"commit": commit, "figures": figures}, indent=1))


def beside(figures):
    """This build against the other one."""
    of = {name: {query: by["Cleave"][name] / by["beside"][name] for query, by in figures.items()
                 if by["Cleave"][name] and by["beside"][name]} for name in ("ms", "cpu_ms", "peak_bytes")}
    for name, ratios in of.items():
        worst = sorted(ratios, key=ratios.get, reverse=True)[:WORST]
        most = ", ".join(f"{query} {ratios[query]:.2f}x" for query in worst)
        print(f"Cleave's {name}: {statistics.geometric_mean(ratios.values()):.2f}x of that of the build beside "
              f"(geometric mean), most {most}")
    peaks = [max(by[name]["peak_bytes"] for by in figures.values()) / 1e6 for name in ("Cleave", "beside")]
    print(f"most memory of a server: {peaks[0]:.0f} MB, beside {peaks[1]:.0f} MB")


if __name__ == "__main__":
    main()
