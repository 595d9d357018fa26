"""Clients in processes of their own, and what became of each of their operations."""

import array
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

PROGRAM = ["-m", "update.client_process"]
PATIENCE_SECONDS = 60


class Operation(NamedTuple):
    """When an operation ended and how long it took, in seconds of the machine's clock."""

    end: float
    seconds: float
    is_update: bool
    is_aborted: bool


class Clients:
    """Clients of a server: `with Clients(system, ...) as clients`; they work from `start` to `stop`."""

    def __init__(self, system, folder, clients, task, settings=None):
        self.folder, self.files = Path(folder), []
        self.processes = []
        # Python uses one core a process.
        count = max(1, min(clients, os.cpu_count() or 1))
        for number in range(count):
            share = clients // count + (number < clients % count)
            file = self.folder / f"clients-{number}"
            file.unlink(missing_ok=True)
            each = task | {"address": system.address(), "clients": share, "seed": f"{task.get('seed', 1)} {number}",
                           "file": str(file), "settings": settings or {}}
            if task.get("rate"):
                each["rate"] = task["rate"] * share / clients
            if "first_new" in task:
                each["first_new"] = task["first_new"] + number * 100_000_000
            process = subprocess.Popen([sys.executable, *PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent)
            process.stdin.write(json.dumps(each) + "\n")
            process.stdin.flush()
            self.processes.append(process)
            self.files.append(file)

    def __enter__(self):
        try:
            for process in self.processes:
                if process.stdout.readline().strip() != "ready":
                    raise AssertionError(f"clients did not start: {process.communicate()[1][-2000:]}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for end in (process.stdin, process.stdout, process.stderr):
                end.close()

    def start(self):
        self.tell("go")
        return time.monotonic()

    def stop(self):
        """All operations, in the order in which they ended."""
        self.tell("stop")
        operations = []
        for process, file in zip(self.processes, self.files):
            _, complaint = process.communicate(timeout=PATIENCE_SECONDS)
            if process.returncode != 0:
                raise AssertionError(f"clients failed: {complaint[-2000:]}")
            numbers = array.array("q", file.read_bytes())
            operations += [Operation(numbers[at] / 1e9, numbers[at + 1] / 1e9, numbers[at + 2] == 1,
                                     numbers[at + 3] == 1) for at in range(0, len(numbers), 4)]
        return sorted(operations)

    def tell(self, word):
        for process in self.processes:
            if process.poll() is not None:
                raise AssertionError(f"clients ended: {process.communicate()[1][-2000:]}")
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
