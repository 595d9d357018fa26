#!/usr/bin/env python3
"""Recovery after a kill: `cleave serve` against PostgreSQL, after the same transactions.

    scripts/bench_recovery.py [--scale S] [--transactions N] [--clients C] [--rounds R] [--script N|tpcb]
    scripts/bench_recovery.py self-test      a few transactions, and a check that all are there again; no figures

Both have the same rows, checkpointed, and then run the same number of pgbench's transactions without another checkpoint
(Cleave makes one after 16 MiB of log by itself: stay below). Both are killed with SIGKILL and started anew with their
files still in the page cache. The time is from the start of the process to the first answer of a query, and all
transactions must be there then. The log is what the transactions have added: for PostgreSQL by pg_wal_lsn_diff, for
Cleave by the end of its last file.

Needs what bench_oltp.py does. `--only cleave` needs pgbench alone.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import bench
import bench_oltp

POLL_SECONDS = 0.002


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="?", choices=["run", "self-test"], default="run")
    parser.add_argument("--scale", type=int, default=1, help="of pgbench; 100,000 accounts each")
    parser.add_argument("--transactions", type=int, default=10_000, help="before the kill")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--script", choices=["N", "tpcb"], default="N")
    parser.add_argument("--only", choices=["cleave", "postgresql"])
    options = parser.parse_args()
    if not bench.CLEAVE.exists():
        sys.exit(f"{bench.CLEAVE} is not there: run `cargo build --release`, or set CLEAVE_BINARY")
    if options.command == "self-test":
        options.scale, options.transactions, options.clients, options.rounds, options.only = 1, 200, 2, 1, "cleave"
    measure(options)
    if options.command == "self-test":
        print("self-test: passed")


def measure(options):
    print(f"pgbench {options.script}, scale {options.scale}, {options.transactions} transactions of "
          f"{options.clients} clients, "
          f"{options.rounds} rounds; seconds to the first answer after SIGKILL, and bytes of log")
    runs = {}
    for place in range(options.rounds):
        # Anew each time: what a segment of the log held before it was used again would be counted.
        folder, servers = bench_oltp.started(options.scale, options.only)
        try:
            for server in servers if place % 2 == 0 else servers[::-1]:
                seconds, log_bytes = one_run(server, options)
                runs.setdefault(server.name, []).append((seconds, log_bytes))
                print(f"round {place + 1}  {server.name:12}{seconds:8.3f} s{log_bytes:12} bytes of log", flush=True)
        finally:
            bench_oltp.stop(folder, servers)
    for name, found in runs.items():
        seconds, log_bytes = (statistics.median(values) for values in zip(*found))
        print(f"{name:12}{seconds:8.3f} s{log_bytes / options.transactions:8.0f} bytes a transaction")
    if len(runs) == 2:
        pairs = list(zip(runs["Cleave"], runs["PostgreSQL"]))
        faster = statistics.median(theirs[0] / ours[0] for ours, theirs in pairs)
        smaller = statistics.median(theirs[1] / ours[1] for ours, theirs in pairs)
        print(f"Cleave answers {faster:.1f} times as soon, from a log {smaller:.1f} times smaller")


def one_run(server, options):
    """Seconds from the start of a killed server to its first answer, and the bytes of log that it read."""
    server.say("CHECKPOINT")
    log_begin = log_end(server)
    each = options.transactions // options.clients
    text = server.pgbench(*bench_oltp.SCRIPTS[options.script], "-c", str(options.clients), "-j", "2", "-M", "prepared",
                          "-t", str(each))
    failed = int(re.search(r"failed transactions: (\d+)", text).group(1))
    if failed:
        raise AssertionError(f"{failed} transactions failed:\n{text}")
    log_bytes = log_end(server) - log_begin
    kill(server)
    begun = time.monotonic()
    start_again(server)
    await_answer(server)
    seconds = time.monotonic() - begun
    found = server.say("SELECT (SELECT count(*) FROM pgbench_history), (SELECT sum(delta) FROM pgbench_history), "
                       "(SELECT sum(abalance) FROM pgbench_accounts)").strip().split("|")
    if int(found[0]) != each * options.clients or found[1] != found[2]:
        raise AssertionError(f"{server.name} has {found} after {each * options.clients} transactions")
    return seconds, log_bytes


def log_end(server):
    if server.name == "PostgreSQL":
        return int(server.say("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')").strip())
    # Room is made ahead of the log by zeros: the last byte that is none is the end of the last record, but for its
    # padding.
    end = 0
    for file in (server.folder / "accounts" / "log").glob("*.log"):
        end = max(end, int(file.stem, 16) + len(file.read_bytes().rstrip(b"\0")))
    return end


def kill(server):
    if server.name == "PostgreSQL":
        children = subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True,
                                  text=True).stdout.split()
        for process in [server.process.pid, *map(int, children)]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
    else:
        server.process.kill()
    server.process.wait(30)
    # All its processes are gone, and its memory too.
    time.sleep(0.5)


def start_again(server):
    if server.name == "PostgreSQL":
        binary = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))[-1]
        user = "postgres" if os.geteuid() == 0 else None
        with (server.folder / "log").open("a") as log:
            server.process = subprocess.Popen([binary, "-D", server.folder / "data"], stderr=log, user=user, cwd="/",
                                              env={**os.environ, "LC_ALL": "C"})
        return
    with (server.folder / "log").open("a") as log:
        arguments = ["--listen", f"127.0.0.1:{server.port}", "--buffer-pool", bench_oltp.BUFFERS]
        server.process = subprocess.Popen([bench.CLEAVE, "serve", "--db", server.folder / "accounts", *arguments],
                                          stderr=log)


def await_answer(server):
    query = ["psql", "-X", "-c", "SELECT abalance FROM pgbench_accounts WHERE aid = 1"]
    for _ in range(30_000):
        if server.process.poll() is not None:
            raise AssertionError("the server ended: " + (server.folder / "log").read_text()[-2000:])
        if subprocess.run(query, env=server.environment, capture_output=True).returncode == 0:
            return
        time.sleep(POLL_SECONDS)
    raise AssertionError("the server does not answer")


if __name__ == "__main__":
    main()
