"""Markdown tables and pictures from the measurements.

For each experiment and timing mode the newest run that has it counts. A figure is the median of the rounds, with the
least and the largest in parentheses where the figure is compared. A ratio is the median of the rounds' ratios.
"""

import json
import math
import re
import statistics
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import bench
from plots import describe

from . import timelines
from .run import said
from .ways import NOT_ARCHIVED

WIDTH = 120
# Over time, of one experiment; more would not be looked at.
PICTURES_MAX = 4
# Parts of a case that are shares of the rows.
SHARES = {"updated", "selected", "in common", "table"}
# Kinds of figures of which the median of the rounds says little: {kind: (what is shown of the rounds, its kind)}.
OF_ALL_ROUNDS = {"sum": (sum, "number"), "share of all": (statistics.mean, "share")}
HOST, EQUAL, POSTGRESQL = "host", "equal", "PostgreSQL"


class Figure(NamedTuple):
    """A column: its name in the records (the first that is there), its heading, how it is written."""

    names: tuple
    heading: str
    kind: str


class Ratio(NamedTuple):
    """A column of ratios: the figure, the ways that it is set against, and whether less is better.

    With a `base`, it is set against the same way in the case that has these values. `divisor` names what in the case
    the ratio is divided by: over a base of one device, a speed-up by the devices is the efficiency of each.
    """

    figure: str
    against: tuple
    heading: str
    less_is_better: bool
    base: tuple = ()
    divisor: str | None = None


@dataclass(frozen=True)
class Spec:
    """How an experiment is shown. `picture` is ("bars", figure, unit), ("lines", unit, what is marked) over time, or
    ("curves", figure, unit, what in the case the figure is drawn over)."""

    title: str
    figures: tuple
    ratios: tuple = ()
    picture: tuple = ()


def figure(names, heading, kind):
    return Figure(tuple(names.split()), heading, kind)


def faster(name="seconds"):
    return (Ratio(name, (HOST,), "over host", True), Ratio(name, (EQUAL,), "at equal silicon", True),
            Ratio(name, (POSTGRESQL,), "over PostgreSQL", True))


SECONDS = figure("seconds", "time", "s")
COST = (figure("to_host_bytes statement_to_host_bytes", "to the host", "bytes"),
        figure("to_device_bytes statement_to_device_bytes", "to the device", "bytes"),
        figure("written_bytes", "written, with a checkpoint", "bytes"),
        figure("log_bytes", "log", "bytes"),
        figure("host_cpu_s", "CPU host", "s"), figure("device_cpu_s", "CPU device", "s"),
        figure("host_peak_bytes", "memory host", "bytes"), figure("device_peak_bytes", "memory device", "bytes"))
BESIDE = (SECONDS, figure("reads_before", "reads a second before", "number"),
          figure("reads_kept", "reads kept", "share"), figure("updates_before", "updates a second before", "number"),
          figure("updates_kept", "updates kept", "share"), figure("longest_read_s", "longest read", "s"),
          figure("longest_update_s", "longest update", "s"), figure("client_aborts", "aborts of clients", "number"),
          figure("recovered_s", "back at 90 % after", "s"))
STATEMENT = (figure("statement_to_host_bytes", "to the host", "bytes"),
             figure("statement_media_bytes", "from media", "bytes"),
             figure("statement_host_cpu_ms", "CPU host", "ms"), figure("statement_device_cpu_ms", "CPU device", "ms"))
BEFORE = (SECONDS, figure("plain_seconds", "without it", "s"))
SPECS = {
    "selectivity": Spec("A bulk update of one column of ten", (SECONDS, *COST), faster(),
                        ("bars", "seconds", "s")),
    "mixed": Spec("An update of all rows beside clients", BESIDE, faster(), ("lines", "operations a second")),
    "contention": Spec("Updates of a tenth of the rows beside skewed clients",
                       (*BESIDE, figure("update_aborts", "aborts of the update", "number")), faster(),
                       ("lines", "operations a second")),
    "for_update": Spec("SELECT FOR UPDATE before the update",
                       (SECONDS, figure("plain_seconds", "update alone", "s"), figure("overhead", "overhead", "times")),
                       faster(), ("bars", "seconds", "s")),
    "locking": Spec("How an update keeps others from its rows",
                    (SECONDS, *COST[4:6], figure("updates_kept", "updates of clients kept", "share"),
                     figure("longest_update_s", "longest update of a client", "s"),
                     figure("update_aborts", "aborts of the update", "number")),
                    (Ratio("seconds", ("table lock",), "over the table lock", True), faster()[-1]),
                    ("bars", "seconds", "s")),
    "placement": Spec("Where rows are found and where they are changed",
                      (SECONDS, figure("predicted_s", "predicted, beside finding", "s"), *COST),
                      (Ratio("seconds", ("S1 host",), "over S1", True),), ("bars", "seconds", "s")),
    "aborts": Spec("An update that is given up",
                   (figure("abort_seconds", "time to abort", "s"), SECONDS,
                    figure("reads_kept_after", "reads kept after", "share"),
                    figure("updates_kept_after", "updates kept after", "share"),
                    figure("recovered_s", "back at 90 % after", "s"), figure("scan_before_s", "scan before", "s"),
                    figure("scan_after_s", "scan after", "s"), figure("was_cancelled", "cancelled in time", "share")),
                   faster("abort_seconds"),
                   ("bars", "abort_seconds", "s")),
    "recovery": Spec("A kill after a committed update",
                     (SECONDS, figure("first_scan_seconds", "first scan", "s"), figure("log_bytes", "log", "bytes"),
                      figure("log_bytes_per_row", "log, bytes a row", "number"),
                      figure("update_seconds", "update", "s")), faster(), ("bars", "seconds", "s")),
    "violation": Spec("Clients that wait for the rows of an update",
                      (SECONDS, figure("lock_seconds", "locks", "s"), figure("update_seconds", "update", "s"),
                       figure("commit_seconds", "commit", "s"),
                       figure("updates_kept_after", "updates kept after", "share"),
                       figure("longest_update_s", "longest wait", "s"),
                       figure("client_aborts", "aborts of clients", "number"),
                       figure("recovered_s", "back at 90 % after", "s")), faster(),
                      ("lines", "operations a second")),
    "logging": Spec("Copies of changed chunks for an archive",
                    (*BESIDE[:7], figure("p99_s", "p99 beside", "s"), figure("p99_before_s", "p99 before", "s"),
                     figure("host_cpu_s", "CPU host", "s"), figure("copied_bytes", "copied", "bytes")),
                    (Ratio("seconds", (NOT_ARCHIVED,), "over no archive", True),), ("lines", "operations a second")),
    "scans": Spec("Scans", (SECONDS, figure("statement_to_host_bytes", "to the host", "bytes"),
                            figure("statement_media_bytes", "from media", "bytes"),
                            figure("statement_host_cpu_ms", "CPU host", "ms"),
                            figure("statement_device_cpu_ms", "CPU device", "ms")), faster(),
                  ("bars", "seconds", "s")),
    "visibility": Spec("Scans after updates", (SECONDS, figure("statement_media_bytes", "from media", "bytes")),
                       faster(), ("bars", "seconds", "s")),
    "htap": Spec("Transactions beside analytic queries",
                 (figure("per_second", "transactions a second", "number"), figure("p99_s", "p99", "s"),
                  figure("queries_per_second", "queries a second", "number"), figure("join_s", "join", "s"),
                  figure("betweenness_s", "betweenness", "s"), figure("reach_s", "reach", "s"),
                  figure("freshness_s", "freshness", "s"), figure("freshness_max_s", "worst freshness", "s"),
                  figure("host_cpu_s", "CPU host", "s"), figure("device_cpu_s", "CPU device", "s"),
                  figure("host_cores_busy", "host's cores busy", "number"),
                  figure("to_host_bytes join_statement_to_host_bytes", "to the host", "bytes"),
                  figure("join_statement_media_bytes", "join from media", "bytes"),
                  figure("shipped_delta", "plans with the delta", "number"), figure("flushes", "flushes", "number"),
                  figure("energy_j", "energy (model)", "J")),
                 (Ratio("per_second", ("alone", "PostgreSQL alone"), "transactions kept", False),
                  Ratio("p99_s", ("alone", "PostgreSQL alone"), "p99 over alone", False),
                  Ratio("per_second", (HOST,), "transactions over host", False),
                  Ratio("per_second", (EQUAL,), "transactions at equal silicon", False),
                  Ratio("queries_per_second", (HOST,), "queries over host", False),
                  Ratio("queries_per_second", (EQUAL,), "queries at equal silicon", False)),
                 ("bars", "per_second", "a second")),
    "units": Spec("Transfer units", (SECONDS, *STATEMENT), picture=("bars", "seconds", "s")),
    "transfer": Spec("Pages, pages with a matching row, and rows", (SECONDS, *STATEMENT),
                     (Ratio("seconds", ("pages",), "over pages", True),), ("bars", "seconds", "s")),
    "interleaving": Spec("Rows consumed while others are made", (SECONDS, *STATEMENT),
                         picture=("bars", "seconds", "s")),
    "materialise": Spec("Rows written before they are consumed",
                        (*BEFORE, figure("overhead", "overhead", "times"),
                         figure("second_use_seconds", "second use", "s")), picture=("bars", "seconds", "s")),
    "reuse": Spec("Results that are there already", (*BEFORE, figure("faster", "faster", "times")),
                  picture=("bars", "seconds", "s")),
    "refresh": Spec("Refreshes by changes",
                    (SECONDS, figure("plain_seconds", "of all rows", "s"), figure("faster", "faster", "times"),
                     figure("changed_rows", "changed rows", "number")), picture=("bars", "seconds", "s")),
    "outgrown": Spec("Operators that outgrow their memory on the device", (SECONDS, *STATEMENT),
                     (Ratio("seconds", (HOST,), "over host", True),), ("bars", "seconds", "s")),
}


@dataclass(frozen=True)
class Study:
    """The experiments that one page is about: how they are shown, how files of pictures begin, what captions say of the
    options, as {text: option}, and where the measurements are."""

    specs: dict
    prefix: str
    captions: dict
    folder: Path


UPDATES = Study(SPECS, "updates", {"rows": "rows", "narrow rows": "narrow_rows", "buffers": "buffers",
                                   "clients": "clients", "theta": "theta"}, bench.WORK / "update")


def runs(folder):
    """All runs of a folder, the oldest first."""
    found = []
    for path in sorted(folder.glob("*.json")):
        run = json.loads(path.read_text())
        if "records" in run:
            found.append(run)
    return sorted(found, key=lambda run: run["at"])


def newest(found, study=UPDATES):
    """[(experiment, run)]: for each experiment and timing mode the newest run that has records of it, in the order of
    the study."""
    chosen = {}
    for run in found:
        for name in run["experiments"]:
            if any(record["experiment"] == name for record in run["records"]):
                chosen[name, run["timing"]] = run
    return [(name, run) for spec in study.specs for (name, _), run in sorted(chosen.items(), key=lambda item: item[0])
            if name == spec]


class View:
    """The records of one experiment in one run."""

    def __init__(self, name, run, study=UPDATES):
        self.name, self.run, self.study, self.spec = name, run, study, study.specs[name]
        self.records = [record for record in run["records"] if record["experiment"] == name]
        self.cases, self.ways = [], []
        for record in self.records:
            for kind, value in ((self.cases, record["case"]), (self.ways, record["way"])):
                if value not in kind:
                    kind.append(value)

    def of(self, case, way):
        """The records of one case and way, by round."""
        return {record["round"]: record for record in self.records if record["case"] == case and record["way"] == way}

    def values(self, case, way, names):
        """The rounds' values of the first of the names that is there: {round: value}."""
        found = self.of(case, way)
        for name in names:
            values = {number: float(record[name]) for number, record in found.items()
                      if record.get(name) is not None}
            if values:
                return values
        return {}

    def ratio(self, case, way, wanted):
        """(median, least, largest) of the rounds' ratios, or None."""
        reference = next((one for one in wanted.against if self.system(one) == self.system(way)
                          or len(wanted.against) == 1), way if wanted.base else None)
        other = case | dict(wanted.base)
        if reference is None or (other, reference) == (case, way):
            return None
        ours, theirs = (self.values(*one, (wanted.figure,)) for one in ((case, way), (other, reference)))
        shared = sorted(set(ours) & set(theirs))
        pair = [theirs[number] for number in shared], [ours[number] for number in shared]
        top, bottom = pair if wanted.less_is_better else pair[::-1]
        return timelines.spread([a / b / case.get(wanted.divisor, 1) for a, b in zip(top, bottom) if b])

    def system(self, way):
        return next((record["system"] for record in self.records if record["way"] == way), None)

    def caption(self):
        """What the figures depend on."""
        run, options = self.run, self.run["options"]
        machine = run["machine"]
        shown = {text: options[name] for text, name in self.study.captions.items()}
        rounds = max(record["round"] for record in self.records)
        notes = [note["text"] for note in run["notes"] if note["experiment"] == self.name]
        build = " Debug build: these figures say nothing about speed." if machine["debug_build"] else ""
        return (f"Timing mode: {run['timing']}. {rounds} interleaved rounds; {said(shown)}. "
                f"Commit `{run['commit']}`, {run['at'][:10]}, {machine['processor']}, {machine['cores']} cores, "
                f"{machine['memory_bytes'] >> 30} GiB.{build} `{run['command']}`"
                + "".join(f" {note[:1].upper()}{note[1:]}." for note in notes))


def table(view):
    """The Markdown table of a view. Columns without any value are left out."""
    spec = view.spec
    names = list(dict.fromkeys(name for case in view.cases for name in case))
    varied = [name for name in names if len({str(case.get(name)) for case in view.cases}) > 1 or len(names) == 1]
    rows = [(case, way) for case in view.cases for way in view.ways if view.of(case, way)]
    columns = [(one.heading, lambda case, way, one=one: cell(view, case, way, one)) for one in spec.figures]
    columns += [(one.heading, lambda case, way, one=one: spread_text(view.ratio(case, way, one),
                                                                     "share" if one.divisor else "times"))
                for one in spec.ratios]
    filled = [(heading, [value(case, way) for case, way in rows]) for heading, value in columns]
    filled = [(heading, values) for heading, values in filled if any(values)]
    head = [*varied, "way", *[heading for heading, _ in filled]]
    lines = [head, ["---"] * len(head)]
    for place, (case, way) in enumerate(rows):
        lines.append([*[case_text(name, case.get(name)) for name in varied], way,
                      *[values[place] or "–" for _, values in filled]])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(view, case, way, wanted):
    values = list(view.values(case, way, wanted.names).values())
    if not values:
        return ""
    compared = wanted.names[0] in [view.spec.figures[0].names[0], *[one.figure for one in view.spec.ratios]]
    if compared and len(values) > 1:
        return spread_text(timelines.spread(values), wanted.kind)
    if wanted.kind in OF_ALL_ROUNDS:
        gathered, kind = OF_ALL_ROUNDS[wanted.kind]
        return written(gathered(values), kind)
    return written(statistics.median(values), wanted.kind)


def spread_text(found, kind):
    if found is None:
        return ""
    middle, least, most = found
    if least == most:
        return written(middle, kind)
    return f"{written(middle, kind)} ({written(least, kind)} to {written(most, kind)})"


def case_text(name, value):
    if value is None:
        return "–"
    if name in SHARES:
        return written(value, "share")
    return f"{value:g}" if isinstance(value, float) else str(value)


def written(value, kind):
    if kind == "s":
        return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"
    if kind == "ms":
        return f"{value:.3g} ms"
    if kind == "bytes":
        for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
            if value >= size:
                return f"{value / size:.3g} {unit}"
        return f"{value:.0f} B"
    if kind == "share":
        return f"{value * 100:.3g} %"
    if kind == "times":
        return f"{value:.2f}×"
    if kind == "J":
        return f"{value:.3g} J"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def pictures(view):
    """{name of the file without its suffix: description of the picture}."""
    kind, *rest = view.spec.picture
    stem = f"{view.study.prefix}-{view.name}-{re.sub(r'[^a-z0-9]+', '-', view.run['timing'].lower()).strip('-')}"
    title = f"{view.spec.title} ({view.run['timing']})"
    if kind == "bars":
        name, unit = rest
        groups = [(short(view, case), {way: timelines.spread(view.values(case, way, (name,)).values())
                                       for way in view.ways if view.values(case, way, (name,))})
                  for case in view.cases]
        groups = [(label, found) for label, found in groups if found]
        return {stem: describe.bars(title, groups, view.ways, unit, ", ".join(varied(view)))} if groups else {}
    if kind == "curves":
        name, unit, over = rest
        series = [(way, [(case[over], timelines.spread(values.values())) for case in view.cases
                         if (values := view.values(case, way, (name,)))]) for way in view.ways]
        return {stem: describe.curves(title, series, over, unit, ["Upright: the least and the largest of the rounds."])}
    found = {}
    for number in range(0, len(view.cases), math.ceil(len(view.cases) / PICTURES_MAX)):
        case = view.cases[number]
        found |= pictures_over_time(view, case, f"{stem}-{number + 1}", title, *rest)
    return found


def pictures_over_time(view, case, stem, title, unit, marked="when the update began and ended"):
    """The rate of operations that succeeded, and that of the others if there are any."""
    found = {}
    for name, of, shown in (("", lambda part: part[1] + part[2], unit), ("-aborts", lambda part: part[3],
                                                                        "aborts a second")):
        series, marks = [], []
        for way in view.ways:
            rounds = view.of(case, way)
            if not rounds:
                continue
            record = middle_round(rounds)
            series.append((way, over_rounds(record, rounds.values(), of)))
            marks += [(f"{way}: {moment}", at, len(series) - 1) for moment, at in record["marks"].items()
                      if moment != "over"]
        if not name or any(point[1] for _, points in series for point in points):
            notes = ["The round with the median time of each way; shaded: between the least and the largest of all "
                     f"rounds. Upright: {marked}."]
            found[f"{stem}{name}"] = describe.lines(f"{title}: {said(case)}", series, shown, marks, notes)
    return found


def over_rounds(record, rounds, of):
    """[(end of the slice, its figure in `record`, the least, the largest)]; without the last two if the other rounds
    have other slices."""
    def width(one):
        return one["slices"][1][0] if len(one["slices"]) > 1 else 0

    alike = [one["slices"] for one in rounds if width(one) == width(record)]
    points = []
    for number, part in enumerate(record["slices"]):
        figures = [of(slices[number]) for slices in alike if len(slices) > number]
        spread = (min(figures), max(figures)) if len(alike) > 1 else ()
        points.append((part[0] + width(record), of(part), *spread))
    return points


def middle_round(rounds):
    ordered = sorted(rounds.values(), key=lambda record: record["seconds"])
    return ordered[(len(ordered) - 1) // 2]


def varied(view):
    """The parts of a case that are not the same in all; all of them if there is but one case."""
    names = list(dict.fromkeys(name for case in view.cases for name in case))
    return [name for name in names if len({str(case.get(name)) for case in view.cases}) > 1] or names


def short(view, case):
    """A case without what is the same in all."""
    return ", ".join(case_text(name, case[name]) for name in varied(view) if name in case)


def section(name, found, folder, study=UPDATES):
    """The Markdown of all runs of one experiment; pictures lie in `folder`, relative to the page."""
    parts = []
    for run in found:
        view = View(name, run, study)
        parts.append(wrapped(view.caption()))
        parts.append(table(view))
        parts += [f"![{view.spec.title}, {view.run['timing']}]({folder}/{name}.svg)" for name in pictures(view)]
    return "\n\n".join(parts)


def wrapped(text):
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def write(folder, docs=None, study=UPDATES):
    """Tables and pictures of all runs in the folder; with `docs`, a page whose marked parts are filled."""
    chosen = newest(runs(folder), study)
    if not chosen:
        raise SystemExit(f"there are no measurements in {folder}")
    by_name = {}
    for name, run in chosen:
        by_name.setdefault(name, []).append(run)
    beside = docs.parent / "experiments" if docs else folder / "pictures"
    beside.mkdir(parents=True, exist_ok=True)
    for name, found in by_name.items():
        for run in found:
            for file, picture in pictures(View(name, run, study)).items():
                describe.save(beside, file, picture)
    if docs:
        text = docs.read_text()
        for name, found in by_name.items():
            text = filled(text, name, section(name, found, "experiments", study))
        docs.write_text(text)
        print(f"filled {docs}")
    summary = "\n\n".join(f"## {study.specs[name].title}\n\n{section(name, found, 'pictures', study)}"
                          for name, found in by_name.items())
    (folder / "summary.md").write_text(summary + "\n")
    print(f"wrote {folder.name}/summary.md; scripts/plots.py --from …/{beside.name} draws the pictures")


def filled(page, name, text):
    """A page with the part between the markers of one experiment replaced."""
    begin, end = f"<!-- table {name} -->", "<!-- end of table -->"
    pattern = re.compile(rf"({re.escape(begin)}\n).*?({re.escape(end)})", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"the page has no part between {begin} and {end}")
    return pattern.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page)

