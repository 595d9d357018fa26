#!/usr/bin/env python3
"""Makes the experiments and their print-ready pictures with one command.

    scripts/paper.py --quick        ten minutes: small generated data, few rounds, no testbed and no data to download
    scripts/paper.py                the pages' figures: hours, as root, on the testbed, with the JOB queries
    scripts/paper.py --pictures     only the pictures again, of what was measured

Pictures lie in target/paper/print, as PDF and SVG, one column or one page wide; tables and figures in target/paper.
The quick mode shows that everything works and what the pictures look like: its figures are of one machine without
limits on the link, and of few rounds. Needs a release build; psycopg and matplotlib are installed if they are missing.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import bench

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
PAPER = bench.TARGET / "paper"
# Three of each paper's experiments, so that no step takes more than three minutes.
QUICK = {
    "updates": ["bench_update.py", "all", "--only", "selectivity,mixed,transfer,reuse", "--rounds", "3", "--rows",
                "50000", "--narrow-rows", "100000", "--widths", "wide", "--before", "2", "--after", "2",
                "--without-postgresql"],
    "cord": ["bench_cord.py", "all", "--only", "selectivity,devices,history,q6", "--rounds", "3", "--rows", "400000",
             "--scale", "0.1"],
}
WHOLE = {
    "ndp": ["bench_ndp.py", "all"],
    "updates": ["bench_update.py", "all"],
    "cord": ["bench_cord.py", "all", "--place", "testbed", "--rate", "1gbit", "--cpu", "20%", "--host-cpu", "100%"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small data, few rounds, no testbed")
    parser.add_argument("--pictures", action="store_true", help="measure nothing")
    parser.add_argument("--out", type=Path, default=PAPER, help="the folder of results (default: target/paper)")
    options = parser.parse_args()
    steps = QUICK if options.quick else WHOLE
    if not options.pictures and not bench.CLEAVE.exists():
        sys.exit(f"{bench.CLEAVE} is not there: run `cargo build --release --workspace`, or set CLEAVE_BINARY")
    failed = []
    for name, (script, *arguments) in steps.items():
        folder = options.out / name
        if not options.pictures:
            begun = time.monotonic()
            if subprocess.run([SCRIPTS / script, *arguments, "--results", folder]).returncode:
                failed.append(name)
            print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
        described = folder if name == "ndp" else folder / "pictures"
        if not any(described.glob("*.json")):
            continue
        drawn = [SCRIPTS / "plots.py", "--from", described, "--print", options.out / "print"]
        if subprocess.run(drawn).returncode:
            failed.append(f"pictures of {name}")
    if failed:
        sys.exit(f"not made: {', '.join(failed)}")
    print(f"tables: {options.out}/*/summary.md; pictures: {options.out}/print")


if __name__ == "__main__":
    main()
