#!/usr/bin/env python3
"""Clients that update and insert single rows while COPY loads many rows into the same table.

    scripts/bench_load.py [--rows N] [--clients N] [--rounds N] [--beside PATH] [--without-postgresql]

Needs `cargo build --release` (or CLEAVE_BINARY), psycopg, and PostgreSQL unless it is left out. Each round takes the
systems one after the other: a table of 100,000 rows, clients alone for two seconds, then COPY of N rows beside them,
with a primary key. Figures are medians over the rounds: seconds of COPY, statements a second alone and meanwhile, the
share that is kept, and the longest wait of a client. Afterwards the rows are counted. Unthrottled; server and clients
share the machine.
"""

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path

import servers

BEFORE = 100_000
ALONE_SECONDS = 2.0
CHUNK_ROWS = 5_000


class Client(threading.Thread):
    """Updates a row of before and inserts one, in turn, until it is stopped."""

    def __init__(self, connect, number):
        super().__init__()
        self.connect, self.number = connect, number
        self.ends, self.inserted, self.is_stopped = [], 0, False

    def run(self):
        with self.connect() as session:
            at = 0
            while not self.is_stopped:
                begun, at = time.monotonic(), at + 1
                if at % 2:
                    key = (at * 7919 + self.number * 104_729) % BEFORE
                    session.execute(f"UPDATE t SET n = n + 1 WHERE id = {key}")
                else:
                    self.inserted += 1
                    session.execute(f"INSERT INTO t VALUES ({-(self.number * 10**7 + self.inserted)}, 0, 'new')")
                self.ends.append((begun, time.monotonic()))


def lines(first, count):
    return "".join(f"{key}\t0\tnote {key}\n" for key in range(first, first + count))


def one_round(connect, rows, client_count):
    """The figures of one system."""
    with connect() as session:
        session.execute("DROP TABLE IF EXISTS t")
        session.execute("CREATE TABLE t (id bigint PRIMARY KEY, n int, note text)")
        copy(session, [lines(0, BEFORE)])
    chunks = [lines(first, CHUNK_ROWS) for first in range(BEFORE, BEFORE + rows, CHUNK_ROWS)]
    clients = [Client(connect, number) for number in range(1, client_count + 1)]
    for client in clients:
        client.start()
    time.sleep(ALONE_SECONDS)
    with connect() as session:
        begun = time.monotonic()
        copy(session, chunks)
        ended = time.monotonic()
        for client in clients:
            client.is_stopped = True
        for client in clients:
            client.join()
        found = session.execute("SELECT count(*) FROM t").fetchone()[0]
    wanted = BEFORE + rows + sum(client.inserted for client in clients)
    if found != wanted:
        raise AssertionError(f"{found} rows, not {wanted}")
    statements = [one for client in clients for one in client.ends]
    # Sessions warm up in the first half second.
    alone = [one for one in statements if begun - ALONE_SECONDS + 0.5 <= one[1] < begun]
    meanwhile = [one for one in statements if begun <= one[1] < ended]
    longest = max(end - max(start, begun) for start, end in statements if end > begun and start < ended)
    alone_rate = len(alone) / (ALONE_SECONDS - 0.5)
    rate = len(meanwhile) / (ended - begun)
    return {"seconds": ended - begun, "alone": alone_rate, "meanwhile": rate, "kept": rate / alone_rate,
            "longest": longest}


def copy(session, chunks):
    with session.cursor().copy("COPY t FROM STDIN") as target:
        for chunk in chunks:
            target.write(chunk)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="another build of Cleave")
    parser.add_argument("--without-postgresql", action="store_true")
    options = parser.parse_args()
    psycopg = servers.psycopg() or parser.error("psycopg cannot be installed")
    binary = servers.cleave() or parser.error("no cleave: run `cargo build --release`")
    with tempfile.TemporaryDirectory() as folder:
        folder, running, systems = Path(folder), [], {}
        try:
            for name, program in [("Cleave", binary), ("the other", options.beside)]:
                if program:
                    process, port = servers.serve(program, folder / name.replace(" ", "-"), "--trust")
                    running.append(process)
                    systems[name] = f"host=127.0.0.1 port={port} user=cleave dbname=cleave"
            if not options.without_postgresql:
                (folder / "postgresql").mkdir()
                process, port, owner = servers.postgresql(folder / "postgresql")
                running.append(process)
                systems["PostgreSQL"] = f"host=127.0.0.1 port={port} user={owner} dbname=postgres"
            measured = {name: [] for name in systems}
            for _ in range(options.rounds):
                for name, place in systems.items():
                    def connect(place=place):
                        return psycopg.connect(place, autocommit=True)
                    measured[name].append(one_round(connect, options.rows, options.clients))
        finally:
            for process in running:
                servers.stop(process)
    print(f"COPY of {options.rows} rows beside {options.clients} clients; medians of {options.rounds}; unthrottled")
    print(f"{'system':12} {'COPY':>9} {'alone':>9} {'meanwhile':>10} {'kept':>7} {'longest wait':>13}")
    for name, rounds in measured.items():
        of = {figure: statistics.median(one[figure] for one in rounds) for figure in rounds[0]}
        print(f"{name:12} {of['seconds']:7.2f} s {of['alone']:7.0f}/s {of['meanwhile']:8.0f}/s {of['kept']:6.1%} "
              f"{of['longest'] * 1000:10.0f} ms")


if __name__ == "__main__":
    main()
