"""Checks of the pure parts (slices, ratios, tables, pictures, keys), and of what a run at a tiny scale has left."""

import contextlib
import io
import json
import random
import tempfile
import threading
import time
from pathlib import Path

from plots import describe

from . import beside, log_end, report, tables, timelines, workloads
from .traffic import Operation


def run():
    tests = [slices_count_where_operations_end, shares_kept_and_waits, recovery_is_the_first_full_slice,
             conditions_count_their_rows, rows_have_their_size, a_zipf_has_the_shares_of_its_formula,
             keys_in_common_are_as_many_as_asked_for, arrivals_come_at_their_rate, the_end_of_a_log_is_found,
             a_lost_change_is_found, tables_hold_medians_and_ratios,
             a_page_is_filled_between_its_marks, pictures_are_described]
    for test in tests:
        test()
    print(f"bench_update: {len(tests)} tests passed")


def equal(found, wanted):
    if found != wanted:
        raise AssertionError(f"found {found!r}, wanted {wanted!r}")


def read(end, seconds=0.1):
    return Operation(end, seconds, False, False)


def update(end, seconds=0.1, is_aborted=False):
    return Operation(end, seconds, True, is_aborted)


def slices_count_where_operations_end():
    operations = [read(9.9), read(10.0), update(10.4), update(10.6), update(10.7, is_aborted=True), read(11.0)]
    equal(timelines.slices(operations, 10, 11, 0.5), [(0.0, 2, 2, 0), (0.5, 0, 2, 2)])
    # A last part of a slice is left out.
    equal(len(timelines.slices(operations, 10, 11.2, 0.5)), 2)


def shares_kept_and_waits():
    before = [read(at / 10) for at in range(10)]
    during = [read(1 + at / 5) for at in range(5)] + [update(1.5, 0.4), update(1.6, 0.7, True)]
    operations = before + during
    equal(timelines.rate(operations, 0, 1, False), 10)
    equal(timelines.kept(operations, (0, 1), (1, 2), False), 0.5)
    # Nothing to keep of what was not there, and nothing is not all.
    equal(timelines.kept(operations, (0, 1), (1, 2), True), None)
    equal(timelines.kept(before, (0, 1), (1, 2), False), 0)
    equal(timelines.longest(operations, 1, 2, True), 0.7)
    # It began in this time, and ended after it.
    equal(timelines.longest([update(3, 1.5)], 1, 2), 1.5)
    equal(timelines.longest(before, 5, 6), None)
    equal(timelines.percentile([read(0.5, part / 100) for part in range(100)], 0.99, 0, 1), 0.99)
    equal(timelines.aborts(operations, 1, 2), 1)


def recovery_is_the_first_full_slice():
    operations = [read(at / 10) for at in range(10)] + [read(2.5 + at / 10) for at in range(15)]
    equal(timelines.recovery_seconds(operations, (0, 1), 2, 4, 0.5), 1.0)
    equal(timelines.recovery_seconds(operations, (0, 1), 5, 6, 0.5), None)


def conditions_count_their_rows():
    for rows in (1, 99, 100, 999, 1000, 1001, 2500, 4000):
        for share in (0.001, 0.1, 0.5, 1.0):
            below = tables.below(share)
            wanted = sum(key % 1000 < below for key in range(1, rows + 1)) if share < 1 else rows
            equal((rows, share, tables.count(rows, share)), (rows, share, wanted))


def rows_have_their_size():
    for width in tables.WIDTHS:
        lines = {tables.line(width, key) for key in range(1, 500)}
        equal(len(lines), 499)
        equal({len(line.split("\t")) for line in lines}, {tables.FIELDS + 1})
    equal({len(field) for field in tables.line("wide", 7).rstrip("\n").split("\t")[1:]}, {100})
    if not all(0 <= int(field) < 2 ** 31 for key in range(1, 1000) for field in tables.line("narrow", key).split()):
        raise AssertionError("a field is no int")


def a_zipf_has_the_shares_of_its_formula():
    count, theta, chance = 1000, 0.99, random.Random(7)
    zipf = workloads.Zipf(count, theta)
    seen = [0] * count
    for _ in range(50_000):
        seen[zipf.draw(chance)] += 1
    weights = sum(i ** -theta for i in range(1, count + 1))
    for place in (0, 1):
        wanted = 50_000 * (place + 1) ** -theta / weights
        if abs(seen[place] / wanted - 1) > 0.05:
            raise AssertionError(f"{place} was drawn {seen[place]} times, not {wanted:.0f}")
    # The sum of many terms, most of them by an integral.
    exact = sum(i ** -theta for i in range(1, 100_001))
    if abs(workloads.zeta(100_000, theta) / exact - 1) > 1e-6:
        raise AssertionError(f"{workloads.zeta(100_000, theta)} is not {exact}")
    # Without skew every number is as likely, and small ranges are taken too.
    equal(sorted({workloads.Zipf(3, 0.0).draw(chance) for _ in range(200)}), [0, 1, 2])
    equal({workloads.Zipf(1, 0.5).draw(chance) for _ in range(50)}, {0})


def keys_in_common_are_as_many_as_asked_for():
    for common in (0.0, 0.25, 1.0):
        task = {"keys": 4000, "read_share": 0.5, "theta": 0.8, "width": "narrow", "common": common,
                "updated_below": 100}
        workload, chance = workloads.Ycsb(task), random.Random(3)
        keys = [workload.key(chance) for _ in range(4000)]
        if not all(1 <= key <= 4000 for key in keys):
            raise AssertionError("a key is not in the table")
        found = sum(key % 1000 < 100 for key in keys) / len(keys)
        if abs(found - common) > 0.05:
            raise AssertionError(f"{found:.0%} of the keys are in common, not {common:.0%}")


def arrivals_come_at_their_rate():
    """Late arrivals count from when they should have begun."""
    arrivals = workloads.Arrivals(1000, threading.Event())
    equal([arrivals.next() for _ in range(3)], [0, 1_000_000, 2_000_000])
    # At the end nothing arrives any more.
    arrivals.began = time.monotonic_ns() + 60_000_000_000
    arrivals.is_over.set()
    equal(arrivals.next(), None)


def the_end_of_a_log_is_found():
    """Records of a log whose file was used before: behind the last record stand older ones."""
    with tempfile.TemporaryDirectory(prefix="cleave-bench-update-") as folder:
        identity, start = b"0123456789abcdef", 1 << 20
        seed = log_end.crc32c(identity)
        head = log_end.HEADER.pack(b"CLEAVLOG", 1, 1 << 20, identity, start, start, 0, 0)
        data = head + log_end.crc32c(head).to_bytes(4, "little")
        # Two records of this log, and one that was written for another place.
        for payload, moved in ((b"first", 0), (b"the second one", 0), (b"old", 8192)):
            at = start + len(data)
            fields = len(payload).to_bytes(3, "little") + bytes([4]) + (7).to_bytes(8, "little")
            place = (at - moved).to_bytes(8, "little")
            checksum = log_end.crc32c(place + fields + log_end.crc32c(payload).to_bytes(4, "little"), seed)
            record = checksum.to_bytes(4, "little") + fields + payload
            if not moved:
                end = at + -(-len(record) // 8) * 8
            data += record + bytes(-len(record) % 8)
        Path(folder, f"{start:016x}.log").write_bytes(data + bytes(100))
        # Made ahead, and not begun.
        Path(folder, f"{start << 1:016x}.log").write_bytes(bytes(4096))
        equal(log_end.log_end(Path(folder)), end)
        equal(log_end.log_end(Path(folder), end), end)
        equal(log_end.crc32c(b"123456789"), 0xE3069283)


def a_lost_change_is_found():
    class Server:
        name, total = "a server", 12

        def say(self, _):
            return [[self.total]]

    operations = [update(1), update(2), update(3, is_aborted=True), read(4)]
    beside.check_no_change_is_lost(Server(), 10, operations)
    try:
        beside.check_no_change_is_lost(Server(), 11, operations)
    except AssertionError as fault:
        equal("1 of the clients' changes" in str(fault), True)
        return
    raise AssertionError("a lost change was not found")


def made_up():
    """A run of two experiments with rounds that are easily counted."""
    records = []
    for number, (device, host, peer) in enumerate([(1.0, 2.0, 4.0), (1.0, 3.0, 4.0), (2.0, 8.0, 4.0)], 1):
        for way, system, seconds in (("device", "Cleave", device), ("host", "Cleave", host),
                                     ("PostgreSQL", "PostgreSQL", peer)):
            case = {"rows": "wide", "updated": 0.1}
            records.append({"experiment": "selectivity", "case": case, "way": way, "system": system, "round": number,
                            "seconds": seconds, "written_bytes": 2_000_000})
            records.append({"experiment": "mixed", "case": {"rows": "wide", "clients run": "YCSB-A"}, "way": way,
                            "system": system, "round": number, "seconds": seconds, "reads_kept": 0.5,
                            "slices": [[0.0, 10, 5, 0], [0.5, 8, 4, 1], [1.0, 9, 5, 0]],
                            "marks": {"begin": 0.4, "end": 0.8, "over": 1.5}})
    options = {"rows": 100, "narrow_rows": 100, "buffers": "1MB", "clients": 2, "theta": 0.5}
    machine = {"processor": "a <processor>", "cores": 2, "memory_bytes": 1 << 30, "debug_build": True}
    return {"at": "2026-01-01T00:00:00Z", "build": "b", "commit": "c", "command": "d", "machine": machine,
            "timing": "unthrottled", "options": options, "experiments": ["selectivity", "mixed"],
            "notes": [{"experiment": "selectivity", "text": "one way was left out"}], "records": records}


def tables_hold_medians_and_ratios():
    view = report.View("selectivity", made_up())
    case = view.cases[0]
    equal(view.ratio(case, "device", report.SPECS["selectivity"].ratios[0]), (3.0, 2.0, 4.0))
    equal([view.ratio(case, "PostgreSQL", one) for one in report.SPECS["selectivity"].ratios[1:]], [None, None])
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in report.table(view).splitlines()]
    # The only case has nothing that varies; columns without values are left out.
    equal(rows[0], ["way", "time", "written, with a checkpoint", "over host", "over PostgreSQL"])
    equal(rows[2], ["device", "1.00 s (1.00 s to 2.00 s)", "2 MB", "3.00× (2.00× to 4.00×)",
                    "4.00× (2.00× to 4.00×)"])
    equal(rows[3][3], "–")
    caption = view.caption()
    for part in ("Timing mode: unthrottled.", "3 interleaved rounds", "Debug build", "One way was left out."):
        if part not in caption:
            raise AssertionError(f"the caption lacks {part}: {caption}")
    equal([report.written(value, kind) for value, kind in ((0.0123, "s"), (1.5e9, "bytes"), (0.123, "share"),
                                                           (1.234, "times"), (1234.5, "number"))],
          ["12.3 ms", "1.5 GB", "12.3 %", "1.23×", "1234"])
    # Of the same experiment in the same timing mode, the newest run.
    older, newer = made_up(), made_up() | {"at": "2026-01-02T00:00:00Z", "commit": "new"}
    equal({(name, run["commit"]) for name, run in report.newest([older, newer])},
          {("selectivity", "new"), ("mixed", "new")})


def a_page_is_filled_between_its_marks():
    page = "a\n<!-- table mixed -->\nold\n<!-- end of table -->\nb\n<!-- table scans -->\n<!-- end of table -->\n"
    once = report.filled(page, "mixed", "new \\1")
    equal(once, page.replace("old\n", "\nnew \\1\n\n"))
    equal(report.filled(once, "mixed", "new \\1"), once)
    try:
        report.filled(page, "htap", "new")
    except SystemExit:
        return
    raise AssertionError("a page without the marks was filled")


def pictures_are_described():
    run = made_up()
    bars = report.pictures(report.View("selectivity", run))
    lines = report.pictures(report.View("mixed", run))
    equal([*bars, *lines], ["updates-selectivity-unthrottled", "updates-mixed-unthrottled-1",
                            "updates-mixed-unthrottled-1-aborts"])
    series = lines["updates-mixed-unthrottled-1"]["series"]
    equal(len(series), 3)
    # Three slices, at their ends: operations of the middle round, the least and the most of all.
    equal([point[:2] for point in series[0]["points"]], [[0.5, 15], [1.0, 12], [1.5, 14]])
    with tempfile.TemporaryDirectory(prefix="cleave-bench-update-") as folder:
        folder = Path(folder)
        (folder / "run.json").write_text(json.dumps(run))
        with contextlib.redirect_stdout(io.StringIO()):
            report.write(folder)
        if "### " in (folder / "summary.md").read_text():
            raise AssertionError("sections are one below the page's title")
        equal(sorted(path.stem for path in (folder / "pictures").glob("*.json")), sorted([*bars, *lines]))


def check_measured(folder, experiments, study=report.UPDATES):
    """Each experiment of a run has records with figures, or a note that says why not; the report takes them."""
    [run] = report.runs(folder)
    equal(run["experiments"], experiments)
    for name in experiments:
        records = [record for record in run["records"] if record["experiment"] == name]
        if not records and not any(note["experiment"] == name for note in run["notes"]):
            raise AssertionError(f"{name} has neither records nor a reason")
        for record in records:
            if not record["seconds"] > 0:
                raise AssertionError(f"{name}: no time in {record}")
    with contextlib.redirect_stdout(io.StringIO()):
        report.write(folder, study=study)
    for path in (folder / "pictures").glob("*.json"):
        describe.load(path)
