"""Checks of the pure parts (targets, what the console costs, answers, order, clocks), of the clients over HTTP against
a server of this process, and of what a run at a tiny scale has left."""

import contextlib
import http.client
import http.server
import io
import json
import os
import threading
import time

from update import report as update_report
from update.self_test import equal

from . import report, run as runs, serving, visitors

MACHINE = {"processor": "p", "cores": 2, "memory_bytes": 1 << 30, "debug_build": False}


def run():
    tests = [targets_hold_where_every_median_does, what_is_not_measured_holds_nothing,
             the_console_costs_what_it_adds, answers_must_be_the_same, ways_go_there_and_back,
             metrics_and_traces_keep_the_rate, a_process_has_its_clock, visitors_count_what_they_get,
             what_refuses_a_visitor_fails, a_collector_fails_without_traces]
    for test in tests:
        test()
    print(f"bench_people: {len(tests)} tests passed")


def made_up(*records):
    """A run of records (experiment, case, way, figures), each a round of its own among those like it."""
    rows, seen = [], {}
    for experiment, case, way, figures in records:
        number = seen[experiment, str(case), way] = seen.get((experiment, str(case), way), 0) + 1
        rows.append({"experiment": experiment, "case": case, "way": way, "system": way, "round": number, **figures})
    options = {"versions": "a wheel"} | {name: 1 for one in report.CAPTIONS.values() for name in one.values()}
    return {"at": "2026-01-01T00:00:00Z", "timing": "unthrottled", "commit": "c0ffee", "command": "x",
            "machine": MACHINE, "options": options, "notes": [], "records": rows,
            "experiments": list(dict.fromkeys(record["experiment"] for record in rows))}


def frames_of(query, first, again):
    """A round of either system over pandas; DuckDB takes a second."""
    case = {"object": "pandas", "query": query}
    return [("frames", case, "Cleave", {"first_s": first, "again_s": again}),
            ("frames", case, "DuckDB", {"first_s": 1.0, "again_s": 1.0})]


def row_of(table, what):
    [found] = [line for line in table.splitlines() if f"[{what}" in line]
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def targets_hold_where_every_median_does():
    rounds = [*frames_of("groups", 0.5, 1.0), *frames_of("groups", 0.5, 1.0), *frames_of("groups", 9.0, 9.0)]
    what = "aggregates over a data frame"
    table = report.targets(report.views([made_up(*rounds)]))
    # One slow round of three is no median.
    equal(row_of(table, what), ["at least 0.80×", "1.00× to 2.00×", "yes", "`c0ffee`"])
    # Later runs of one case are too slow.
    table = report.targets(report.views([made_up(*rounds, *frames_of("filter", 0.5, 2.0))]))
    equal(row_of(table, what), ["at least 0.80×", "0.50× to 2.00×", "no", "`c0ffee`"])
    of_files = [("files", {"reader": reader, "query": "filter"}, way, {"first_s": time_s, "again_s": time_s})
                for reader, time_s in (("read_csv", 2.0), ("read_parquet", 1.0))
                for way, time_s in (("Cleave", time_s), ("DuckDB", 1.0))]
    table = report.targets(report.views([made_up(*of_files)]))
    equal([row_of(table, f"`{reader}`")[1:3] for reader in ("read_csv", "read_parquet")],
          [["0.50×", "no"], ["1.00×", "yes"]])
    # Other packages' imports do not count, and neither do tuples.
    imports = [("import", {}, "cleave", {"import_s": 0.1}), ("import", {}, "duckdb", {"import_s": 0.9})]
    rows = [("rows", {}, way, {"first_s": time_s, "again_s": time_s})
            for way, time_s in (("Arrow", 1.0), ("fetchall", 50.0), ("psycopg", 60.0), ("psycopg, binary", 20.0))]
    table = report.targets(report.views([made_up(*imports, *rows)]))
    equal(row_of(table, "import")[1:3], ["100 ms", "yes"])
    equal(row_of(table, "a million rows")[1:3], ["60.00×", "yes"])


def what_is_not_measured_holds_nothing():
    found = report.views([made_up(*frames_of("groups", 1.0, 1.0))])
    equal(list(found), ["frames"])
    equal(row_of(report.targets(found), "import"), ["at most 150 ms", "not measured", "–", "–"])
    text = report.section(found["frames"])
    if "`x`" not in text or "| first, over DuckDB |" not in text:
        raise AssertionError(text)


def the_console_costs_what_it_adds():
    case = {"clients": "none"}
    run = made_up(*[("console", case, way, {"busy": share}) for way, share in
                    (("closed", 0.002), ("listener", 0.007), ("closed", 0.02), ("listener", 0.04))],
                  *[("console", {"clients": "pgbench -S"}, way, {"per_second": rate, "cpu_s": 1.0})
                    for way, rate in (("closed", 100.0), ("listener", 99.0))])
    serving.over_closed(run["records"])
    equal([round(record["cost"], 6) for record in run["records"] if "cost" in record], [0.005, 0.02])
    found = report.views([run])
    equal(row_of(report.targets(found), "the console, open")[1:3], ["1.25 %", "no"])
    if "0.99×" not in report.section(found["console"]):
        raise AssertionError(report.section(found["console"]))


def metrics_and_traces_keep_the_rate():
    """The target is of the rate with what a server traces by itself, and neither of CPU time nor of all statements."""
    case = {"clients": "pgbench -S"}
    run = made_up(*[("metrics", case, way, {"per_second": rate, "cpu_s": cpu}) for way, rate, cpu in
                    ((serving.OFF, 100.0, 1.0), (serving.ON, 99.5, 1.0), (serving.TRACED, 99.0, 1.1),
                     (serving.ALL_TRACED, 80.0, 1.5))])
    equal(row_of(report.targets(report.views([run])), "look-ups kept")[1:3], ["99 %", "yes"])


def answers_must_be_the_same():
    equal(runs.is_same([["a", 0.1 + 0.2]], [["a", 0.3]]), True)
    for other in ([["b", 0.3]], [["a", 0.3001]], [["a", 0.3], ["a", 0.3]], [["a", None]]):
        equal(runs.is_same([["a", 0.3]], other), False)


def ways_go_there_and_back():
    equal(serving.there_and_back(["off", "on"], 0), ["off", "on", "on", "off"])
    equal(serving.there_and_back(["off", "on"], 3), ["on", "off", "off", "on"])


def a_process_has_its_clock():
    before, own = serving.process_seconds(os.getpid()), time.process_time()
    while time.process_time() - own < 0.02:
        pass
    spent = serving.process_seconds(os.getpid()) - before
    if not 0.02 <= spent < 0.5:
        raise AssertionError(f"20 ms of work are {spent} s")


class Server(http.server.BaseHTTPRequestHandler):
    """As much of the console and of the metrics as visitors see."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_right = self.path == "/api/login" and set(asked) == {"user", "password"}
        self.answer(200 if is_right else 400, b"{}", ("Set-Cookie", "visit=abc; Path=/; HttpOnly"))

    def do_GET(self):
        if self.path == "/metrics":
            self.answer(200, b"cleave_sessions 1\n")
        elif self.headers["Cookie"] == "visit=abc" and self.path == visitors.LIVE:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    text = b"event: snapshot\ndata: {}\n\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
                    time.sleep(0.05)
        else:
            self.answer(401, b"{}")

    def answer(self, status, body, *headers):
        self.send_response(status)
        for header in (("Content-Length", str(len(body))), *headers):
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def listening(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def visitors_count_what_they_get():
    with listening(Server) as port:
        begun = time.monotonic()
        with visitors.Listener(port) as listener:
            while listener.count < 3 and time.monotonic() < begun + 60:
                time.sleep(0.01)
        # One comes at once, and then at most one each 0.05 s.
        most = 2 + (time.monotonic() - begun) / 0.05
        if not 3 <= listener.count <= most:
            raise AssertionError(f"{listener.count} snapshots, and at most {most:.0f} were sent")
        with visitors.Scraper(port) as scraper:
            pass
        equal(scraper.count, 1)


class Refusing(Server):
    def do_GET(self):
        self.answer(403, b"{}")


def what_refuses_a_visitor_fails():
    with listening(Refusing) as port:
        for kind in (visitors.Listener, visitors.Scraper):
            try:
                with kind(port):
                    raise AssertionError(f"a {kind.__name__} was let in")
            except AssertionError as fault:
                if "403" not in str(fault):
                    raise


def a_collector_fails_without_traces():
    with visitors.Collector() as collector:
        for body in (b"", bytes(3 << 20)):
            connection = http.client.HTTPConnection(collector.url.removeprefix("http://"), timeout=30)
            connection.request("POST", "/v1/traces", body, {"Connection": "close"})
            equal(connection.getresponse().status, 200)
            connection.close()
    equal(collector.count, 2)
    try:
        with visitors.Collector():
            pass
    except AssertionError as fault:
        equal(str(fault), "no traces came")
    else:
        raise AssertionError("a collector that got nothing is content")


def check_measured(folder, experiments):
    """Each experiment of a run has records with figures, or a note that says why not; the report takes them."""
    [run] = update_report.runs(folder)
    equal(run["experiments"], experiments)
    for name in experiments:
        found = [record for record in run["records"] if record["experiment"] == name]
        if not found and not any(note["experiment"] == name for note in run["notes"]):
            raise AssertionError(f"{name} has neither records nor a reason")
        shown = [names for wanted in report.SPECS[name].figures for names in wanted.names]
        for record in found:
            if not any(record.get(figure) for figure in shown):
                raise AssertionError(f"{name}: no figure in {record}")
    if run["records"]:
        with contextlib.redirect_stdout(io.StringIO()):
            report.write(folder)
