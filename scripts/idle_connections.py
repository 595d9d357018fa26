#!/usr/bin/env python3
"""How much memory idle connections of `cleave serve` take: resident memory of the server, before and with them.

    scripts/idle_connections.py            1,000 of them, idle from the start, after a small query and after a join
    scripts/idle_connections.py 200        200 of them

Ends with 1 if a connection takes 100 kB or more.
"""

import socket
import struct
import sys
import tempfile
import time
from pathlib import Path

import servers

MOST_KB = 100
QUERIES = [None, "SELECT 1", "SELECT count(*) FROM pg_catalog.pg_class AS a JOIN pg_catalog.pg_namespace AS b ON "
                             "a.relnamespace = b.oid"]


def resident_kb(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def answer(connection):
    """Reads up to ReadyForQuery."""
    data = b""
    while True:
        data += connection.recv(65536)
        place = 0
        while len(data) - place >= 5:
            length = struct.unpack("!I", data[place + 1:place + 5])[0]
            if len(data) - place < length + 1:
                break
            kind = data[place:place + 1]
            assert kind != b"E", data[place:place + length + 1]
            place += length + 1
            if kind == b"Z":
                return
        data = data[place:]


def connect(port):
    connection = socket.create_connection(("127.0.0.1", port))
    body = struct.pack("!I", 3 << 16) + b"user\0ada\0\0"
    connection.sendall(struct.pack("!I", len(body) + 4) + body)
    answer(connection)
    return connection


def ask(connection, query):
    connection.sendall(b"Q" + struct.pack("!I", len(query) + 5) + query.encode() + b"\0")
    answer(connection)


def measured(database, query, count):
    """Kilobytes for each of `count` connections that have sent `query`, or nothing, to a server of their own."""
    server, port = servers.serve(servers.cleave(), database)
    try:
        # What the first statements make is there once.
        for _ in range(20):
            with connect(port) as first:
                ask(first, query or "SELECT 1")
        time.sleep(1)
        before = resident_kb(server)
        connections = [connect(port) for _ in range(count)]
        for connection in connections:
            if query:
                ask(connection, query)
        time.sleep(1)
        return (resident_kb(server) - before) / count
    finally:
        servers.stop(server)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "db"
        servers.output([servers.cleave(), "sql", "--create", "--db", database, "-c", "SELECT 1"])
        for query in QUERIES:
            each = measured(database, query, count)
            worst = max(worst, each)
            print(f"{count} connections, {'idle' if not query else 'after ' + query[:40]}: {each:.1f} kB each")
    sys.exit(f"{MOST_KB} kB or more" if worst >= MOST_KB else 0)


if __name__ == "__main__":
    main()
