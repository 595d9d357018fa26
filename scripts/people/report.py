"""Markdown tables of the newest run of each experiment, and one of what they say of the targets.

A target holds if the medians of all its figures do: those of every case, and of first runs as of later ones.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import bench
from update import report as update_report
from update.report import Ratio, Spec, Study, figure

from .serving import CLOSED, LISTENER, OFF, PAGE, TRACED

FIRST, AGAIN = figure("first_s", "first", "s"), figure("again_s", "again", "s")
MEMORY = figure("peak_bytes", "memory", "bytes")
LOOK_UPS = (figure("per_second", "look-ups a second", "number"), figure("p99_s", "p99", "s"),
            figure("cpu_s", "CPU a look-up", "s"))


def against(way, heading):
    return (Ratio("first_s", (way,), f"first, over {heading}", True),
            Ratio("again_s", (way,), f"again, over {heading}", True))


SPECS = {
    "wheel": Spec("A wheel and the first query",
                  (figure("total_s", "in all", "s"), figure("environment_s", "environment", "s"),
                   figure("install_s", "wheel", "s"), figure("query_s", "first query", "s"),
                   figure("wheel_bytes", "size of the wheel", "bytes"))),
    "import": Spec("Imports", (figure("import_s", "time", "s"), figure("import_cold_s", "nothing cached", "s"))),
    "rows": Spec("Rows to a client", (FIRST, AGAIN, MEMORY), against("psycopg", "psycopg")),
    "frames": Spec("Aggregates over a data frame", (FIRST, AGAIN, MEMORY), against("DuckDB", "DuckDB")),
    "files": Spec("Aggregates over files", (FIRST, AGAIN, MEMORY), against("DuckDB", "DuckDB")),
    "paint": Spec("The console's first paint",
                  (figure("first_paint_s", "first paint", "s"), figure("interactive_s", "usable", "s"))),
    "console": Spec("The console while it is open",
                    (figure("busy", "of a core", "share"), figure("cost", "more than closed", "share"), *LOOK_UPS),
                    (Ratio("per_second", (CLOSED,), "look-ups kept", False),
                     Ratio("cpu_s", (CLOSED,), "CPU over closed", False))),
    "metrics": Spec("Metrics, a log as JSON, and traces", LOOK_UPS,
                    (Ratio("per_second", (OFF,), "look-ups kept", False),
                     Ratio("cpu_s", (OFF,), "CPU over off", False))),
}
THREADS = {"threads": "threads"}
ACCOUNTS = {"clients of pgbench": "clients", "its scale": "pgbench_scale"}
SERVED = ACCOUNTS | {"seconds a run": "seconds"}
# What captions say of the options of each experiment.
CAPTIONS = {"wheel": {}, "import": {}, "rows": {"rows": "rows"}, "frames": {"rows": "frame_rows"} | THREADS,
            "files": {"TPC-H scale": "scale"} | THREADS, "paint": SERVED,
            "console": SERVED | {"idle seconds": "idle_seconds"}, "metrics": ACCOUNTS | {"turns a round": "turns"}}
OF_PYTHON = {"with": "versions"}
IN_PYTHON = {"wheel", "import", "rows", "frames", "files"}
PEOPLE = Study(SPECS, "people", {}, bench.WORK / "people")


class Target(NamedTuple):
    """What is promised. `values(view)` are the medians that must be at least, or at most, `bound`."""

    experiment: str
    what: str
    bound: float
    is_least: bool
    kind: str
    values: Callable

    def holds(self, found):
        return all(value >= self.bound if self.is_least else value <= self.bound for value in found)


def figures_of(*names, ways=None, **case):
    """The medians of figures, of some ways and cases."""
    def values(view):
        return [found[0] for one in view.cases if case.items() <= one.items()
                for way in (view.ways if ways is None else ways) for name in names
                if (found := update_report.timelines.spread(view.values(one, way, (name,)).values()))]
    return values


def ratios_of(way, *names, **case):
    """The medians of a way's ratios, of some cases."""
    def values(view):
        return [found[0] for one in view.cases if case.items() <= one.items() for wanted in view.spec.ratios
                if wanted.figure in names and (found := view.ratio(one, way, wanted))]
    return values


RUNS = ("first_s", "again_s")
TARGETS = [
    Target("wheel", "a wheel in a new environment, and the first query", 60, False, "s", figures_of("total_s")),
    Target("import", "import", 0.15, False, "s", figures_of("import_s", ways=["cleave"])),
    Target("rows", "a million rows to Arrow, against psycopg on PostgreSQL", 50, True, "times",
           ratios_of("Arrow", *RUNS)),
    Target("frames", "aggregates over a data frame, against DuckDB", 0.8, True, "times", ratios_of("Cleave", *RUNS)),
    Target("files", "`read_csv`, against DuckDB", 0.7, True, "times", ratios_of("Cleave", *RUNS, reader="read_csv")),
    Target("files", "`read_parquet`, against DuckDB", 0.7, True, "times",
           ratios_of("Cleave", *RUNS, reader="read_parquet")),
    Target("paint", "the console's first paint, and until it is usable", 1, False, "s",
           figures_of("first_paint_s", "interactive_s")),
    Target("console", "the console, open: of a core", 0.01, False, "share",
           figures_of("cost", ways=[LISTENER, PAGE])),
    # Of the rate: CPU time alone would not show what makes clients wait.
    Target("metrics", "look-ups kept with metrics and traces", 0.98, True, "share", ratios_of(TRACED, "per_second")),
]


def views(found):
    """{experiment: the view of its newest run}."""
    newest = {name: run for name, run in sorted(update_report.newest(found, PEOPLE), key=lambda one: one[1]["at"])}
    return {name: update_report.View(name, newest[name], replace(PEOPLE, captions=caption(name)))
            for name in SPECS if name in newest}


def caption(name):
    return CAPTIONS[name] | (OF_PYTHON if name in IN_PYTHON else {})


def targets(views):
    """The Markdown table of the targets."""
    lines = [["what", "target", "measured", "holds", "commit"], ["---"] * 5]
    for target in TARGETS:
        view = views.get(target.experiment)
        found = target.values(view) if view else []
        bound = f"at {'least' if target.is_least else 'most'} {update_report.written(target.bound, target.kind)}"
        # From the worst of its cases to the best.
        ordered = sorted(found, reverse=not target.is_least)
        measured = " to ".join(dict.fromkeys(update_report.written(value, target.kind)
                                             for value in ordered[:1] + ordered[-1:]))
        verdict = ("yes" if target.holds(found) else "no") if found else "–"
        lines.append([f"[{target.what}](#{target.experiment})", bound, measured or "not measured", verdict,
                      f"`{view.run['commit']}`" if found else "–"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def section(view):
    return f"{update_report.wrapped(view.caption())}\n\n{update_report.table(view)}"


def write(folder, docs=None):
    """The tables of all runs in the folder; with `docs`, also a page whose marked parts are filled."""
    found = views(update_report.runs(folder)) if folder.exists() else {}
    if not found:
        raise SystemExit(f"there are no measurements in {folder}")
    parts = {"targets": targets(found)} | {name: section(view) for name, view in found.items()}
    if docs:
        page = docs.read_text()
        for name, text in parts.items():
            page = update_report.filled(page, name, text)
        docs.write_text(page)
        print(f"filled {docs}")
    titles = {"targets": "Targets"} | {name: spec.title for name, spec in SPECS.items()}
    (folder / "summary.md").write_text("\n\n".join(f"## {titles[name]}\n\n{text}" for name, text in parts.items())
                                       + "\n")
    print(f"wrote {folder.name}/summary.md")
