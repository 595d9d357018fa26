"""One measurement: its options, its systems, its records, and the rounds that interleave the ways.

A run is one JSON file, written again after each experiment, so a stopped run keeps what it has. A record is one
measured execution: experiment, case (what was varied), way, round, figures.
"""

import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import bench
from ndp import places as ndp_places

from . import counters, places, systems, tables

FOLDERS = ("--results", "--docs", "--wheel")
# Of each record, while it runs; the file has all figures.
SHOWN = ["seconds", "abort_seconds", "overhead", "reads_kept", "updates_kept", "updates_kept_after", "per_second",
         "p99_s", "queries_per_second", "freshness_s"]


class Bench:
    """Everything that experiments share: `with Bench(options, psycopg, folder) as run`."""

    program = "scripts/bench_update.py"

    def __init__(self, options, psycopg, folder):
        self.options, self.psycopg, self.folder = options, psycopg, folder
        self.records, self.notes, self.done = [], [], []
        self.systems = {}

    def __enter__(self):
        try:
            self.place = place = self.find_place()
            self.timing = place.timing
            self.systems["Cleave"] = systems.Cleave(self.psycopg, self.folder / "cleave", self.options.buffers, place)
            if not self.options.without_postgresql:
                self.systems["PostgreSQL"] = systems.PostgreSQL(self.psycopg, self.folder / "postgresql",
                                                                self.options.buffers)
        except BaseException:
            self.__exit__()
            raise
        self.begin()
        return self

    def begin(self):
        """What the run's file says of it all, and the file's name."""
        build, commit = ndp_places.build_of()
        self.head = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "build": build, "commit": commit,
                     "command": command_line(self.program), "machine": machine(), "timing": self.timing,
                     "place": self.options.place,
                     "options": {name: value for name, value in vars(self.options).items()
                                 if not isinstance(value, Path)}}
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        self.path = self.options.results / f"{stamp}-{os.getpid()}-{'-'.join(self.options.experiments)[:60]}.json"

    def find_place(self):
        return places.of_options(self.options)

    def __exit__(self, *_):
        for system in self.systems.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                system.stop()

    def perform(self, name, experiment):
        """Runs one experiment and saves the records so far."""
        begun, self.current = time.monotonic(), name
        print(f"{name} ({self.timing})", flush=True)
        experiment(self)
        self.done.append(name)
        self.save()
        print(f"  {name}: {time.monotonic() - begun:.0f} s", flush=True)

    def save(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.head | {"experiments": self.done, "notes": self.notes, "records": self.records},
                          indent=1)
        whole = self.path.with_suffix(".new")
        whole.write_text(text + "\n")
        whole.rename(self.path)

    def note(self, text):
        """Something that a reader of the current experiment's figures must know, such as a way that was left out."""
        found = {"experiment": self.current, "text": text}
        if found not in self.notes:
            self.notes.append(found)
            print(f"  {self.current}: {text}", flush=True)

    def present(self, compared):
        """Those of the ways whose system takes part, and for which there are shares of the processor."""
        return [way for way in compared if way.system in self.systems
                and (self.place.has_shares or not way.host_has_both)]

    def supported(self, compared, setting):
        """Those of the ways that need no setting which the server lacks; says which are left out."""
        found = []
        for way in self.present(compared):
            if setting in way.settings and not self.systems[way.system].knows(setting):
                self.note(f"skipped {way.name}: this server does not know the setting {setting}")
            else:
                found.append(way)
        return found

    def rounds(self, experiment, case, compared, measure, count=None):
        """Every way once a round, each round beginning with another one. `measure(way, system)` gives figures."""
        compared = self.present(compared)
        for name in dict.fromkeys(name for way in compared for name in way.missing(self.systems[way.system])):
            without = ", ".join(way.name for way in compared if name in way.missing(self.systems[way.system]))
            self.note(f"the server does not know the setting {name}, so these ran without it: {without}")
        refused = set()
        for number in range(count or self.options.rounds):
            start = number % len(compared)
            for way in compared[start:] + compared[:start]:
                if way in refused:
                    continue
                if self.place.has_shares:
                    self.place.give_host(way.host_has_both)
                try:
                    figures = measure(way, self.systems[way.system])
                except (self.psycopg.errors.FeatureNotSupported, self.psycopg.errors.InvalidParameterValue) as fault:
                    refused.add(way)
                    self.note(f"{way.name} ({said(case | way.case)}) cannot run: {fault.diag.message_primary}")
                    continue
                self.add(experiment, case | way.case, way, number + 1, figures)

    def add(self, experiment, case, way, number, figures):
        record = {"experiment": experiment, "case": case, "way": way.name, "system": way.system,
                  "settings": way.settings, "round": number, **figures}
        self.records.append(record)
        shown = ", ".join(f"{name} {figures[name]:.4g}" for name in SHOWN if isinstance(figures.get(name), float))
        print(f"    {said(case):36} {way.name:14} round {number}: {shown}", flush=True)

    def widths(self):
        return self.options.widths.split(",")

    def rows(self, width):
        return self.options.rows if width == "wide" else self.options.narrow_rows

    def shares(self):
        return [float(share) for share in self.options.shares.split(",")]

    def load(self, system, width, rows=None):
        tables.load(system, width, rows or self.rows(width))


def said(case):
    return ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                     for name, value in case.items())


def command_line(program):
    """The command without the folders of this machine."""
    words = [program]
    for before, word in zip(sys.argv, sys.argv[1:]):
        if before not in FOLDERS and word.split("=")[0] not in FOLDERS:
            words.append(word)
    return " ".join(words)


def machine():
    """What the figures depend on, without the machine's name."""
    model = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith(("model name", "Model"))), platform.machine())
    return {"processor": model, "cores": os.cpu_count(), "memory_bytes": counters.memory_bytes(),
            "system": f"{platform.system()} {platform.release()}", "load": round(os.getloadavg()[0], 2),
            "debug_build": bench.CLEAVE.parent.name == "debug"}
