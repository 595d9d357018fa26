#!/usr/bin/env python3
"""Transactions a second, their p99 and their CPU time: `cleave serve` against PostgreSQL, both durable, under pgbench.

    scripts/bench_oltp.py [--scale S] [--clients 1,8] [--modes prepared,simple] [--scripts S,N,tpcb]
                          [--seconds S] [--rounds R]
    scripts/bench_oltp.py self-test       a few transactions of each kind, and a check of their result; no figures

Both servers have the same rows, buffers of the same size and a log that is synced at each commit, use the same file
system and are reached over TCP. Runs of the two alternate, and each round begins with the other one; a ratio is the
median of the rounds' ratios. CPU time is that of the server's processes, user and system, without pgbench's.

Needs `cargo build --release` (or CLEAVE_BINARY), and PostgreSQL with pgbench: `scripts/install_peers.sh postgresql`.
`--only cleave` needs pgbench alone. `--pid-file` gives the server's process to `perf`.
"""

import argparse
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import bench
import servers

SCRIPTS = {"S": ["-S"], "N": ["-N"], "tpcb": ["-b", "tpcb-like"]}
BUFFERS = "512MB"
TABLES = """
CREATE TABLE pgbench_branches (bid int NOT NULL PRIMARY KEY, bbalance int, filler char(88));
CREATE TABLE pgbench_tellers (tid int NOT NULL PRIMARY KEY, bid int, tbalance int, filler char(84));
CREATE TABLE pgbench_accounts (aid int NOT NULL PRIMARY KEY, bid int, abalance int, filler char(84));
CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
INSERT INTO pgbench_branches SELECT v, 0, '' FROM generate_series(1, {scale}) s(v);
INSERT INTO pgbench_tellers SELECT v, (v - 1) / 10 + 1, 0, '' FROM generate_series(1, {scale} * 10) s(v);
INSERT INTO pgbench_accounts SELECT v, (v - 1) / 100000 + 1, 0, '' FROM generate_series(1, {accounts}) s(v);
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="?", choices=["run", "self-test"], default="run")
    parser.add_argument("--scale", type=int, default=10, help="of pgbench; 100,000 accounts each")
    parser.add_argument("--clients", default="1,8")
    parser.add_argument("--modes", default="prepared,simple")
    parser.add_argument("--scripts", default="S,N,tpcb")
    parser.add_argument("--seconds", type=int, default=5, help="of one run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["cleave", "postgresql"])
    parser.add_argument("--pid-file", type=Path, help="where to write the process of `cleave serve`")
    options = parser.parse_args()
    if not bench.CLEAVE.exists():
        sys.exit(f"{bench.CLEAVE} is not there: run `cargo build --release`, or set CLEAVE_BINARY")
    if options.command == "self-test":
        return self_test()
    measure(options)


# --- servers -------------------------------------------------------------------------------------

class Server:
    """Rows of pgbench in a folder of their own, served on a port of this machine."""

    # Words in front of the command that starts it.
    before = ()

    def __init__(self, folder):
        self.folder, self.port, self.environment = folder, None, dict(os.environ)

    def say(self, *commands):
        """The output of psql for commands, without headers."""
        arguments = sum((["-c", command] for command in commands), [])
        return servers.output(["psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", *arguments], env=self.environment)

    def pgbench(self, *arguments):
        return servers.output(["pgbench", "-n", *arguments], env=self.environment)

    def client(self, user, database):
        self.environment |= {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": user, "PGDATABASE": database}


class Cleave(Server):
    """`cleave serve`."""

    name = "Cleave"

    def start(self, script):
        database = self.folder / "accounts"
        (self.folder / "tables.sql").write_text(script)
        servers.output([bench.CLEAVE, "sql", "--create", "--db", database, "-f", self.folder / "tables.sql"])
        self.process, self.port = servers.serve(bench.CLEAVE, database, "--buffer-pool", BUFFERS, before=self.before)
        self.client("ada", "accounts")

    def stop(self):
        servers.stop(self.process)

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)


class PostgreSQL(Server):
    """Debian's PostgreSQL with its defaults, except for the size of its buffers."""

    name = "PostgreSQL"

    def start(self, script):
        self.process, self.port, user = servers.postgresql(self.folder, shared_buffers=BUFFERS, max_wal_size="4GB")
        self.client(user, "postgres")
        self.say(*[line for line in script.splitlines() if line], "VACUUM ANALYZE", "CHECKPOINT")

    def stop(self):
        servers.stop(self.process, signal=2)

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)


def cpu_seconds(parent):
    """CPU seconds of a process and all that it has started, including those that have ended."""
    ticks, children = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(place.name))
        ticks[int(place.name)] = sum(map(int, fields[11:15]))
    total, ahead = 0, [parent]
    while ahead:
        process = ahead.pop()
        total += ticks.get(process, 0)
        ahead += children.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


# --- runs ----------------------------------------------------------------------------------------

def one_run(server, script, clients, mode, seconds):
    """Transactions a second, p99 in ms, CPU us a transaction."""
    log = server.folder.parent / f"latency-{server.name}"
    before = server.cpu_seconds()
    text = server.pgbench(*SCRIPTS[script], "-c", str(clients), "-j", str(min(clients, 2)), "-M", mode, "-T",
                          str(seconds),
                          "-l", f"--log-prefix={log}")
    time.sleep(0.3)  # PostgreSQL's processes of these clients end
    spent = server.cpu_seconds() - before
    failed = int(re.search(r"failed transactions: (\d+)", text).group(1))
    if failed:
        raise AssertionError(f"{failed} transactions failed:\n{text}")
    latencies = []
    for file in log.parent.glob(f"{log.name}.*"):
        latencies += [int(line.split(" ", 3)[2]) for line in file.read_text().splitlines()]
        file.unlink()
    latencies.sort()
    tps = float(re.search(r"tps = ([0-9.]+)", text).group(1))
    return tps, latencies[len(latencies) * 99 // 100] / 1e3, spent * 1e6 / len(latencies)


def measure(options):
    folder, running = started(options.scale, options.only)
    if options.pid_file:
        options.pid_file.write_text(str(running[0].process.pid))
    try:
        print(f"pgbench, scale {options.scale}, {options.seconds} s a run, {options.rounds} rounds; tps and CPU us a "
              f"transaction "
              "of the server, p99 in ms")
        head = "".join(f"{server.name + ' tps':>17}{'p99':>8}{'CPU':>7}" for server in running)
        print(f"{'script':7}{'mode':9}{'clients':>7}{head}{'tps':>8}{'p99':>7}{'CPU':>7}")
        for script in options.scripts.split(","):
            for mode in options.modes.split(","):
                for clients in map(int, options.clients.split(",")):
                    runs = {server.name: [] for server in running}
                    for place in range(options.rounds):
                        for server in running if place % 2 == 0 else running[::-1]:
                            runs[server.name].append(one_run(server, script, clients, mode, options.seconds))
                    print_row(f"{script:7}{mode:9}{clients:7}", list(runs.values()))
    finally:
        stop(folder, running)


def print_row(head, runs):
    """Medians of each, and the medians of the rounds' ratios."""
    line = head
    for one in runs:
        tps, p99, cpu = (statistics.median(values) for values in zip(*one))
        line += f"{tps:17.0f}{p99:8.2f}{cpu:7.0f}"
    if len(runs) == 2:
        ratios = [[a / b if b else float("nan") for a, b in zip(ours, theirs)] for ours, theirs in zip(*runs)]
        tps, p99, cpu = (statistics.median(values) for values in zip(*ratios))
        line += f"{tps:7.2f}x{p99:6.2f}x{cpu:6.2f}x"
    print(line, flush=True)


def started(scale, only=None):
    work = bench.WORK / "oltp"
    work.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=work))
    script = TABLES.format(scale=scale, accounts=scale * 100_000)
    kinds = [kind for kind in (Cleave, PostgreSQL) if only in (None, kind.__name__.lower())]
    running = []
    try:
        for kind in kinds:
            place = folder / kind.name.lower()
            place.mkdir()
            running.append(kind(place))
            running[-1].start(script)
    except BaseException:
        stop(folder, running)
        raise
    return folder, running


def stop(folder, running):
    for server in running:
        if hasattr(server, "process"):
            server.stop()
    shutil.rmtree(folder)


# --- self-test -----------------------------------------------------------------------------------

def self_test():
    """Each kind of run, of one server without a peer: the sums of what was added must match the tables."""
    folder, [server] = started(1, "cleave")
    try:
        for script, clients, mode in [("S", 1, "prepared"), ("N", 2, "simple"), ("tpcb", 2, "prepared")]:
            tps, p99, cpu = one_run(server, script, clients, mode, 1)
            assert tps > 0 and p99 > 0 and cpu > 0, (tps, p99, cpu)
        sums = server.say("SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(delta) FROM "
                          "pgbench_history)")
        accounts, history = sums.strip().split("|")
        assert accounts == history, sums
    finally:
        stop(folder, [server])
    print("self-test: passed")


if __name__ == "__main__":
    main()
