"""What a run begins and ends with: the programs it needs, and its differences, in order and counted."""

import sys
from collections import Counter

import servers

from . import outcomes


def prepared():
    """psycopg and the build of Cleave; None, with a word why, where a run is skipped."""
    psycopg = servers.psycopg()
    if psycopg is None:
        print("SKIPPED: psycopg cannot be installed")
        return None
    binary = servers.cleave()
    if binary is None:
        sys.exit("there is no build of Cleave: run `cargo build`, or set CLEAVE_BINARY")
    return psycopg, binary


def in_order(differences):
    """The entries of a run: those that nobody knows first, the worst kinds first."""
    return sorted(differences.values(), key=lambda entry: (
        entry["known"] is not None, outcomes.KINDS.index(entry["kind"]), -entry["count"]))


def unknown(entries):
    """How many of each kind nobody knows."""
    counts = Counter()
    for entry in entries:
        if entry["known"] is None:
            counts[entry["kind"]] += entry["count"]
    return counts


def exit_code(counts, count, worst, most):
    """1 if any of the kinds `worst` is among `counts`, or more than `most` others in 10,000 of `count`."""
    others = sum(number for kind, number in counts.items() if kind not in worst)
    return int(any(counts[kind] for kind in worst) or others * 10_000 / max(count, 1) > most)
