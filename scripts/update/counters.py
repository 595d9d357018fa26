"""CPU seconds, bytes and memory of processes, from /proc.

A side is a list of processes: the server with all that it started, or the device. Bytes written are those that the
kernel counts against the process (`write_bytes`): a page cache's write counts when the page becomes dirty, direct I/O
when it is submitted. Memory is what the processes have for themselves plus the largest shared part, so that
PostgreSQL's buffers, which each of its processes maps, count once. Pages of the program's file do not count.
"""

import contextlib
import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

SAMPLE_SECONDS = 0.02


def family(parent):
    """A process and all that it has started and that still run."""
    children = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(place.name))
    found, ahead = [], [parent]
    while ahead:
        process = ahead.pop()
        found.append(process)
        ahead += children.get(process, [])
    return found


def written(processes):
    """Bytes that running processes have written to storage."""
    total = 0
    for process in processes:
        with contextlib.suppress(OSError):
            total += int(re.search(r"^write_bytes: (\d+)", Path(f"/proc/{process}/io").read_text(), re.MULTILINE)[1])
    return total


def resident(processes):
    """Bytes of memory: anonymous of each, and the largest shared part."""
    own, shared = 0, 0
    for process in processes:
        with contextlib.suppress(OSError, TypeError):
            text = Path(f"/proc/{process}/status").read_text()
            kilobytes = {name: int(re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)[1])
                         for name in ("RssAnon", "RssShmem")}
            own += kilobytes["RssAnon"] << 10
            shared = max(shared, kilobytes["RssShmem"] << 10)
    return own + shared


def interface_traffic(prefix):
    """Bytes of the network interfaces whose names begin so: (received, sent), or None if there is none."""
    found = []
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip().startswith(prefix):
            fields = counts.split()
            found.append((int(fields[0]), int(fields[8])))
    return tuple(map(sum, zip(*found))) if found else None


def connection_traffic(port):
    """Bytes of all open connections to a port of this machine: (received by the clients, sent by them)."""
    tool = shutil.which("ss")
    if tool is None:
        return None
    said = subprocess.run([tool, "-tinH", "state", "established", f"( dport = :{port} )"], capture_output=True,
                          text=True, check=False).stdout
    return tuple(sum(int(found) for found in re.findall(rf"\b{name}:(\d+)", said))
                 for name in ("bytes_received", "bytes_sent"))


class Peak:
    """The most memory that the processes of each side had at a time, sampled by a thread: `with Peak(...) as peak`."""

    def __init__(self, sides):
        self.sides = sides
        self.bytes = {side: 0 for side in sides}
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()

    def sample(self):
        next_family, families = 0, {}
        while True:
            # PostgreSQL's processes come and go, but looking for them is dear.
            if time.monotonic() >= next_family:
                families = {side: [one for process in processes() for one in family(process)]
                            for side, processes in self.sides.items()}
                next_family = time.monotonic() + 0.5
            for side, processes in families.items():
                self.bytes[side] = max(self.bytes[side], resident(processes))
            if self.is_over.wait(SAMPLE_SECONDS):
                return


def memory_bytes():
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
