"""Measurements on disk: one JSON object a line, appended and flushed after each run.

A recorded run is not repeated unless requested; of several lines with the same key the last one counts. Measurements of
another build, or of a testbed with other figures, have other keys and so never mix.
"""

import json
import os

KEY = ["build", "experiment", "timing", "scale", "link", "device_share", "host_share", "pool_bytes", "query", "way",
       "run"]
PLACE = ["build", "timing", "scale", "link", "device_share", "host_share", "pool_bytes"]


class Results:
    def __init__(self, folder, again=False):
        self.folder, self.again = folder, again
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "measurements.jsonl"
        self.records, self.torn = read(self.path)
        self.mine = set()

    def find(self, wanted):
        """The record with the key of `wanted`, if that run need not be repeated."""
        key = key_of(wanted)
        if self.again and key not in self.mine:
            return None
        return self.records.get(key)

    def add(self, record):
        key = key_of(record)
        self.records[key] = record
        self.mine.add(key)
        with open(self.path, "ab") as file:
            # A line that a killed run left half written ends here.
            start = b"\n" if self.torn else b""
            file.write(start + json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.torn = False
        return record


def read(path):
    """(records by key, whether the last line is incomplete)."""
    records = {}
    text = path.read_text() if path.exists() else ""
    for line in text.splitlines():
        try:
            record = json.loads(line)
            records[key_of(record)] = record
        except (ValueError, KeyError):
            continue  # half of a line: that run is made again
    return records, bool(text) and not text.endswith("\n")


def key_of(record):
    return tuple(record[name] for name in KEY)


def place_of(record):
    return tuple(record[name] for name in PLACE)
