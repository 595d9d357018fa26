"""Clients over HTTP that cost next to nothing themselves: one listens to the console's live view, as its page does, and
one reads the metrics once a second, as Prometheus does. And a process that takes traces, as a collector does. Each
fails at its end if it got nothing."""

import http.client
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

USER = "ada"
PATIENCE_SECONDS = 30
DISCARD = Path(__file__).with_name("discard.py")
# What the overview of the page shows.
LIVE = "/api/live?show=statements,devices"


class Visitor:
    """`with Listener(port)`: does its work on a thread of its own until the block ends."""

    def __init__(self, port):
        self.port, self.count, self.fault, self.over = port, 0, None, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.count and self.thread.is_alive() and time.monotonic() < end:
            time.sleep(0.02)
        if not self.count:
            self.leave()
            raise AssertionError(f"the server gives a {type(self).__name__} nothing: {self.fault}")
        return self

    def __exit__(self, kind, *_):
        self.leave()
        if self.fault and kind is None:
            raise AssertionError(f"a {type(self).__name__} was refused: {self.fault}")

    def leave(self):
        self.over.set()
        self.thread.join(PATIENCE_SECONDS)

    def run(self):
        try:
            self.visit()
        except (OSError, ValueError, http.client.HTTPException) as fault:
            self.fault = fault

    def ask(self, connection, method, path, body=None, **headers):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"{path}: {answer.status} {answer.read(1000)!r}")
        return answer

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)


class Listener(Visitor):
    """Logs in at a server that asks for no password, and counts the snapshots of the live view."""

    def visit(self):
        connection = self.connect()
        try:
            answer = self.ask(connection, "POST", "/api/login", json.dumps({"user": USER, "password": ""}),
                              **{"Content-Type": "application/json"})
            cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
            answer.read()
            feed = self.ask(connection, "GET", LIVE, Cookie=cookie)
            while not self.over.is_set():
                line = feed.readline()
                if not line:
                    raise ValueError("the live view has ended")
                self.count += line.startswith(b"event: snapshot")
        finally:
            connection.close()


class Scraper(Visitor):
    """Reads the metrics once a second."""

    def visit(self):
        connection = self.connect()
        try:
            while not self.over.is_set():
                if b"cleave_" not in self.ask(connection, "GET", "/metrics").read():
                    raise ValueError("there are no metrics")
                self.count += 1
                self.over.wait(1)
        finally:
            connection.close()


class Collector:
    """`with Collector() as collector`: takes traces at `collector.url` in a process of its own, and discards them. Its
    `count` is that of the requests, once the block has ended."""

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, str(DISCARD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"
        return self

    def __exit__(self, kind, *_):
        try:
            # Its input ends by that.
            self.count = int(self.process.communicate(timeout=PATIENCE_SECONDS)[0])
        except (ValueError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
            self.count = 0
        if not self.count and kind is None:
            raise AssertionError("no traces came")
