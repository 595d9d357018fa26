"""CSV, a summary and pictures from the measurements of the newest build, for each testbed by itself.

    measurements.csv        every run
    summary.md, .json       the figures that the matrix is judged by, and all ways that were compared
    matrix-PLACE.json        experiment 2: speed-up of each split over host-only (the paper's Fig. 12)
    quality-PLACE.json       experiment 3: what was chosen, by how it compares to the best split (Fig. 13)
    stacks-PLACE.json        experiment 1 (Fig. 11)
    two-tables-PLACE.json    experiments 4 and 5 (Fig. 14 and 15)
    timeline-*-PLACE.json    experiment 6: where the time goes on the host, and on the device (Fig. 16)
    gain.json               the geometric mean of `auto` over host-only, by link and by the device's share of a core

A picture is described as JSON, and drawn by scripts/plots.py.
"""

import csv
import json

from plots import describe

from . import figures, results, ways

FIELDS = ["build", "commit", "at", "timing", "experiment", "scale", "link", "device_share", "host_share", "pool_bytes",
          "data_bytes", "query", "way", "run", "planning_ms", "execution_ms", "total_ms", "wall_ms", "rows",
          "rows_checksum",
          "rows_equal", "media_bytes", "to_host_bytes", "to_device_bytes", "host_memory_bytes", "host_cpu_ms",
          "device_cpu_ms",
          "host_process_cpu_ms", "device_process_cpu_ms", "host_waited_ms", "devices_stalled_ms", "chosen",
          "predicted_ms", "error_kind", "error"]
FAILURES = {"time-out": "T", "cannot": "–", "error": "!", "not there": "–"}
COMPARED = ["host", "equal", "free-disk", "blk", "native", "ndp", "paper", "auto"]
HEAT = [("better3", "3x and more"), ("better2", "1.5x"), ("better1", "faster"), ("par", "on par, 5 %"),
        ("worse1", "slower"), ("worse2", "1.5x slower"), ("worse3", "3x slower"), ("none", "T time-out, – cannot, ! "
            "error")]


def write(folder):
    records, _ = results.read(folder / "measurements.jsonl")
    records = list(records.values())
    if not records:
        raise SystemExit(f"{folder} holds no measurements")
    builds = list(dict.fromkeys(record["build"] for record in sorted(records, key=lambda record: record.get("at", ""))))
    kept = [record for record in records if record["build"] == builds[-1]]
    write_csv(folder / "measurements.csv", records)
    summary, text = [], [f"# hybridNDP's experiments, build {builds[-1]}, commit {kept[-1]['commit']}", ""]
    if len(builds) > 1:
        text += [f"Of {len(builds)} builds that were measured, the newest; the others are in measurements.csv only.",
                 ""]
    for place in dict.fromkeys(map(results.place_of, kept)):
        view = View([record for record in kept if results.place_of(record) == place])
        found = {"place": view.place(), "matrix": matrix_rows(view)}
        found["judged"] = judge(view, found["matrix"]) if found["matrix"] else None
        found["compared"] = compared_rows(view)
        summary.append(found)
        text += as_markdown(view, found)
        pictures(folder, view, found)
    if len(summary) > 1:
        describe.save(folder, "gain", gain_picture(summary))
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    (folder / "summary.md").write_text("\n".join(text) + "\n")
    print("\n".join(text))


class View:
    """The records of one testbed, by experiment and key."""

    def __init__(self, records):
        self.records = records
        self.by = {}
        for record in records:
            self.by.setdefault((record["experiment"], record["query"], record["way"]), {})[record["run"]] = record

    def place(self):
        first = self.records[0]
        return {name: first[name] for name in results.PLACE} | {
            name: first[name] for name in ("commit", "data_bytes")}

    def slug(self):
        place = self.place()
        parts = [f"{place['scale']:g}", place["link"], f"{place['device_share'] * 100:g}",
                 f"{place['host_share'] * 100:g}",
                 f"{place['pool_bytes'] / 1e6:.0f}MB"] + (["unmeasured"] if place["timing"] != "testbed" else [])
        return "-".join(parts)

    def title(self):
        place = self.place()
        return (f"scale {place['scale']:g}, link {place['link']}, device {place['device_share']:.0%} of a core, "
                f"host {place['host_share']:.0%}, pool {place['pool_bytes'] / 1e6:.1f} of "
                f"{place['data_bytes'] / 1e6:.0f} MB; "
                f"timing mode: {place['timing']}")

    def queries(self, experiment):
        return list(dict.fromkeys(record["query"] for record in self.records if record["experiment"] == experiment))

    def ways(self, experiment):
        return list(dict.fromkeys(record["way"] for record in self.records if record["experiment"] == experiment))

    def once(self, query, split):
        """The single run of a forced split of the matrix."""
        return self.by.get(("matrix", query, split), {}).get(0)

    def runs(self, experiment, query, way):
        """The runs that were made in rounds."""
        found = self.by.get((experiment, query, way), {})
        return [record for run, record in sorted(found.items()) if run > 0]

    def times(self, experiment, query, way):
        return [record["total_ms"] for record in self.runs(experiment, query, way) if not record["error_kind"]]


# --- the matrix and what is judged by it -------------------------------------------------------------

def matrix_rows(view):
    """For each query with complete rounds: host-only, `auto`, the best forced split and the baselines."""
    rows = []
    for query in view.queries("matrix"):
        forced = forced_times(view, query)
        host, auto = (view.times("matrix", query, way) for way in ("host", "auto"))
        if not forced or not host:
            continue
        best = min(forced, key=forced.get)
        # Host-only was measured in rounds, and so was the best split: those count, not the single runs.
        best_ms = view.times("matrix", query, best)
        host_ms = figures.median(host)
        best_of = figures.median(best_ms) or forced[best]
        if host_ms < best_of:
            best, best_of = "host", host_ms
        checked = [record for record in view.records if record["experiment"] == "matrix" and record["query"] == query
                   and record.get("rows_equal") is not None]
        row = {"query": query, "runs": len(auto), "host_ms": host_ms, "host_interval": figures.interval(host),
               "best": best, "best_ms": best_of, "splits": len(forced), "checked": len(checked),
               "other_rows": [record["way"] for record in checked if not record["rows_equal"]],
               "failed": {record["way"]: record["error_kind"] for record in view.records
                          if record["experiment"] == "matrix"
                          and record["query"] == query and record["error_kind"]}}
        # A run of `auto` that failed counts against it, or its worst queries would be its best.
        attempts = view.runs("matrix", query, "auto")
        row["auto_failed"] = next((record["error_kind"] for record in attempts if record["error_kind"]), None)
        row["auto_tried"] = bool(attempts)
        if paper := view.times("matrix", query, "paper"):
            row |= {"paper_over_best": figures.median(paper) / best_of,
                    "paper_speed_up": host_ms / figures.median(paper)}
        if auto:
            row |= {"auto_ms": figures.median(auto), "auto_interval": figures.interval(auto),
                    "auto_chose": attempts[0].get("chosen"),
                    "auto_over_best": figures.median(auto) / best_of, "speed_up": host_ms / figures.median(auto),
                    "regression": figures.is_regression(auto, host)}
        for way, name in (("paper", "paper"), ("equal", "equal"), ("free-disk", "free_disk")):
            times = view.times("matrix", query, way)
            row[f"{name}_ms"] = figures.median(times)
            if times and auto:
                row[f"speed_up_{name}"] = figures.median(times) / figures.median(auto)
        rows.append(row)
    return rows


def forced_times(view, query):
    """Milliseconds of the single runs, by split, of those that ended within their time-out with the host's rows."""
    found = {}
    for (experiment, of, way), runs in view.by.items():
        record = runs.get(0)
        if (experiment, of) == ("matrix", query) and record and not record["error_kind"] \
                and record.get("rows_equal") is not False:
            found[way] = record["total_ms"]
    return found


def judge(view, rows):
    """The figures that the matrix is judged by."""
    judged = [row for row in rows if "auto_ms" in row]
    of_auto = [row for row in rows if row["auto_tried"]]
    good = [figures.verdict(row["host_ms"] / time) in ("par", "better") for row in rows
            for split, time in forced_times(view, row["query"]).items() if split != "host"]
    # A split that failed, or gave other rows, is no success; one that the statement does not have is no split.
    tried = sum(1 for row in rows for (experiment, query, way), runs in view.by.items() if (experiment, query) ==
                ("matrix", row["query"]) and way != "host" and 0 in runs
                and runs[0]["error_kind"] not in ("cannot", "not there"))
    failed = sum(1 for row in rows for way, kind in row["failed"].items() if kind in ("time-out", "error"))
    missed = [max(record["prediction"]["finish_ms"] / record["total_ms"],
                  record["total_ms"] / record["prediction"]["finish_ms"])
              for record in view.records if record["experiment"] == "matrix" and record["run"] == 0
              and not record["error_kind"]
              and (record.get("prediction") or {}).get("finish_ms") and record["total_ms"]]
    return {
        "queries": len(rows), "queries_with_auto": len(of_auto),
        "runs_min": min([row["runs"] for row in judged] or [0]),
        "auto_failed": {row["query"]: row["auto_failed"] for row in rows if row["auto_failed"]},
        "host_failed": [query for query in view.queries("matrix") if view.once(query, "host").get("error_kind")],
        "auto_near_best_share": share(not row["auto_failed"] and row["auto_over_best"] <= figures.AUTO_SHARE_MAX
                                      for row in of_auto),
        "regressions": [row["query"] for row in of_auto if row["auto_failed"] or row["regression"]],
        "auto_par_or_better_share": share(not row["auto_failed"]
                                          and figures.verdict(row["speed_up"]) in ("par", "better")
                                          for row in of_auto),
        "cells_par_or_better_share": sum(good) / tried if tried else None,
        "speed_up_mean": figures.geometric_mean(row["speed_up"] for row in judged),
        "paper_near_best_share": share(row["paper_over_best"] <= figures.AUTO_SHARE_MAX for row in rows
                                       if "paper_over_best" in row),
        "paper_speed_up_mean": figures.geometric_mean(row["paper_speed_up"] for row in rows if "paper_speed_up" in row),
        "over_best_mean": figures.geometric_mean(row["auto_over_best"] for row in judged),
        "speed_up_equal_mean": figures.geometric_mean(row["speed_up_equal"] for row in judged
                                                      if "speed_up_equal" in row),
        "speed_up_free_disk_mean": figures.geometric_mean(row["speed_up_free_disk"] for row in judged
                                                          if "speed_up_free_disk" in row),
        "prediction_q_error_median": figures.median(missed),
        "other_rows": {row["query"]: row["other_rows"] for row in rows if row["other_rows"]},
        "rows_checked": sum(row["checked"] for row in rows), "time_outs_or_errors": failed}


def share(facts):
    facts = list(facts)
    return sum(facts) / len(facts) if facts else None


def chosen_rows(view):
    """The choice of each strategy, and the result of `auto`: {query: {column: (split, ratio to the best forced
    split)}}."""
    found = {}
    for row in matrix_rows(view):
        query, forced = row["query"], forced_times(view, row["query"])
        columns = {}
        if "auto_ms" in row:
            columns["auto, run"] = (row["auto_chose"] or "?", row["auto_over_best"])
        for way in view.ways("quality"):
            for record in view.runs("quality", query, way):
                if record["error_kind"]:
                    continue
                time = forced.get(record["chosen"])
                columns[way.removeprefix("explain-") + ", plan"] = (record["chosen"] or "?", time
                    and time / min(forced.values()))
        found[query] = columns
    return found


def compared_rows(view):
    """Every way that was measured in rounds, outside the matrix, beside host-only and both baselines."""
    rows = []
    for experiment in ("stacks", "two-tables", "timeline"):
        for query in view.queries(experiment):
            base = {way: figures.median(view.times(experiment, query, way)) for way in ("host", "equal", "free-disk")}
            for way in view.ways(experiment):
                runs, times = view.runs(experiment, query, way), view.times(experiment, query, way)
                if not runs:
                    continue
                row = {"experiment": experiment, "query": query, "way": way, "runs": len(times),
                       "error_kind": None if times else runs[0]["error_kind"],
                       "rows_equal": next((run["rows_equal"] for run in runs if run.get("rows_equal") is not None),
                                          None)}
                if times:
                    row |= {"ms": figures.median(times), "interval": figures.interval(times)}
                    row |= {f"speed_up_over_{name}": value / row["ms"] for name, value in base.items() if value}
                rows.append(row)
    return rows


# --- files --------------------------------------------------------------------------------------------

def write_csv(path, records):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore")
        writer.writeheader()
        for record in records:
            writer.writerow(record | {"predicted_ms": (record.get("prediction") or {}).get("finish_ms")})


def as_markdown(view, found):
    text = [f"## {view.title()}", ""]
    if judged := found["judged"]:
        text += [f"- {judged['queries']} queries, {judged['runs_min']} interleaved runs at least; `auto` within 1.1x "
                 f"of the best "
                 f"forced split: {percent(judged['auto_near_best_share'])}; on par with host-only or better: "
                 f"{percent(judged['auto_par_or_better_share'])} (of all forced splits "
                 f"{percent(judged['cells_par_or_better_share'])})",
                 f"- slower than host-only beyond max(5 %, 5 ms) with its whole interval: "
                 f"{', '.join(judged['regressions']) or 'none'}",
                 *([f"- `auto` failed, which counts against it above and is in no mean: "
                    f"{json.dumps(judged['auto_failed'])}"]
                   if judged["auto_failed"] else []),
                 *([f"- host-only failed, so there is nothing to compare: {', '.join(judged['host_failed'])}"]
                   if judged["host_failed"] else []),
                 f"- geometric means of `auto`: {times(judged['speed_up_mean'])} over host-only, **at equal silicon "
                 f"{times(judged['speed_up_equal_mean'])}**, with a disk that costs nothing "
                 f"{times(judged['speed_up_free_disk_mean'])}; "
                 f"{times(judged['over_best_mean'])} the best forced split's time",
                 *([f"- strategy `paper` in place of `makespan`: within 1.1x of the best forced split "
                    f"{percent(judged['paper_near_best_share'])}; geometric mean over host-only "
                    f"{times(judged['paper_speed_up_mean'])}"] if judged["paper_near_best_share"] is not None else []),
                 f"- rows compared with host-only: {judged['rows_checked']} results; others than the host's: "
                 f"{json.dumps(judged['other_rows']) if judged['other_rows'] else 'none'}; time-outs and errors: "
                 f"{judged['time_outs_or_errors']}; predicted finish, median q-error: "
                 f"{number(judged['prediction_q_error_median'])}",
                 *(["- fewer than 6 runs: intervals are from the least to the largest, and hold the median with less "
                    "than 95 %"]
                   if judged["runs_min"] < 6 else []),
                 "", "| query | host ms | 95 % | auto ms | 95 % | chose | best split | best ms | auto/best | over "
                     "host | over equal "
                 "| over free disk |", "|---|---|---|---|---|---|---|---|---|---|---|---|"]
        text += ["| " + " | ".join([
            row["query"], number(row["host_ms"]), ends(row["host_interval"]), number(row.get("auto_ms")),
            ends(row.get("auto_interval")), row.get("auto_chose") or "", row["best"], number(row["best_ms"]),
            times(row.get("auto_over_best")), times(row.get("speed_up")), times(row.get("speed_up_equal")),
            times(row.get("speed_up_free_disk"))]) + " |" for row in found["matrix"]] + [""]
    if qualities := chosen_rows(view):
        for column in dict.fromkeys(column for columns in qualities.values() for column in columns):
            kinds = [figures.quality(columns[column][1]) for columns in qualities.values() if column in columns]
            text.append(f"- choice, {column}: best (within 1.1x) {percent(share(kind == 'best' for kind in kinds))}, "
                        f"near (1.5x) "
                        f"{percent(share(kind == 'near' for kind in kinds))}, of {len(kinds)}")
        text.append("")
    if found["compared"]:
        text += ["| experiment | query | way | ms | 95 % | runs | over host | over equal | over free disk | rows |",
                 "|---|---|---|---|---|---|---|---|---|---|"]
        text += ["| " + " | ".join([
            row["experiment"], row["query"], row["way"], number(row.get("ms")) or row["error_kind"] or "",
            ends(row.get("interval")),
            str(row["runs"]), *(times(row.get(f"speed_up_over_{name}")) for name in ("host", "equal", "free-disk")),
            {True: "same", False: "OTHER", None: ""}[row["rows_equal"]]]) + " |" for row in found["compared"]] + [""]
    return text


def percent(value):
    return "–" if value is None else f"{value:.0%}"


def times(value):
    return "" if value is None else f"{value:.2f}x"


def number(value):
    return "" if value is None else f"{value:.1f}"


def ends(pair):
    return "" if pair is None else f"{pair[0]:.1f} to {pair[1]:.1f}"


# --- pictures -----------------------------------------------------------------------------------------

def pictures(folder, view, found):
    slug, title = view.slug(), view.title()
    if found["matrix"]:
        describe.save(folder, f"matrix-{slug}", matrix_picture(view, found["matrix"], title))
        describe.save(folder, f"quality-{slug}", quality_picture(chosen_rows(view), title))
    for experiment, head in (("stacks", "Stacks"), ("two-tables", "Join of two tables")):
        if view.queries(experiment):
            describe.save(folder, f"{experiment}-{slug}", compared_picture(view, experiment, head, title))
    if view.queries("timeline"):
        for side, picture in timeline_pictures(view, title).items():
            describe.save(folder, f"timeline-{side}-{slug}", picture)


def matrix_picture(view, rows, title):
    splits = sorted({way for experiment, _, way in view.by if experiment == "matrix"} - {"host", "auto", "paper",
        "equal", "free-disk"},
                    key=ways.split_order)
    by_query = {row["query"]: row for row in rows}

    def cell(query, way):
        row = by_query[query]
        if way in splits:
            record = view.once(query, way)
            if record is None:
                return None
            if record["error_kind"]:
                return "none", FAILURES[record["error_kind"]], False, f"{query} {way}: {record['error']}"
            time, several = record["total_ms"], "once"
        else:
            key = {"equal": "equal_ms", "free-disk": "free_disk_ms", "auto": "auto_ms", "paper": "paper_ms"}[way]
            time, several = row.get(key), f"median of {row['runs']}"
            if time is None:
                return None
        speed_up = row["host_ms"] / time
        wrong = way in row["other_rows"]
        return ("none" if wrong else heat(speed_up), "rows!" if wrong else f"{speed_up:.1f}x", way == row["best"],
                f"{query} {way}: {time:.1f} ms ({several}), host-only {row['host_ms']:.1f} ms")

    notes = [title, "Speed-up over host-only; the frame is the best forced split, where one is faster than "
                    "host-only. equal: host-only "
             "with the device's share of a core added to the host;", "free-disk: that, and a device that serves "
                 "pages without a limit."]
    return describe.cells("Splits against host-only", list(by_query), [*splits, "paper", "auto", "equal", "free-disk"],
                          cell, HEAT, x="split", y="JOB query", notes=notes)


def gain_picture(summary):
    """A cell for each link and share of a core: how many times as fast as host-only the split queries are."""
    by_place = {(found["place"]["link"], found["place"]["device_share"]): found["judged"] for found in summary
                if found["judged"]}
    links = sorted({link for link, _ in by_place}, key=rate_of)
    shares = sorted({share for _, share in by_place})

    def cell(share, link):
        judged = by_place.get((link, float(share.rstrip("%")) / 100))
        if judged is None or judged["speed_up_mean"] is None:
            return None
        mean = judged["speed_up_mean"]
        return heat(mean), f"{mean:.1f}x", False, f"{share} of a core, {link}: {mean:.2f}x host-only"

    queries = max(judged["queries"] for judged in by_place.values())
    notes = [f"Geometric mean over {queries} JOB queries, `auto` against all work on the host, which has a core.",
             "Rows: the device's share of a core. Timing mode: testbed."]
    return describe.cells("Gain of splitting, by link and device", [f"{share * 100:g}%" for share in shares],
                          links, cell, HEAT[:-1], x="link", y="device's share of a core", notes=notes)


def rate_of(link):
    """Bits a second, for sorting."""
    units = {"gbit": 1e9, "mbit": 1e6}
    return next((float(link.removesuffix(unit)) * bits for unit, bits in units.items() if link.endswith(unit)),
                float("inf"))


def heat(speed_up):
    kind = figures.verdict(speed_up)
    if kind == "par":
        return "par"
    factor = max(speed_up, 1 / speed_up)
    return kind + ("3" if factor >= 3 else "2" if factor >= 1.5 else "1")


def quality_picture(qualities, title):
    columns = list(dict.fromkeys(column for found in qualities.values() for column in found))

    def cell(query, column):
        if column not in qualities[query]:
            return None
        split, ratio = qualities[query][column]
        kind = figures.quality(ratio)
        said = "was not measured" if ratio is None else f"takes {ratio:.2f}x the best forced split's time"
        return {"best": "better2"}.get(kind, kind), split, False, f"{query}: {split} {said}"

    legend = [("better2", "within 1.1x of the best split"), ("near", "within 1.5x"), ("missed", "missed"),
              ("none", "not measured")]
    notes = [title, "auto, run: interleaved runs of `auto`; the other columns: the single forced run of the split "
                    "that EXPLAIN chose."]
    return describe.cells("What was chosen", list(qualities), columns, cell, legend, x="choice", y="JOB query",
                          notes=notes)


def compared_picture(view, experiment, head, title):
    names = [way for way in COMPARED if way in view.ways(experiment)]
    groups = []
    for query in view.queries(experiment):
        bars = {}
        for way in names:
            runs, found = view.runs(experiment, query, way), view.times(experiment, query, way)
            if found:
                bars[way] = (figures.median(found), *figures.interval(found))
            elif runs:
                bars[way] = runs[0]["error_kind"]
        groups.append((query, bars))
    return describe.bars(head, groups, names, "ms", "JOB query" if experiment == "stacks" else "table and index", [
        title, "Planning and execution, median; the line is its 95 % interval. equal and free-disk: host-only at equal "
               "silicon."])


def timeline_pictures(view, title):
    """Where the time of the median run goes, split by split, and between which sums the runs lie. The first run is left
    out, because its process also returned rows to compare."""
    host, device = [], []
    for query in view.queries("timeline"):
        for way in sorted(view.ways("timeline"), key=ways.split_order):
            runs = [run for run in view.runs("timeline", query, way) if not run["error_kind"]]
            if not runs:
                if failed := view.runs("timeline", query, way):
                    host.append((way, {"planning": failed[0]["error_kind"]}, None))
                continue
            runs = [run for run in runs if run["run"] > 1] or runs
            median = sorted(runs, key=lambda run: run["total_ms"])[(len(runs) - 1) // 2]
            for side, of_run in ((host, host_parts), (device, device_parts)):
                sums = [sum(of_run(run).values()) for run in runs]
                side.append((way, {name: (value,) * 3 for name, value in of_run(median).items()},
                             (min(sums), max(sums))))
    between = "The median run; the line: between the least and the largest sum."
    return {"host": describe.bars("The host's time, split by split", host, ["planning", "works", "waits"], "ms",
                                  "split", [title, f"{between} waits: for rows of fragments, summed over fragments, at "
                                            "most the whole execution; reading pages counts as work."], stacked=True),
            "device": describe.bars("The device's time, split by split", device, ["fragments", "serving", "stalled"],
                                    "ms", "split", [title, f"{between} fragments: CPU time of fragments; serving: all "
                                                    "else that the device's process used of the processor, pages and "
                                                    "TLS above all; stalled: all slots of the ring were full."],
                                    stacked=True)}


def host_parts(run):
    # Waits are summed over fragments, which may wait at the same time.
    waits = min(run["host_waited_ms"], run["execution_ms"])
    return {"planning": run["planning_ms"], "works": run["execution_ms"] - waits, "waits": waits}


def device_parts(run):
    fragments = run["device_cpu_ms"]
    # The whole process has served pages too.
    serving = max(run["device_process_cpu_ms"] - fragments, 0.0) if "device_process_cpu_ms" in run else 0.0
    return {"fragments": fragments, "serving": serving, "stalled": run["devices_stalled_ms"]}
