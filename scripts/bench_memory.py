#!/usr/bin/env python3
"""The memory that `cleave serve` takes for large changes, under a control group's limit of its budgets and 64 MiB.

    scripts/bench_memory.py                     changes of 100 times --query-memory, each kind in a server of its own
    scripts/bench_memory.py --times 10 update   fewer rows; only the kinds that are named

Kinds that begin with `fragment` run as fragments of the embedded device, whose budget (`device_memory`) is added.

The kernel enforces the limit: a server that needs more is killed, and the script reports it and ends with 1. It also
prints the most anonymous memory that the server had (RssAnon, read 20 times a second), over the budgets. The page cache
counts against the limit too, and is evicted.

Needs root, psql and control groups (version 1 or 2) with the memory controller.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import servers

MIB = 1 << 20
# Bytes of text in each row; with its number, what a row is counted as.
TEXT_BYTES = 390
ROW_BYTES = 400
DEVICE_MEMORY = 32 * MIB
CGROUPS = Path("/sys/fs/cgroup")

FILL = f"SELECT g, repeat(md5(g::text), 13)::varchar({TEXT_BYTES}) FROM generate_series({{}}, {{}}) AS s(g)"
TABLE = "CREATE TABLE t (id bigint PRIMARY KEY, a text NOT NULL);"


class Group:
    """A control group with a limit of memory, and no swap."""

    def __init__(self, limit):
        self.unified = (CGROUPS / "cgroup.controllers").exists()
        self.path = (CGROUPS if self.unified else CGROUPS / "memory") / f"cleave-memory-{os.getpid()}"
        self.path.mkdir()
        if self.unified:
            self.write("memory.max", limit)
            self.write("memory.swap.max", 0)
        else:
            self.write("memory.limit_in_bytes", limit)

    def write(self, name, value):
        (self.path / name).write_text(str(value))

    def enter(self):
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs; exec "$@"', "sh"]

    def killed(self):
        """How many processes the kernel has killed here for lack of memory."""
        name = "memory.events" if self.unified else "memory.oom_control"
        words = (self.path / name).read_text().split()
        return int(words[words.index("oom_kill") + 1])

    def remove(self):
        for _ in range(100):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.1)


class Peak:
    """The most anonymous memory that a process has had since."""

    def __init__(self, process):
        self.process, self.bytes, self.ended = process, 0, threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while not self.ended.wait(0.05):
            try:
                status = Path(f"/proc/{self.process.pid}/status").read_text()
            except OSError:
                return
            if "RssAnon:" in status:
                self.bytes = max(self.bytes, int(status.split("RssAnon:")[1].split()[0]) << 10)

    def end(self):
        self.ended.set()
        self.thread.join()
        return self.bytes


def psql(port, text):
    command = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(port), "-U",
               "cleave", "cleave"]
    return subprocess.run(command, input=text, capture_output=True, text=True)


def rows_between(first, last):
    return FILL.format(first, last)


def kinds(count):
    """Each kind of change: the setup before the measurement, the measured statements, and the result they must
    leave."""
    third = count // 3
    filled = TABLE + f"INSERT INTO t {rows_between(1, count)};"
    sums = "SELECT count(*), sum(id), sum(length(a)) FROM t;"
    ids = count * (count + 1) // 2

    def left(rows, total):
        return f"{rows}|{total if rows else ''}|{rows * TEXT_BYTES if rows else ''}"

    fragment = f"SET update_placement = device; SET device_memory = '{DEVICE_MEMORY // MIB}MB'; "
    thrice = "".join(f"INSERT INTO t {rows_between(n * third + 1, (n + 1) * third)};" for n in range(3))
    return {
        "inserts": (TABLE, f"BEGIN; {thrice} COMMIT;", sums, left(3 * third, 3 * third * (3 * third + 1) // 2)),
        "insert": (TABLE, f"INSERT INTO t {rows_between(1, count)};", sums, left(count, ids)),
        "copy": (TABLE, "\\copy t FROM '{rows}'\n", sums, left(count, ids)),
        "update": (filled, "UPDATE t SET a = reverse(a);", sums, left(count, ids)),
        "keys": (filled, "UPDATE t SET id = id + 1;", sums, left(count, ids + count)),
        "block": (filled, "BEGIN; UPDATE t SET a = reverse(a); UPDATE t SET id = id + 1; COMMIT;", sums,
                  left(count, ids + count)),
        "undone": (filled, "BEGIN; UPDATE t SET a = reverse(a); DELETE FROM t; ROLLBACK;", sums, left(count, ids)),
        "delete": (filled, "DELETE FROM t;", sums, left(0, 0)),
        "returning": (filled, "\\o /dev/null\nUPDATE t SET id = id + 1 RETURNING *;\n\\o\n", sums,
                      left(count, ids + count)),
        "conflict": (filled, f"INSERT INTO t {rows_between(1, count)} ON CONFLICT (id) DO UPDATE SET a = "
                             f"reverse(excluded.a);",
                     sums, left(count, ids)),
        "fragment_update": (filled, fragment + "UPDATE t SET a = reverse(a);", sums, left(count, ids)),
        "fragment_keys": (filled, fragment + "UPDATE t SET id = id + 1;", sums, left(count, ids + count)),
        "fragment_delete": (filled, fragment + "DELETE FROM t;", sums, left(0, 0)),
        "fragment_insert": (filled + "CREATE TABLE u (id bigint, a text);", fragment + "INSERT INTO u SELECT * FROM t;",
                            sums.replace("t;", "u;"), left(count, ids)),
        "cascade": (filled + "CREATE TABLE c (id bigint PRIMARY KEY REFERENCES t ON DELETE CASCADE ON UPDATE "
                             "CASCADE, a text);"
                    "INSERT INTO c SELECT * FROM t;", "DELETE FROM t;",
                    "SELECT count(*), NULL, NULL FROM t; SELECT count(*) FROM c;", "0||\n0"),
    }


def measured(name, kind, options, folder):
    """Runs one kind; returns whether it succeeded."""
    before, change, check, expected = kind
    budgets = options.query_memory + options.buffer_pool + (DEVICE_MEMORY if name.startswith("fragment") else 0)
    database = folder / name
    arguments = ["--query-memory", str(options.query_memory), "--buffer-pool", str(options.buffer_pool)]
    if "{rows}" in change:
        rows = folder / "rows"
        with rows.open("w") as file:
            file.writelines(f"{number}\t{number:0{TEXT_BYTES}}\n" for number in range(1, options.count + 1))
        change = change.replace("{rows}", str(rows))
    server, port = servers.serve(options.binary, database, *arguments)
    try:
        servers_said = psql(port, before)
    finally:
        servers.stop(server)
    if servers_said.returncode != 0:
        print(f"{name:10} could not begin: {servers_said.stderr.strip()}")
        return False
    group = Group(budgets + options.over)
    try:
        server, port = servers.serve(options.binary, database, *arguments, before=group.enter())
        peak, begin = Peak(server), time.monotonic()
        said = psql(port, change)
        seconds, most = time.monotonic() - begin, peak.end()
        killed = group.killed()
        if server.poll() is None:
            servers.stop(server)
    finally:
        group.remove()
    found = None
    if not killed and said.returncode == 0:
        # By a server without the limit, which reads what is on the media.
        server, port = servers.serve(options.binary, database, *arguments)
        try:
            found = psql(port, check)
        finally:
            servers.stop(server)
    if killed:
        outcome = "KILLED for want of memory"
    elif said.returncode != 0:
        outcome = said.stderr.strip().splitlines()[0] if said.stderr.strip() else "failed"
    elif found.stdout.strip() != expected.strip():
        outcome = f"WRONG ROWS: {found.stdout.strip()} {found.stderr.strip()}, not {expected}"
    else:
        outcome = "ok"
    print(f"{name:10} {seconds:7.1f} s  {most / MIB:7.0f} MiB anonymous, {(most - budgets) / MIB:+5.0f} over the "
          f"budgets: {outcome}", flush=True)
    return outcome == "ok"


def size(text):
    units = {"MB": 10**6, "MiB": MIB, "GB": 10**9, "GiB": 1 << 30}
    unit = next((unit for unit in units if text.endswith(unit)), None)
    return int(text.removesuffix(unit)) * units[unit] if unit else int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--query-memory", type=size, default=32 * MIB)
    parser.add_argument("--buffer-pool", type=size, default=32 * MIB)
    parser.add_argument("--times", type=float, default=100, help="bytes of changes, as a multiple of --query-memory")
    parser.add_argument("--over", type=size, default=64 * MIB, help="the limit, over the budgets")
    parser.add_argument("kinds", nargs="*", help="which kinds of change; all by default")
    options = parser.parse_args()
    options.binary = servers.cleave() or sys.exit("there is no cleave: run `cargo build --release`")
    options.count = count = int(options.times * options.query_memory / ROW_BYTES)
    known = kinds(count)
    for name in options.kinds:
        if name not in known:
            sys.exit(f"there is no kind {name}: {', '.join(known)}")
    print(f"{count} rows of {ROW_BYTES} bytes: {count * ROW_BYTES / MIB:.0f} MiB; limit "
          f"{(options.query_memory + options.buffer_pool + options.over) / MIB:.0f} MiB"
          f" (queries {options.query_memory / MIB:.0f}, pool {options.buffer_pool / MIB:.0f}, and "
          f"{options.over // MIB})")
    good = True
    for name in options.kinds or known:
        with tempfile.TemporaryDirectory(prefix="cleave-memory-") as folder:
            good &= measured(name, known[name], options, Path(folder))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
