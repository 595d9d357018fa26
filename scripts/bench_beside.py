#!/usr/bin/env python3
"""Transactions and analytic queries at the same time, and single transactions against the limits of the medium.

    scripts/bench_beside.py freshness   from a commit to the answer of a query on the device that shows it, while
                                        others write
    scripts/bench_beside.py analytics   LinkBench with and without a join with GROUP BY on a device; each on a core
                                        of its own: server and writers on one, device and reader on the other
    scripts/bench_beside.py embedded    a point read and a durable update of one thread in one process, against bare
                                        write and fsync

Needs `cargo build --release` (or CLEAVE_BINARY; `analytics` takes `cleaved` from beside it) and psycopg, which it
installs into target/clients. Runs of what is compared alternate; a ratio is the median of the rounds' ratios.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import bench
import bench_workloads
import servers

MARKS = """
CREATE TABLE mark (id int PRIMARY KEY, n bigint NOT NULL, note text);
INSERT INTO mark SELECT i, 0, 'note ' || i FROM generate_series(1, 20000) AS g (i);
"""
# All of both tables, read, joined and grouped on the device.
JOIN = ("SELECT n.type, l.link_type, count(*), max(l.version) FROM linktable AS l JOIN nodetable AS n ON n.id = l.id1 "
        "GROUP BY n.type, l.link_type")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["freshness", "analytics", "embedded"])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--embedded-device", action="store_true", help="analytics on the server's own device, pinned "
        "with it")
    options = parser.parse_args()
    if not bench.CLEAVE.exists():
        sys.exit(f"{bench.CLEAVE} is not there: run `cargo build --release`, or set CLEAVE_BINARY")
    psycopg = servers.psycopg()
    if psycopg is None:
        sys.exit("psycopg cannot be installed")
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(dir=bench.TARGET if bench.TARGET.exists() else None) as folder:
        {"freshness": freshness, "analytics": analytics, "embedded": embedded}[options.command](psycopg, Path(folder),
            options)


def percentiles(times):
    times = sorted(times)
    return (f"median {statistics.median(times) * 1e3:.2f} ms, p99 {times[len(times) * 99 // 100] * 1e3:.2f} ms of "
            f"{len(times)}")


def freshness(psycopg, folder, options):
    database = folder / "db"
    (folder / "tables.sql").write_text(MARKS)
    servers.output([bench.CLEAVE, "sql", "--create", "--db", database, "-f", folder / "tables.sql"])
    process, port = servers.serve(bench.CLEAVE, database)
    connect = lambda: psycopg.connect(f"host=127.0.0.1 port={port} user=ada dbname=db", autocommit=True)
    is_over = threading.Event()

    def write(number):
        with connect() as connection:
            while not is_over.is_set():
                row = 10 + number * 1000 + time.monotonic_ns() % 1000
                connection.execute("UPDATE mark SET n = n + 1 WHERE id = %s", [row], prepare=True)

    def watch(seconds, count=0):
        """Seconds from the acknowledgement of each commit to the answer of a query that began then; each answer must
        show it."""
        times, end = [], time.monotonic() + seconds
        with connect() as writer, connect() as reader:
            reader.execute("SET split = ndp")
            reader.execute("SET stealing = off")
            while time.monotonic() < end:
                count += 1
                writer.execute("UPDATE mark SET n = %s WHERE id = 1", [count], prepare=True)
                start = time.monotonic()
                found = reader.execute("SELECT max(n) FROM mark WHERE id <= 1", prepare=True).fetchone()[0]
                times.append(time.monotonic() - start)
                assert found == count, f"{found} is seen after {count} was acknowledged"
        return times, count

    try:
        quiet, count = watch(options.seconds)
        threads = [threading.Thread(target=write, args=[number]) for number in range(options.clients)]
        for thread in threads:
            thread.start()
        busy, _ = watch(options.seconds * 2, count)
        is_over.set()
        for thread in threads:
            thread.join()
        print(f"every commit was seen by the first query after it; to its answer: alone {percentiles(quiet)}; "
              f"beside {options.clients} writers {percentiles(busy)}")
    finally:
        is_over.set()
        servers.stop(process)


def analytics(psycopg, folder, options):
    database, device = folder / "db", None
    servers.output([bench.CLEAVE, "sql", "--create", "--db", database, "-c", "SELECT 1"])
    settings = []
    if not options.embedded_device:
        place = folder / "device"
        place.mkdir()
        socket = place / "device.sock"
        command = ["taskset", "-c", "1", bench.CLEAVE.with_name("cleaved"), "--media", place / "media", "--local",
                   socket]
        device = subprocess.Popen([str(part) for part in command], stderr=subprocess.DEVNULL)
        while not socket.exists():
            assert device.poll() is None, "the device has ended"
            time.sleep(0.05)
        servers.output([bench.CLEAVE, "device", "add", "beside", "--local", socket, "--db", database])
        settings = ["--set", "default_device=beside"]
    servers.output(["taskset", "-c", "0", bench.CLEAVE, "bench", "linkbench", "--db", database, "--scale",
                    options.scale, "--load-only",
                    *settings])
    process, port = servers.serve(bench.CLEAVE, database, before=["taskset", "-c", "0"])
    is_over, asked = threading.Event(), []

    def analyse():
        # This thread alone.
        os.sched_setaffinity(0, {1})
        with psycopg.connect(f"host=127.0.0.1 port={port} user=ada dbname=db", autocommit=True) as connection:
            for setting in ["split = ndp", "stealing = off"]:
                connection.execute(f"SET {setting}")
            while not is_over.is_set():
                connection.execute(JOIN).fetchall()
                asked.append(1)

    def transactions():
        where = ["--url", f"postgres://ada@127.0.0.1:{port}/db", "--no-load", "--scale", options.scale, "--clients",
                 options.clients,
                 "--seconds", options.seconds, "--warmup", 1]
        # On one core whether the other is taken or not: beside a busy device it would lose the second one, too.
        return bench_workloads.operation(bench_workloads.run("linkbench", where, before=["taskset", "-c", "0"]), "all")

    try:
        rates, late, queries = [], [], []
        for _ in range(options.rounds):
            alone = transactions()
            is_over.clear()
            asked.clear()
            thread = threading.Thread(target=analyse)
            thread.start()
            beside = transactions()
            is_over.set()
            thread.join()
            rates.append(beside["per_second"] / alone["per_second"])
            late.append(beside["p99_ms"] / alone["p99_ms"])
            queries.append(len(asked) / (options.seconds + 1))
            print(f"    {alone['per_second']:.0f} a second alone, {beside['per_second']:.0f} beside; p99 "
                  f"{alone['p99_ms']:.1f} and "
                  f"{beside['p99_ms']:.1f} ms", flush=True)
        print(f"beside a join: {statistics.median(rates):.2f}x of the operations, p99 {statistics.median(late):.2f}x, "
              f"{statistics.median(queries):.2f} queries a second")
    finally:
        is_over.set()
        servers.stop(process)
        if device:
            servers.stop(device)


def embedded(_, folder, options):
    database = folder / "db"
    where = ["--db", database, "--scale", options.scale, "--clients", 1, "--seconds", options.seconds]
    servers.output([bench.CLEAVE, "bench", "ycsb-a", "--db", database, "--scale", options.scale, "--load-only"])
    ratios, reads = [], []
    for _ in range(options.rounds):
        bare = synced_writes(folder / "bare", options.seconds)
        updates = bench_workloads.operation(bench_workloads.run("ycsb-a", [*where, "--no-load"]), "update")
        read = bench_workloads.operation(bench_workloads.run("ycsb-c", [*where, "--no-load"]), "read")
        reads.append(read["p50_ms"] * 1e3)
        ratios.append(updates["p50_ms"] / bare)
        print(f"    read {read['p50_ms'] * 1e3:.1f} us, update {updates['p50_ms']:.3f} ms, bare write and fsync "
              f"{bare:.3f} ms, medians", flush=True)
    print(f"a read {statistics.median(reads):.1f} us; an update {statistics.median(ratios):.2f}x of a bare write and "
          f"fsync")


def synced_writes(path, seconds):
    """The median of a write of 4 KiB in place and its fsync, in ms."""
    times, end = [], time.monotonic() + seconds / 2
    with open(path, "wb", buffering=0) as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
        while time.monotonic() < end:
            start = time.monotonic()
            os.pwrite(file.fileno(), bytes(4096), len(times) % 256 * 4096)
            os.fdatasync(file.fileno())
            times.append(time.monotonic() - start)
    return statistics.median(times) * 1e3


if __name__ == "__main__":
    main()
