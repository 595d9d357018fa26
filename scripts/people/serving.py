"""Experiments of the server: the console's page, what it costs while it is open, and what metrics and traces cost."""

import contextlib
import json
import statistics
import subprocess
import time
from pathlib import Path

import bench
import bench_oltp
import console
import servers

from . import visitors

BROWSER = Path(__file__).with_name("browser.py")
# Accounts of pgbench are in memory after so many seconds of it.
WARM_SECONDS = 2
# Background work of a server that has just started, or a page that has just been opened, is over then.
SETTLE_SECONDS = 2
CLOSED, LISTENER, PAGE = "closed", "listener", "page"
OFF, ON, TRACED, ALL_TRACED = "off", "on", "on, traces", "on, all traced"
# What those ways add to `--traces` that have metrics; None: they have no traces.
TRACES = {ON: None, TRACED: [], ALL_TRACED: ["--traces-per-second", "0"]}
# Of a run of pgbench where many alternate.
SHORT_SECONDS = 1


class Served(bench_oltp.Cleave):
    """pgbench's rows behind `cleave serve` with some options."""

    def __init__(self, folder):
        super().__init__(folder)
        self.database = folder / "accounts"

    def make(self, scale):
        script = self.folder / "tables.sql"
        script.write_text(bench_oltp.TABLES.format(scale=scale, accounts=scale * 100_000))
        servers.output([bench.CLEAVE, "sql", "--create", "--db", self.database, "-f", script])

    @contextlib.contextmanager
    def running(self, *arguments):
        self.process, self.port = servers.serve(bench.CLEAVE, self.database, "--buffer-pool", bench_oltp.BUFFERS,
                                                *arguments)
        try:
            self.client("ada", "accounts")
            yield self
        finally:
            self.stop()

    def cpu_seconds(self):
        # Of a run of a second, ticks would be one percent.
        return process_seconds(self.process.pid)

    def transactions(self, run, seconds=None):
        """Look-ups a second, p99, and the server's time for each."""
        seconds = seconds or run.options.seconds
        tps, p99_ms, cpu_us = bench_oltp.one_run(self, "S", run.options.clients, "prepared", seconds)
        return {"per_second": tps, "p99_s": p99_ms / 1e3, "cpu_s": cpu_us / 1e6}


def served(run, name="server"):
    folder = run.folder / run.current / name
    folder.mkdir(parents=True)
    server = Served(folder)
    server.make(run.options.pgbench_scale)
    return server


def lacks(run, option, what):
    """Whether the program does not have an option; the run notes it."""
    if option in servers.output([bench.CLEAVE, "serve", "--help"]):
        return False
    run.note(f"skipped: this program has no {what} (`cleave serve {option}`)")
    return True


# --- the console ------------------------------------------------------------------------------------

def chromium(run):
    """The Python with Chromium's driver; None without either, which the run notes."""
    found = None
    if Path(console.CHROMIUM).exists():
        found = servers.python_with([console.DRIVER], "import playwright.sync_api", console.PLACE)
    if found is None:
        run.note("skipped the page: Chromium or its driver is not there (`scripts/console.py self-test` installs both)")
    return found


def paint(run):
    """The log-in page and the overview, each by a browser that has nothing of the server."""
    python = chromium(run)
    if python is None or lacks(run, "--console", "console"):
        return
    server, port = served(run), servers.free_port()
    with server.running("--console", f"127.0.0.1:{port}"):
        for number in range(run.options.rounds):
            seen = json.loads(servers.output([python, BROWSER, "paint", f"http://127.0.0.1:{port}"], timeout=300))
            for page, times in seen.items():
                run.add("paint", {"page": page}, "Chromium", "Cleave", number + 1, times)


def cost(run):
    """The server's time with nobody, a listener, or an open page; first of an idle server, then under pgbench."""
    if lacks(run, "--console", "console"):
        return
    python = chromium(run)
    server, port = served(run), servers.free_port()
    watching = {CLOSED: contextlib.nullcontext, LISTENER: lambda: visitors.Listener(port)}
    if python:
        watching[PAGE] = lambda: held(python, port)

    def idle(watch):
        with watch():
            time.sleep(SETTLE_SECONDS)
            return {"busy": busy(server.process.pid, run.options.idle_seconds)}

    def busy_with_clients(watch):
        with watch():
            return server.transactions(run)

    with server.running("--console", f"127.0.0.1:{port}"):
        run.rounds("console", {"clients": "none"}, {name: ("Cleave", lambda watch=watch: idle(watch))
                                                    for name, watch in watching.items()})
        over_closed(run.records)
        server.transactions(run)
        # Not with the page, for which Chromium works on the same cores.
        run.rounds("console", {"clients": "pgbench -S"},
                   {name: ("Cleave", lambda watch=watching[name]: busy_with_clients(watch))
                    for name in (CLOSED, LISTENER)})


def over_closed(records):
    """Adds what an open page costs to the records of an idle server: the share above that of the same round without."""
    idle = [record for record in records if record["experiment"] == "console" and "busy" in record]
    base = {record["round"]: record["busy"] for record in idle if record["way"] == CLOSED}
    for record in idle:
        if record["way"] != CLOSED:
            record["cost"] = record["busy"] - base[record["round"]]


@contextlib.contextmanager
def held(python, port):
    """The overview in Chromium, for as long as the block lasts."""
    process = subprocess.Popen([python, str(BROWSER), "hold", f"http://127.0.0.1:{port}"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout.readline().strip() != "open":
            raise AssertionError("Chromium does not show the overview")
        yield
        if process.poll() is not None:
            raise AssertionError("Chromium has ended")
    finally:
        process.stdin.close()
        try:
            process.wait(visitors.PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def busy(process, seconds):
    """The share of a core that a process uses in the next seconds."""
    began, before = time.monotonic(), process_seconds(process)
    time.sleep(seconds)
    return (process_seconds(process) - before) / (time.monotonic() - began)


def process_seconds(process):
    """CPU seconds of a process, to the nanosecond: its clock, as clock_getcpuclockid(3) numbers it."""
    return time.clock_gettime((~process << 3) | 2)


# --- metrics and traces -----------------------------------------------------------------------------

def metrics(run):
    """Look-ups with the metrics read once a second, lines of the log as JSON and slow statements in it; with traces
    besides, of the statements that a server traces by itself and of all; and without any of it.

    A round starts a server for each way. Its runs are short and many, and go through the ways there and back again and
    again, so that what changes steadily, or for a while, changes nothing; its figures are the medians of a way's runs.
    """
    if lacks(run, "--http", "metrics") or lacks(run, "--log-format", "log as JSON") or lacks(run, "--traces", "traces"):
        return
    ways = [OFF, *TRACES]
    made = {way: served(run, way.replace(", ", "-").replace(" ", "-")) for way in ways}
    for number in range(run.options.rounds):
        with contextlib.ExitStack() as started:
            watching = {way: started.enter_context(watched(made[way], way)) for way in ways}
            for way in ways:
                bench_oltp.one_run(made[way], "S", run.options.clients, "prepared", WARM_SECONDS)
            found = {way: [] for way in ways}
            for turn in range(run.options.turns):
                for way in there_and_back(ways, number + turn):
                    # Of the others nobody reads the metrics: they do nothing meanwhile.
                    with watching[way]():
                        found[way].append(made[way].transactions(run, SHORT_SECONDS))
        for way, runs in found.items():
            run.add("metrics", {"clients": "pgbench -S"}, way, "Cleave", number + 1,
                    {name: statistics.median(one[name] for one in runs) for name in runs[0]})


@contextlib.contextmanager
def watched(server, way):
    """The running server of a way; gives what reads its metrics."""
    if way == OFF:
        with server.running():
            yield contextlib.nullcontext
        return
    port, traces = servers.free_port(), TRACES[way]
    with contextlib.ExitStack() as started:
        arguments = ["--http", f"127.0.0.1:{port}", "--log-format", "json", "--log-min-duration-statement", "1000"]
        if traces is not None:
            # It ends after the server, which sends what waits.
            arguments += ["--traces", started.enter_context(visitors.Collector()).url, *traces]
        started.enter_context(server.running(*arguments))
        yield lambda: visitors.Scraper(port)


def there_and_back(ways, number):
    """The ways of a round, and back again; each round begins with another one."""
    start = number % len(ways)
    ordered = ways[start:] + ways[:start]
    return ordered + ordered[::-1]
