#!/usr/bin/env python3
"""Benchmarks of Cleave against named peers or limits; all figures of a table come from one run.

    scripts/bench.py selective [--scale S]   1 row in 100,000 over a capped 1 Gbit link, against embedded
    scripts/bench.py scan [--scale S]        one column summed, warm, host-only, against DuckDB
    scripts/bench.py cold [--scale S]        one column of lineitem, nothing cached, against the disk and DuckDB
    scripts/bench.py size [--scale S]        bytes without indexes, against DuckDB's file and Parquet with zstd
    scripts/bench.py index [--scale S]       growing numbers of rows found by an index of lineitem, against a scan
    scripts/bench.py memory [--scale S]      peak memory of a scan ten times the budgets, in a memory cgroup
    scripts/bench.py statistics [--scale S]  loads that end by gathering statistics, against loads that do not
    scripts/bench.py local                   calls and reads over shared memory, against embedded, TCP and the bare ring

Needs `cargo build --release`; `scan`, `cold` and `size` need `scripts/install_peers.sh duckdb` and run under its
Python. `cold` also needs `cargo build --release -p cleave-media --example read_scattered`, and root to empty the page
cache; `local` needs `cargo build --release --workspace --examples`. Data is generated once into target/bench and kept.
The output names the timing modes. Figures are medians of interleaved runs (each round runs every way once) with the
interval that holds 95 % of medians (order statistics).
"""

import argparse
import csv
import json
import os
import re
import resource
import secrets
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
CLEAVE = Path(os.environ.get("CLEAVE_BINARY", TARGET / "release" / "cleave"))
WORK = TARGET / "bench"
RATE = "1gbit"
RATE_BYTES = 125_000_000
ROUNDS = 9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["selective", "scan", "cold", "size", "index", "memory", "statistics", "local"]
    parser.add_argument("benchmark", choices=names)
    parser.add_argument("--scale", type=float, help="TPC-H scale; lineitem has 6 million rows at 1")
    options = parser.parse_args()
    if not CLEAVE.exists():
        sys.exit(f"{CLEAVE} is not there: run `cargo build --release`")
    WORK.mkdir(parents=True, exist_ok=True)
    benchmarks = {"selective": selective, "scan": scan, "cold": cold, "size": size, "index": index,
                  "memory": memory, "statistics": load_statistics, "local": local}
    benchmarks[options.benchmark](options.scale)


# --- selective: what a needle costs across a link ------------------------------------------------

def selective(scale):
    scale = scale or 1.5
    embedded = WORK / f"tpch-{scale}"
    generate(embedded, scale)
    with Device(WORK / f"device-{scale}") as device:
        remote = WORK / f"tpch-{scale}-remote"
        generate_beside(remote, scale, device)
        rows = count(embedded, "SELECT count(*) FROM lineitem")
        size = (embedded / "device-0.media").stat().st_size
        step = 99_991  # a prime: 1 row in 100,000
        query = ("SELECT l_orderkey, l_linenumber, l_comment FROM lineitem "
                 f"WHERE (l_orderkey * 7 + l_linenumber) % {step} = 0")
        ping = "SELECT n_name FROM nation WHERE n_nationkey = 7"
        ways = {
            "embedded, h0": (embedded, ["split=h0"]),
            "1 Gbit, h0": (remote, ["split=h0"]),
            "1 Gbit, host (native)": (remote, ["stack=native"]),
        }
        runs = {way: [] for way in ways}
        # The first round warms up caches that are no part of the claim: code, metadata.
        for round_number in range(ROUNDS + 1):
            for way, (place, settings) in ways.items():
                figures = analyze(place, query, settings)
                if round_number > 0:
                    runs[way].append(figures)
        result_bytes = len(query_csv(remote, query, ["split=h0"]))
    print(f"\n{rows} rows in lineitem, {size / 1e9:.2f} GB of pages; {query}")
    print(f"timing mode: unthrottled (embedded), capped at {RATE} (token bucket, loopback TCP with TLS)")
    print(f"{'way':24} {'ms':>9} {'95 %':>19} {'to host':>11} {'to device':>10}  rows")
    medians = {}
    for way, figures in runs.items():
        times = sorted(f["ms"] for f in figures)
        medians[way] = statistics.median(times)
        low, high = interval(times)
        print(f"{way:24} {medians[way]:9.1f} {low:9.1f}..{high:8.1f} {figures[-1]['received']:>11}"
              f" {figures[-1]['sent']:>10}  {figures[-1]['rows']}")
    ratio = medians["1 Gbit, h0"] / medians["embedded, h0"]
    received = bytes_of(runs["1 Gbit, h0"][-1]["received"])
    print(f"\ntime over embedded: {ratio:.2f}x (target 1.5x plus two round trips)")
    print(f"bytes to the host: {received:.0f}; result as CSV: {result_bytes}; "
          f"target result x 1.1 + 65536 = {result_bytes * 1.1 + 65536:.0f}")


# --- index: up to how many rows an index pays ----------------------------------------------------

def index(scale):
    scale = scale or 1.0
    embedded = WORK / f"tpch-{scale}-indexed"
    create = "CREATE INDEX IF NOT EXISTS lineitem_part ON lineitem (l_partkey)"
    generate(embedded, scale)
    shell_statement(embedded, create)
    with Device(WORK / f"device-{scale}-indexed") as device:
        remote = WORK / f"tpch-{scale}-remote-indexed"
        generate_beside(remote, scale, device)
        shell_statement(remote, create)
        rows = count(embedded, "SELECT count(*) FROM lineitem")
        print(f"\n{rows} rows in lineitem; timing mode: unthrottled (embedded), capped at {RATE}")
        print(f"{'':10} {'rows found':>11} {'one in':>8} {'index ms':>9} {'scan ms':>9} {'to host':>10}  used")
        for name, place in [("embedded", embedded), ("1 Gbit", remote)]:
            for parts in [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000]:
                query = ("SELECT count(*), sum(l_quantity), min(l_comment) FROM lineitem "
                         f"WHERE l_partkey BETWEEN 1000 AND {999 + parts}")
                found = count(embedded, query.replace(", sum(l_quantity), min(l_comment)", ""))
                times, used, received = {}, "", ""
                for setting in ["on", "off"]:
                    runs = []
                    for _ in range(ROUNDS):
                        runs.append(analyze(place, query, ["split=h0", f"index_scan={setting}"]))
                    times[setting] = statistics.median(run["ms"] for run in runs)
                    received = received or runs[-1]["received"]
                plan = run([CLEAVE, "sql", "--db", place, "--set", "split=h0", "-c", f"EXPLAIN {query}"], quiet=True)
                used = "by the scan" if "scan reads index" in plan else "planning" if "by index" in plan else "no"
                print(f"{name:10} {found:>11} {rows // max(found, 1):>8} {times['on']:9.1f} {times['off']:9.1f}"
                      f" {received:>10}  {used}")
    print("\nThe limits are ROWS_PER_PAGE and ROWS_PER_ENTRY in index_choice.rs: where the index is not used any "
          "more, the "
          "two times should be about the same.")


def shell_statement(place, statement):
    run([CLEAVE, "sql", "--db", place, "-c", statement], quiet=True)


# --- scan: what a warm column costs against DuckDB -----------------------------------------------

NUMBERS = ["l_partkey", "l_quantity", "l_extendedprice"]


def scan(scale):
    import duckdb

    scale = scale or 1.0
    place = WORK / f"tpch-{scale}"
    generate(place, scale)
    threads = os.cpu_count()
    connection = duckdb.connect(str(duckdb_file(scale)), read_only=True)
    connection.execute(f"SET threads = {threads}")
    settings = ["stack=native", "split=host", f"threads={threads}"]
    print(f"TPC-H {scale}, lineitem, warm, host-only, {threads} threads, DuckDB {duckdb.__version__}; "
          "timing mode: unthrottled")
    print(f"{'statement':44} {'Cleave ms':>10} {'95 %':>17} {'DuckDB ms':>10} {'95 %':>17} {'speed':>7}")
    # No bare min or max: the peer answers those from its statistics, without a scan.
    aggregates = [f"{f}({c})" for c in NUMBERS for f in ("sum", "avg")]
    aggregates += ["max(l_partkey + 1)", "count(*) FILTER (WHERE l_shipdate > DATE '1995-06-17')"]
    queries = {aggregate: f"SELECT {aggregate} FROM lineitem" for aggregate in aggregates}
    for name, query in queries.items():
        ours, theirs = warm_times(place, query, settings, connection)
        a, b = statistics.median(ours), statistics.median(theirs)
        (al, ah), (bl, bh) = interval(sorted(ours)), interval(sorted(theirs))
        print(f"{name:44} {a:10.2f} {al:7.2f}..{ah:7.2f} {b:10.2f} {bl:7.2f}..{bh:7.2f} {b / a:6.2f}x")


def duckdb_file(scale):
    """DuckDB's own file with the same rows of lineitem."""
    import duckdb

    file = WORK / f"tpch-{scale}.duckdb"
    if not file.exists():
        csv_folder = WORK / f"tpch-{scale}-csv"
        run([CLEAVE, "generate", "tpch", "--scale", scale, "--out", csv_folder])
        connection = duckdb.connect(str(file))
        connection.execute((csv_folder / "schema.sql").read_text())
        connection.execute(f"COPY lineitem FROM '{csv_folder}/lineitem.csv' (HEADER false)")
        connection.close()
        shutil.rmtree(csv_folder)
    return file


def warm_times(place, query, settings, connection):
    """Milliseconds of Cleave and of DuckDB, alternating: each time the statement has just run twice in the same
    program."""
    statements = [f"EXPLAIN (ANALYZE, FORMAT JSON) {query}"] * 3
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(figures(explain_lines(place, statements, settings, ["--buffer-pool", "4GB"])[-1])["ms"])
        connection.execute(query).fetchall()
        connection.execute(query).fetchall()
        start = time.perf_counter()
        connection.execute(query).fetchall()
        theirs.append((time.perf_counter() - start) * 1e3)
    return ours, theirs


# --- cold: what a column costs that nobody has read ---------------------------------------------------

READER = TARGET / "release" / "examples" / "read_scattered"
COLUMNS = ["l_extendedprice", "l_partkey", "l_shipdate"]


def cold(scale):
    import duckdb

    scale = scale or 1.5
    reader = Path(os.environ.get("READ_SCATTERED", READER))
    if not reader.exists():
        sys.exit(f"{reader} is not there: run `cargo build --release -p cleave-media --example read_scattered`")
    place = WORK / f"tpch-{scale}"
    generate(place, scale)
    file = duckdb_file(scale)
    threads = os.cpu_count()
    print(f"TPC-H {scale}, one column of lineitem (16 columns), nothing cached, {threads} threads, "
          f"DuckDB {duckdb.__version__}; timing mode: unthrottled")
    print(f"{'statement':22} {'MB':>6} {'disk ms':>9} {'host ms':>9} {'device ms':>9} {'DuckDB ms':>9}"
          f" {'host/disk':>9} {'device/disk':>11} {'host/DuckDB':>11}")
    for column in COLUMNS:
        value = f"count(*) FILTER (WHERE {column} > DATE '1995-06-17')" if column == "l_shipdate" else f"sum({column})"
        query = f"SELECT {value} FROM lineitem"
        times = {"disk": [], "host": [], "h0": [], "duckdb": []}
        for _ in range(ROUNDS):
            for split in ["host", "h0"]:
                drop_caches()
                # Its code is in memory, as that of the peer is, which is a library of this process.
                CLEAVE.read_bytes()
                line = explain_lines(place, [f"EXPLAIN (ANALYZE, FORMAT JSON) {query}"], [f"split={split}"])[0]
                times[split].append(figures(line)["ms"])
                notes = {(n["title"], e["name"]): e["value"] for n in explained(line)["Notes"] for e in n["entries"]}
                media_bytes = bytes_of(notes["Measured", "bytes at media"])
                pages = int(notes["Pages", "lineitem"].split(" of ")[0])
            drop_caches()
            said = run([reader, place / "device-0.media", int(media_bytes / pages), pages, 64], quiet=True)
            times["disk"].append(float(said.split()[0]))
            drop_caches()
            connection = duckdb.connect(str(file), read_only=True)
            connection.execute(f"SET threads = {threads}")
            start = time.perf_counter()
            connection.execute(query).fetchall()
            times["duckdb"].append((time.perf_counter() - start) * 1e3)
            connection.close()
        disk, host, device, peer = (statistics.median(times[way]) for way in ["disk", "host", "h0", "duckdb"])
        print(f"{column:22} {media_bytes / 1e6:6.1f} {disk:9.1f} {host:9.1f} {device:9.1f} {peer:9.1f}"
              f" {host / disk:8.2f}x {device / disk:10.2f}x {host / peer:10.2f}x")
        for way, found in times.items():
            low, high = interval(sorted(found))
            print(f"    {way:8} {low:8.1f} to {high:8.1f}")


def drop_caches():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


# --- size: what the data takes -------------------------------------------------------------------

def size(scale):
    import duckdb

    print(f"MB without indexes; DuckDB {duckdb.__version__}: blocks of the table, below that its whole file; Parquet "
          f"with "
          "zstd as DuckDB writes it; Cleave: blocks in use, whole MB")
    print(f"{'table':22} {'rows':>10} {'Cleave':>8} {'DuckDB':>8} {'Parquet':>8}")
    for benchmark, benchmark_scale in [("tpch", scale or 1.0), ("imdb", (scale or 1.0) / 10)]:
        folder = WORK / f"{benchmark}-{benchmark_scale}-csv"
        if not (folder / "done").exists():
            run([CLEAVE, "generate", benchmark, "--scale", benchmark_scale, "--out", folder])
            (folder / "done").write_text("")
        # Keys would make indexes on either side.
        schema = re.sub(r",\s*PRIMARY KEY\s*\([^)]*\)", "", (folder / "schema.sql").read_text())
        schema = schema.replace(" PRIMARY KEY", " NOT NULL")
        place, file = WORK / f"{benchmark}-size", WORK / f"{benchmark}-size.duckdb"
        shutil.rmtree(place, ignore_errors=True)
        file.unlink(missing_ok=True)
        connection = duckdb.connect(str(file))
        connection.execute(schema)
        run([CLEAVE, "sql", "--create", "--db", place, "-c", schema], quiet=True)
        totals = [0, 0.0, 0.0]
        for table in re.findall(r"CREATE TABLE (\w+)", schema):
            source = folder / f"{table}.csv"
            run([CLEAVE, "load", "--db", place, table, source], quiet=True)
            used = used_megabytes(place)
            parquet = WORK / f"{table}.parquet"
            rows = connection.execute(f"COPY {table} FROM '{source}' (HEADER false)").fetchone()[0]
            connection.execute(f"COPY {table} TO '{parquet}' (FORMAT parquet, COMPRESSION zstd)")
            blocks = connection.execute("CHECKPOINT; SELECT count(DISTINCT block_id) * 0.262144 FROM "
                                        f"pragma_storage_info('{table}') WHERE block_id >= 0").fetchone()[0]
            figures_of = [used - totals[0], float(blocks), parquet.stat().st_size / 1e6]
            parquet.unlink()
            totals = [total + figure for total, figure in zip(totals, figures_of)]
            print(f"{table:22} {rows:10} {figures_of[0]:8} {figures_of[1]:8.1f} {figures_of[2]:8.1f}", flush=True)
        connection.close()
        whole = file.stat().st_size / 1e6
        print(f"{benchmark + ' ' + str(benchmark_scale):33} {totals[0]:8} {whole:8.1f} {totals[2]:8.1f}   "
              f"{totals[0] / whole:.2f}x DuckDB's file, {totals[0] / totals[2]:.2f}x Parquet")


def used_megabytes(place):
    command = [str(CLEAVE), "device", "list", "--db", str(place)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(re.search(r"(\d+) MB in use", listed)[1])


# --- memory: a scan ten times larger than the budgets --------------------------------------------

def memory(scale):
    scale = scale or 1.5
    place = WORK / f"tpch-{scale}"
    generate(place, scale)
    size = (place / "device-0.media").stat().st_size
    limit = 4 * (64 << 20)
    print(f"{size / 1e9:.2f} GB of pages; buffer pool 64 MiB, query memory 64 MiB, device memory 64 MiB; "
          f"limit: these and 64 MiB, {limit >> 20} MiB, the program itself included")
    baseline = peak(place, "SELECT 1", ["split=host"], None)
    print(f"the program alone (SELECT 1): {baseline >> 20} MiB")
    for name, settings in {"host, native": ["stack=native"], "host, blk": ["stack=blk"],
                           "h0, embedded device": ["split=h0"]}.items():
        query = ("SELECT sum(l_partkey), max(l_comment), max(l_extendedprice), min(l_shipdate) "
                 "FROM lineitem")
        used = peak(place, query, settings, limit)
        verdict = "killed by the cgroup" if used is None else f"{used >> 20} MiB"
        print(f"{name:22} peak {verdict}")


def peak(place, query, settings, limit):
    """Peak resident bytes of one run, in a memory cgroup of `limit` if the system has one."""
    command = [CLEAVE, "sql", "--db", place, "--buffer-pool", "64MB", "--query-memory", "64MB",
               "--set", "device_memory=64MB"]
    for setting in settings:
        command += ["--set", setting]
    group = make_cgroup(limit) if limit else None

    def enter():
        if group:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    process = subprocess.Popen([str(c) for c in command + ["-c", query]], stdout=subprocess.DEVNULL,
                               preexec_fn=enter)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if group:
        group.rmdir()
    if process.returncode == -signal.SIGKILL:
        return None
    if process.returncode != 0:
        sys.exit(f"{query} failed with {settings}: exit code {process.returncode}")
    return usage.ru_maxrss * 1024


def make_cgroup(limit):
    for parent, name in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
                         (Path("/sys/fs/cgroup"), "memory.max")):
        group = parent / "cleave-bench"
        try:
            group.mkdir(exist_ok=True)
            (group / name).write_text(str(limit))
            return group
        except OSError:
            continue
    print("no memory cgroup here: the limit is compared, not enforced")
    return None


# --- statistics: what they add to a load --------------------------------------------------------

def load_statistics(scale):
    scale = scale or 0.2
    folder, place = WORK / f"tpch-{scale}-csv", WORK / "loaded"
    if not folder.exists():
        run([CLEAVE, "generate", "tpch", "--scale", scale, "--out", folder])
    print(f"loads of TPC-H {scale:g} from CSV, CPU time of the program, {ROUNDS} interleaved rounds; unthrottled")
    for table in ("lineitem", "orders"):
        used = {"on": [], "off": []}
        for _ in range(ROUNDS):
            for setting, times in used.items():
                shutil.rmtree(place, ignore_errors=True)
                run([CLEAVE, "sql", "--create", "--db", place, "-f", folder / "schema.sql"], quiet=True)
                run([CLEAVE, "sql", "--db", place, "-c", f"ALTER SYSTEM SET autoanalyze = {setting}"], quiet=True)
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                run([CLEAVE, "load", "--db", place, table, folder / f"{table}.csv"], quiet=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        with_them, without = (statistics.median(times) for times in used.values())
        print(f"{table}: {with_them:.3f} s with statistics, {without:.3f} s without: "
              f"{(with_them / without - 1) * 100:+.1f} %")
    shutil.rmtree(place)


# --- local: what a call costs through shared memory ------------------------------------------------

EXAMPLES = TARGET / "release" / "examples"


def local(_):
    figures, ring = EXAMPLES / "link_figures", EXAMPLES / "ring_figures"
    for program in (figures, ring):
        if not program.exists():
            sys.exit(f"{program} is not there: run `cargo build --release --workspace --examples`")
    # In memory, so that neither side waits for a disk; without TLS, so that neither side enciphers.
    memory = Path("/dev/shm") if Path("/dev/shm").is_dir() else WORK
    place = memory / f"cleave-bench-{os.getpid()}"
    place.mkdir()
    try:
        token, port_file = place / "token", place / "port"
        token.write_text(secrets.token_hex(16))
        token.chmod(0o600)
        command = [CLEAVE, "device-process", "--media", place / "beside.media", "--local", place / "socket",
                   "--listen", "127.0.0.1:0", "--token-file", token, "--port-file", port_file,
                   "--until-stdin-closes"]
        process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 30
            while not port_file.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit("the device process does not start")
                time.sleep(0.05)
            print(f"whole calls, media in {memory}, a `cleaved` process beside this one; timing mode: unthrottled; "
                  f"medians of "
                  "9 interleaved rounds, and the second and eighth of them")
            print(run([figures, place / "own.media", place / "socket", port_file.read_text().strip(), token]))
        finally:
            process.kill()
            process.wait()
        print("the ring alone, two threads that spin:")
        print(run([ring]))
    finally:
        shutil.rmtree(place)


# --- databases and devices -----------------------------------------------------------------------

def generate(place, scale, arguments=()):
    if (place / "done").exists():
        return
    print(f"generating TPC-H {scale} into {place.name} ...", flush=True)
    run([CLEAVE, "generate", "tpch", "--scale", scale, "--db", place, *arguments])
    (place / "done").write_text("")


def analyzed(generator, scale):
    """The same generated rows in Cleave's database, with statistics, and in DuckDB's file; both are made once and
    kept."""
    place = WORK / f"{generator}-{scale:g}-analyzed"
    file = WORK / f"{place.name}.duckdb"
    if not (place / "done").exists():
        shutil.rmtree(place, ignore_errors=True)
        run([CLEAVE, "generate", generator, "--scale", scale, "--db", place])
        run([CLEAVE, "sql", "--db", place, "-c", "ANALYZE"], quiet=True)
        (place / "done").write_text("")
    if not file.exists():
        import duckdb

        folder, unfinished = WORK / f"{place.name}-csv", file.with_suffix(".made")
        unfinished.unlink(missing_ok=True)
        # For the names and types of the tables: their rows come from the database, through a pipe, not as a file.
        run([CLEAVE, "generate", generator, "--scale", 0.01, "--out", folder])
        tables = sorted(file.stem for file in folder.glob("*.csv"))
        connection = duckdb.connect(str(unfinished))
        connection.execute((folder / "schema.sql").read_text())
        shutil.rmtree(folder)
        for table in tables:
            copy_table(place, table, connection)
        connection.execute("ANALYZE; CHECKPOINT")
        connection.close()
        unfinished.rename(file)
    return place, file


def copy_table(place, table, connection):
    """Fills DuckDB's table with the rows of Cleave's."""
    pipe = WORK / f"{place.name}-{table}.csv"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    command = shlex.join([str(CLEAVE), "sql", "--db", str(place), "-c", f"COPY {table} TO STDOUT (FORMAT csv)"])
    with subprocess.Popen(["sh", "-c", f"exec {command} > {shlex.quote(str(pipe))}"]) as rows:
        # Detecting the format would read the beginning twice.
        connection.execute(f"""COPY {table} FROM '{pipe}' (FORMAT csv, HEADER false, NULLSTR '',
            ALLOW_QUOTED_NULLS false, AUTO_DETECT false, DELIMITER ',', QUOTE '"', ESCAPE '"')""")
    pipe.unlink()
    if rows.returncode:
        sys.exit(f"{table} cannot be copied")


def generate_beside(place, scale, device):
    """As `generate`, on a device at its present address."""
    if (place / "done").exists():
        device.reattach(place)
        return
    shutil.rmtree(place, ignore_errors=True)
    shell(place, create=True)
    device.attach(place)
    generate(place, scale, ["--set", "default_device=beside"])


class Device:
    """A device process on loopback, with TLS and a token, as `cleave device-process`."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port_file = folder / "port"
        self.certificate, self.key = folder / "certificate.pem", folder / "key.pem"
        self.token = folder / "token"
        if not self.token.exists():
            self.token.write_text(secrets.token_hex(16))
            run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                 "-nodes", "-days", "30", "-subj", "/CN=cleave-bench", "-addext",
                 "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", self.key, "-out", self.certificate])
            self.token.chmod(0o600)
            self.key.chmod(0o600)

    def __enter__(self):
        # The address is part of what the database remembers: the same port again.
        port = self.port_file.read_text().strip() if self.port_file.exists() else "0"
        self.port_file.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [str(c) for c in [CLEAVE, "device-process", "--media", self.folder / "pages.media", "--listen",
                              f"127.0.0.1:{port}", "--token-file", self.token, "--tls-cert", self.certificate,
                              "--tls-key", self.key, "--port-file", self.port_file, "--until-stdin-closes"]],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not self.port_file.exists() or not self.port_file.read_text().strip():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit("the device process does not start")
            time.sleep(0.05)
        self.port = self.port_file.read_text().strip()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def attach(self, place):
        run([CLEAVE, "device", "add", "beside", "--db", place, "--address", f"127.0.0.1:{self.port}",
             "--token-file", self.token, "--ca", self.certificate, "--rate-cap", RATE])

    def reattach(self, place):
        """The database knows the address; this only checks that the device answers."""
        count(place, "SELECT count(*) FROM nation")


# --- running statements --------------------------------------------------------------------------

def shell(place, create=False):
    run([CLEAVE, "sql", "--create", "--db", place, "-c", "SELECT 1"], quiet=True)


def explain_lines(place, statements, settings, arguments=()):
    command = [CLEAVE, "sql", "--db", place, "--format", "csv", *arguments]
    for setting in settings:
        command += ["--set", setting]
    for statement in statements:
        command += ["-c", statement]
    output = run(command, quiet=True)
    rows = csv.reader(output.splitlines())
    return [row[0] for row in rows if row and row[0].startswith("[{")]


def explained(line):
    """The statement's object in what EXPLAIN (FORMAT JSON) prints, which is in PostgreSQL's shape: a list of one."""
    return json.loads(line)[0]


def analyze(place, query, settings):
    return figures(explain_lines(place, [f"EXPLAIN (ANALYZE, FORMAT JSON) {query}"], settings)[0])


def figures(line):
    notes = explained(line)["Notes"]
    measured = {e["name"]: e["value"] for n in notes if n["title"] == "Measured" for e in n["entries"]}
    crossed = measured.get("bytes over the link") or measured["bytes handed over in memory"]
    received, sent = re.match(r"(.*) to the host, (.*) to the devices", crossed).groups()
    return {"ms": milliseconds(measured["execution time"]),
            "planning_ms": milliseconds(measured["planning time"]), "rows": measured["rows"], "received": received,
            "sent": sent}


def milliseconds(text):
    number, unit = text.split()
    return float(number) * (1e3 if unit == "s" else 1.0)


def bytes_of(text):
    number, unit = text.split()
    return float(number) * {"B": 1, "kB": 1e3, "MB": 1e6}[unit]


def count(place, query):
    return int(run([CLEAVE, "sql", "--db", place, "--format", "csv", "-c", query], quiet=True).split()[-1])


def query_csv(place, query, settings):
    command = [CLEAVE, "sql", "--db", place, "--format", "csv"]
    for setting in settings:
        command += ["--set", setting]
    return run(command + ["-c", query], quiet=True).encode()


def run(command, quiet=False):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL if quiet else None)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(c) for c in command)} failed with exit code {done.returncode}")
    return done.stdout


def interval(ordered):
    """The order statistics that hold the median with about 95 %."""
    n = len(ordered)
    k = max(0, int(n / 2 - 0.98 * n ** 0.5))
    return ordered[k], ordered[n - 1 - k]


if __name__ == "__main__":
    main()
