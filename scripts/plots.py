#!/usr/bin/env python3
"""Draws the pictures of the experiments from their descriptions, which reports write.

    scripts/plots.py                            every picture of docs/experiments again, as SVG
    scripts/plots.py --print target/print       a print-ready set: PDF and SVG, one column or one page wide
    scripts/plots.py --from FOLDER              the descriptions in another folder; SVG beside them
    scripts/plots.py self-test                  draws one picture of each kind

Needs matplotlib, and installs it into target/plots if this Python lacks it.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import servers
from plots import describe

ROOT = Path(__file__).resolve().parent.parent
MATPLOTLIB = "matplotlib==3.10.*"
# Pictures with more parts than this are not to be read in one column.
PARTS_OF_A_COLUMN = 16


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", nargs="?", choices=["self-test"])
    parser.add_argument("--from", dest="folder", type=Path, default=ROOT / "docs" / "experiments")
    parser.add_argument("--print", dest="print_to", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    try:
        from plots import draw
    except ImportError:
        python = servers.python_with([MATPLOTLIB], "import matplotlib", ROOT / "target" / "plots" / "python")
        if python is None and options.command:
            print("SKIPPED: matplotlib is not there and cannot be installed")
            return
        if python is None:
            sys.exit("matplotlib is not there and cannot be installed")
        sys.exit(subprocess.run([python, *sys.argv]).returncode)
    if options.command:
        self_test(draw)
        return
    paths = sorted(path for path in options.folder.glob("*.json") if path.name != "summary.json")
    if not paths:
        sys.exit(f"{options.folder} holds no descriptions of pictures")
    if options.print_to:
        options.print_to.mkdir(parents=True, exist_ok=True)
    for path in paths:
        picture = describe.load(path)
        if options.print_to:
            width = draw.COLUMN if parts(picture) <= PARTS_OF_A_COLUMN else draw.PAGE
            for kind in ("pdf", "svg"):
                draw.draw(picture, options.print_to / f"{path.stem}.{kind}", width)
        else:
            draw.draw(picture, path.with_suffix(".svg"))
    print(f"drew {len(paths)} pictures in {options.print_to or options.folder}")


def parts(picture):
    """How much there is to see: bars, points of curves, cells. Lines over time fit a column."""
    return {"bars": lambda: sum(len(group["values"]) for group in picture["groups"]),
            "stacked": lambda: len(picture["groups"]), "lines": lambda: 0,
            "curves": lambda: 2 * len(picture["series"]), "cells": lambda: len(picture["cells"])}[picture["kind"]]()


def self_test(draw):
    """One of each kind, with texts that need escaping, values that are missing, and names without a fixed colour."""
    value = (50.0, 40.0, 60.0)
    pictures = {
        "bars": describe.bars("A & B <c>", [("q", {"host": value, "auto": "time-out"}), ("r", {"host": value})],
                              ["host", "auto"], "ms", "query"),
        "lying": describe.bars("Long", [(f"a label that is long {n}", {"x": (n + 1.0,) * 3}) for n in range(30)],
                               ["x"], "s"),
        "apart": describe.bars("Apart", [("q", {"x": (0.001,) * 3, "y": (10.0,) * 3})], ["x", "y"], "s"),
        "stacked": describe.bars("Parts", [("h0", {"a": (1.0,) * 3, "b": (2.0,) * 3}, (2.5, 3.5))], ["a", "b"], "ms",
                                 stacked=True),
        "lines": describe.lines("Over time", [("host", [(0, 1), (1, 2)]), ("device", [(0, 1, 0, 2), (1, 2, 1, 3)])],
                                "operations a second", [("begin", 0.5, 0)], ["A note."]),
        "curves": describe.curves("Shares", [("host", [(0.001, value), (0.5, value), (0.0, value)])], "selected", "s"),
        "cells": describe.cells("Cells", ["q"], ["h0", "h1"], lambda _, column: None if column == "h1" else
                                ("better1", "1.2x", True, "faster"), [("better1", "faster")], "split", "query"),
    }
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for name, picture in pictures.items():
            describe.save(folder, name, picture)
            again = describe.load(folder / f"{name}.json")
            for suffix in ("svg", "pdf"):
                draw.draw(again, folder / f"{name}.{suffix}", draw.COLUMN)
        first = (folder / "bars.svg").read_bytes()
        draw.draw(describe.load(folder / "bars.json"), folder / "bars.svg", draw.COLUMN)
        if (folder / "bars.svg").read_bytes() != first:
            raise SystemExit("the same description gave another picture")
        if b"A &amp; B &lt;c&gt;" not in first:
            raise SystemExit("the title is not in the picture as text")
    from plots import colours
    if len(set(colours.of(["host", "equal", "free-disk", "blk", "native", "ndp", "paper", "auto"]).values())) != 8:
        raise SystemExit("two of eight ways share a colour")
    print("self-test passed")


if __name__ == "__main__":
    main()
