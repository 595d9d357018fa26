"""The testbed with its data, and one run of a statement in it.

Data is loaded once, through a link without limits, and kept: token, certificate and addresses are those of the
testbed's state folder, so the same database finds its device behind every link. Each run is a process of its own, so
its pool is empty; the device reads its media by direct I/O. The time is the one that the program prints, planning and
execution; the start of the process, the opening of the database and the handshake are in `wall_ms` only.
"""

import contextlib
import csv
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import bench
import testbed

from . import figures

csv.field_size_limit(1 << 26)  # a plan is one field, and longer than what csv takes unasked


class Data:
    """An IMDb-like database of some scale, whose tables are on the testbed's device."""

    def __init__(self, folder, scale, indexes):
        self.folder, self.scale, self.indexes = folder, scale, indexes
        self.database, self.device = folder / "db", folder / "device"
        self.done = folder / "done"

    def prepare(self):
        if self.done.exists():
            return
        print(f"loading IMDb-like data at {self.scale} into {self.folder.name}, once ...", flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        with open_testbed(self.device, None, None, None) as bed:
            far = bed.start_devices()
            inside = ["--db", self.database]
            steps = [["sql", "--create", *inside, "-c", "SELECT 1"],
                     ["device", "add", "far", *inside, "--address", far["CLEAVE_TESTBED_ADDRESS"], "--token-file",
                      far["CLEAVE_TESTBED_TOKEN_FILE"], "--ca", far["CLEAVE_TESTBED_CA"]],
                     ["generate", "imdb", "--scale", self.scale, "--set", "default_device=far", *inside],
                     *([["sql", *inside, "-f", self.indexes]] if self.indexes else []),
                     ["sql", *inside, "-c", "ANALYZE"]]
            for step in steps:
                said = testbed.output(bed.host, [bench.CLEAVE, *step])
            said = testbed.output(bed.host, [bench.CLEAVE, "device", "list", *inside])
        used = re.search(r"^\s*far\b.*?(\d+) MB in use", said, re.MULTILINE)
        if not used:
            raise testbed.Failed(f"`cleave device list` does not say what is in use on the device: {said}")
        self.done.write_text(json.dumps({"megabytes": int(used[1])}))

    def bytes(self):
        return json.loads(self.done.read_text())["megabytes"] * 1_000_000


def open_testbed(state, rate, device_share, host_share):
    return testbed.Testbed(testbed.options_of(rate=testbed.rate_bits(rate) if rate else None, cpu=device_share,
                                              host_cpu=host_share, state=state, device=device_program()))


def device_program():
    cleaved = bench.CLEAVE.with_name("cleaved")
    return cleaved if cleaved.exists() else bench.CLEAVE


class Place:
    """A running testbed with its limits, which runs statements: `with Place(...) as place`."""

    def __init__(self, data, rate, device_share, host_share, pool_bytes, verify):
        self.data, self.rate, self.verify = data, rate, verify
        self.device_share, self.host_share, self.pool_bytes = device_share, host_share, pool_bytes
        if device_share + host_share > os.cpu_count():
            raise testbed.Failed(f"a host with {device_share + host_share:.0%} of a core, which the equal-silicon "
                                 f"baseline "
                                 f"needs, does not fit on {os.cpu_count()} cores")

    def __enter__(self):
        self.bed = open_testbed(self.data.device, self.rate, self.device_share, self.host_share).__enter__()
        try:
            if self.verify:
                self.bed.verify()
            self.bed.start_devices()
            self.profile()
            # The program's own pages come into memory here, in no measurement.
            testbed.output(self.bed.host, self.command(["-c", "SELECT 1"]))
            start = time.monotonic()
            testbed.output(self.bed.host, self.command(["-c", "SELECT 1"]))
            # What may pass before a statement begins; generous, as it decides only when a hanging run is given up.
            self.start_seconds = 5 + 3 * (time.monotonic() - start)
        except BaseException:
            self.bed.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.bed.__exit__()

    def profile(self):
        """Has both sides measured under the limits of this place: known profiles may be of another one."""
        command = [bench.CLEAVE, "device", "profile", "far", "--again", "--db", self.data.database]
        groups = self.bed.host_cgroups
        subprocess.run(testbed.as_text(testbed.in_namespace(self.bed.host, command)), check=True,
                       stdout=subprocess.DEVNULL, preexec_fn=lambda: testbed.enter_cgroups(groups))

    def figures(self):
        """The figures that identify this place in a record."""
        return {"timing": "testbed" if self.verify else "testbed, limits not measured", "scale": self.data.scale,
                "link": self.rate or "unshaped", "device_share": self.device_share, "host_share": self.host_share,
                "pool_bytes": self.pool_bytes}

    def command(self, arguments):
        return [bench.CLEAVE, "sql", "--db", self.data.database, "--format", "csv", "--buffer-pool",
                f"{max(self.pool_bytes >> 10, 1)}kB", *arguments]

    def run(self, way, sql, with_rows, limit_seconds, analyze=True):
        """One run: (fields of its record, lines of its rows or None). Any failure is in `error`."""
        self.revive()
        self.give(way)
        sql = sql.strip().rstrip(";")
        explain = "EXPLAIN (ANALYZE, FORMAT JSON)" if analyze else "EXPLAIN (FORMAT JSON)"
        command = self.command(way.arguments() + ["-c", f"{explain} {sql}"] + (["-c", sql] if with_rows else []))
        start, used = time.monotonic(), self.processor_ms()
        code, output, complaint = self.watch(command, limit_seconds, with_rows)
        wall_ms, after = (time.monotonic() - start) * 1e3, self.processor_ms()
        lines = output.splitlines()
        record = {"wall_ms": round(wall_ms, 1), "error": None, "error_kind": None}
        record |= {f"{side}_process_cpu_ms": round(after[side] - used[side], 1) for side in after if side in used}
        if len(lines) > 1 and lines[1].startswith('"[{'):
            record |= read_explain(next(csv.reader([lines[1]]))[0], way)
        elif code == 0:
            record |= {"error": "no EXPLAIN in the output", "error_kind": "error"}
        if code != 0:
            record |= self.what_went_wrong(code, complaint, record, limit_seconds)
        elif analyze and limit_seconds and record.get("total_ms", 0) > limit_seconds * 1e3:
            record |= {"error": f"took more than {limit_seconds:.1f} s", "error_kind": "time-out"}
        rows = lines[3:] if with_rows and code == 0 else None
        if rows is not None:
            record["rows_checksum"] = figures.checksum(rows)
        return record, rows

    def watch(self, command, limit_seconds, with_rows):
        """Runs the command to its end or to the limit: (exit code or None, output, error output). If rows are wanted
        too, the second statement has as much time again, from the moment the first has printed its time."""
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as complaint:
            groups = self.bed.host_cgroups
            process = subprocess.Popen(
                testbed.as_text(testbed.in_namespace(self.bed.host, command)), stdin=subprocess.DEVNULL, stdout=output,
                stderr=complaint, preexec_fn=lambda: testbed.enter_cgroups(groups))
            allowed = None if limit_seconds is None else self.start_seconds + limit_seconds * (2 if with_rows else 1)
            try:
                code = process.wait(allowed)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                process.kill()
                process.wait()
            output.seek(0)
            complaint.seek(0)
            return code, output.read(), complaint.read()

    def processor_ms(self):
        """The CPU time of both sides, including what the program's own figures leave out: starting, serving pages."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = {"host": (usage.ru_utime + usage.ru_stime) * 1e3}
        # The CPU clock of another process, as clock_getcpuclockid(3) names it.
        with contextlib.suppress(OSError):
            used["device"] = time.clock_gettime_ns(~self.bed.processes[0].pid << 3 | 2) / 1e6
        return used

    def what_went_wrong(self, code, complaint, record, limit_seconds):
        first = complaint.strip().splitlines()[0] if complaint.strip() else f"exit code {code}"
        if code is None:
            return {"error": f"killed after {limit_seconds:.1f} s and what starting may take", "error_kind": "time-out"}
        if self.bed.processes[0].poll() is not None:
            return {"error": f"the device ended: {first}", "error_kind": "error"}
        if "0A000" in first and "cannot run this statement" in first:
            return {"error": first, "error_kind": "cannot"}
        if re.search(r'(unrecognized configuration|invalid value for) parameter "\w+"', first):
            return {"error": first, "error_kind": "not there"}
        return {"error": first, "error_kind": "error"}

    def revive(self):
        """Restarts a device that has ended, with the same media."""
        if self.bed.processes[0].poll() is not None:
            self.bed.processes.pop(0).wait()
            self.bed.start_devices()

    def give(self, way):
        """Gives both sides the way's shares of a core."""
        share = self.host_share + self.device_share if way.host_has_both else self.host_share
        for group in self.bed.host_cgroups:
            testbed.set_cpu(group, share if share < os.cpu_count() else None)
        for group in self.bed.cgroups:
            testbed.set_cpu(group, None if way.device_is_free else self.device_share)


def read_explain(line, way):
    """The figures of a run in the output of `EXPLAIN (FORMAT JSON)`, with or without ANALYZE."""
    said = json.loads(line)[0]
    notes = {(note["title"], entry["name"]): entry["value"] for note in said["Notes"] for entry in note["entries"]}
    measured = {name: value for (title, name), value in notes.items() if title == "Measured"}
    record = {"joins": sum("Join" in operator["operator"] for operator in said["Operators"])}
    if measured:
        crossed = measured.get("bytes over the link") or measured["bytes handed over in memory"]
        received, sent = re.match(r"(.*) to the host, (.*) to the devices", crossed).groups()
        host_cpu, device_cpu = re.match(r"host (.*), devices (.*)", measured["CPU"]).groups()
        planning, execution = (bench.milliseconds(measured[f"{name} time"]) for name in ("planning", "execution"))
        record |= {"planning_ms": planning, "execution_ms": execution, "total_ms": round(planning + execution, 3),
                   "rows": int(measured["rows"]), "media_bytes": bench.bytes_of(measured["bytes at media"]),
                   "to_host_bytes": bench.bytes_of(received), "to_device_bytes": bench.bytes_of(sent),
                   "host_memory_bytes": bench.bytes_of(measured["bytes taken by the host"]),
                   "host_cpu_ms": bench.milliseconds(host_cpu), "device_cpu_ms": bench.milliseconds(device_cpu),
                   "host_waited_ms": bench.milliseconds(measured["host waited"]),
                   "devices_stalled_ms": bench.milliseconds(measured["devices stalled"])}
    candidates = [candidate | {"name": candidate.get("name", candidate.get("split"))}
                  for candidate in said.get("Candidates") or []]
    chosen = next((candidate for candidate in candidates if candidate.get("chosen")), None)
    mine = next((candidate for candidate in candidates if candidate["name"] == way.settings.get("split")), chosen)
    record |= {"chosen": chosen["name"] if chosen else None, "prediction": mine}
    if way.name in ("host", "explain") and candidates:
        record["candidates"] = [candidate["name"] for candidate in candidates]
    if way.name == "explain-all":
        record["predicted"] = {candidate["name"]: candidate for candidate in candidates}
    return record


def build_of():
    """(the build id of the program, the commit of this script)."""
    with open(bench.CLEAVE, "rb") as file:
        build = hashlib.file_digest(file, "sha256").hexdigest()[:12]
    commit = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=Path(__file__).parent,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    return build, commit or "unknown"
