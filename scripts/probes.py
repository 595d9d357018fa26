#!/usr/bin/env python3
"""The small processes of the testbed: one side of a measurement, the proxy that adds a delay, and what limits engines.

scripts/testbed.py starts them in namespaces and control groups; what one finds, it prints.

    receive, send   a transfer over a link, and its round trip before
    echo, ping      the round trip alone
    spin            a loop for a time, for the share of a core that it gets
    disk            direct I/O
    proxy           forwards bytes after a delay
    limit           puts the threads of a process's engines into their control groups as they come
"""

import collections
import contextlib
import mmap
import os
import select
import socket
import statistics
import sys
import threading
import time

PINGS = 20
PROXY_BYTES_MAX = 64 << 20

# How the threads of an engine that run fragments are called, with its number in the process.
FRAGMENT_THREADS = "fragment-"
# A thread has the group and the name of the one that began it until it runs, which with a share of a core may be later.
LIMIT_EVERY_MS, LIMIT_LOOKS = 20, 50


def main(kind, *arguments):
    {"receive": probe_receive, "send": probe_send, "spin": probe_spin, "disk": probe_disk, "echo": probe_echo,
     "ping": probe_ping, "proxy": probe_proxy, "limit": probe_limit}[kind](*arguments)


def probe_receive(address, port, size):
    """Answers pings until the transfer comes; prints its bits a second without the bucket's initial content."""
    connection = accept(address, port)
    size, received, buffer = int(size), 0, bytearray(1 << 20)
    for _ in range(PINGS):
        connection.sendall(connection.recv(1))
    head, start, counted = size // 5, None, 0
    while received < size:
        count = connection.recv_into(buffer)
        if count == 0:
            sys.exit("the transfer ended early")
        received += count
        if start is None and received >= head:
            start, counted = time.perf_counter(), received
    print((received - counted) * 8 / (time.perf_counter() - start))


def probe_send(address, port, size):
    connection = connect(address, port)
    print(round_trip_ms(connection))
    left, chunk = int(size), bytes(1 << 18)
    while left > 0:
        connection.sendall(chunk[:left])
        left -= len(chunk)
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)


def probe_echo(address, port):
    connection = accept(address, port)
    while data := connection.recv(1):
        connection.sendall(data)


def probe_ping(address, port):
    print(round_trip_ms(connect(address, port)))


def round_trip_ms(connection):
    times = []
    for _ in range(PINGS):
        start = time.perf_counter()
        connection.sendall(b"x")
        connection.recv(1)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def accept(address, port):
    listener = socket.create_server((address, int(port)))
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def connect(address, port):
    deadline = time.monotonic() + 20
    while True:
        try:
            connection = socket.create_connection((address, int(port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def probe_spin(seconds):
    """Reports that it is ready, reads when to start, and prints its share of a core over `seconds` from then."""
    print("ready", flush=True)
    start = float(sys.stdin.readline())
    end = start + float(seconds)
    time.sleep(max(0.0, start - time.monotonic()))
    used = time.process_time()
    while time.monotonic() < end:
        pass
    print((time.process_time() - used) / (time.monotonic() - start))


def probe_disk(direction, path, mebibytes):
    block = 1 << 20
    buffer = mmap.mmap(-1, block)
    flags = os.O_RDONLY if direction == "read" else os.O_WRONLY | os.O_CREAT
    file = os.open(path, flags | os.O_DIRECT, 0o600)
    start = time.perf_counter()
    for number in range(int(mebibytes)):
        transfer = os.preadv if direction == "read" else os.pwritev
        if transfer(file, [buffer], number * block) != block:
            sys.exit("a short transfer")
    print(int(mebibytes) * block / (time.perf_counter() - start) / 1e6)
    os.close(file)


def probe_proxy(address, listen_port, port, delay_ms):
    """Forwards bytes after a delay, in both directions, connection by connection."""
    listener = socket.create_server((address, int(listen_port)))
    while True:
        near, _ = listener.accept()
        try:
            far = connect(address, port)
        except OSError:
            near.close()
            continue
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=hand_on, args=(source, sink, float(delay_ms) / 1e3), daemon=True).start()


def hand_on(source, sink, delay):
    waiting, ready = collections.deque(), threading.Condition()

    def write():
        while True:
            with ready:
                ready.wait_for(lambda: waiting)
                due, data = waiting.popleft()
                ready.notify_all()
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            try:
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
            except OSError:
                # The far side is gone: so is this connection, in both directions.
                with contextlib.suppress(OSError):
                    source.shutdown(socket.SHUT_RDWR)
                return

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    data = b"-"
    while data:
        try:
            data = source.recv(1 << 18)
        except OSError:
            data = b""
        with ready:
            # Bounded by what a link of its rate holds on the way, and by this.
            while sum(len(chunk) for _, chunk in waiting) > PROXY_BYTES_MAX and writer.is_alive():
                ready.wait(0.1)
            waiting.append((time.monotonic() + delay, data))
            ready.notify_all()


def probe_limit(process, *engines):
    """Puts the threads that run fragments into the control groups of their engine (`2=/GROUP:/GROUP`), until the
    process ends. A thread that another part of the process begins has the groups of that part."""
    groups_of = {FRAGMENT_THREADS + number: groups.split(":") for number, groups in
                 (engine.split("=", 1) for engine in engines)}
    try:
        ended = select.poll()
        ended.register(os.pidfd_open(int(process)), select.POLLIN)
    except ProcessLookupError:
        return
    tasks, seen = f"/proc/{process}/task", {}
    while not ended.poll(LIMIT_EVERY_MS):
        with contextlib.suppress(OSError):
            seen = {thread: seen.get(thread, (0, None)) for thread in os.listdir(tasks)}
        for thread, (looks, known) in seen.items():
            if looks == LIMIT_LOOKS:
                continue
            name = None
            # It may end at any moment.
            with contextlib.suppress(OSError):
                name = read(f"{tasks}/{thread}/comm").strip()
                for group in groups_of.get(name, []) if name != known else []:
                    with open(f"{group}/tasks", "w") as file:
                        file.write(thread)
            seen[thread] = (looks + 1, name)


def read(path):
    with open(path) as file:
        return file.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
