"""What a picture shows: dictionaries that are stored as JSON.

Every description has `kind`, `title`, `notes` (sentences below the picture), and the titles of its axes, `x` and `y`,
with the unit. A value is [median, low, high]; where low and high are equal to it, no interval is drawn.
"""

import json


def bars(title, groups, names, unit, x="", notes=(), stacked=False):
    """Bars in groups. `groups` is [(label, {name: (value, low, high), or a text with the reason why there is no bar})].
    With `stacked`, the parts of one bar, and (low, high) of their sum, or None, behind them."""
    described = []
    for label, found, *spread in groups:
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
        sums = {"sum": list(spread[0])} if spread and spread[0] else {}
        described.append({"label": label, "values": values} | sums)
    return {"kind": "stacked" if stacked else "bars", "title": title, "x": x, "y": unit, "names": list(names),
            "groups": described, "notes": list(notes)}


def lines(title, series, unit, marks=(), notes=(), x="time since the start, s"):
    """Lines over time. `series` is [(name, [(x, y) or (x, y, low, high)])], x in seconds; `marks` is [(name, x, the
    number of the series it belongs to)], drawn upright."""
    return {"kind": "lines", "title": title, "x": x, "y": unit,
            "series": [{"name": name, "points": [list(point) for point in found]} for name, found in series],
            "marks": [{"name": name, "at": at, "series": number} for name, at, number in marks], "notes": list(notes)}


def curves(title, series, x, unit, notes=()):
    """Lines over a share, both scales logarithmic. `series` is [(name, [(x, (value, low, high))])]."""
    return {"kind": "curves", "title": title, "x": x, "y": unit,
            "series": [{"name": name, "points": [[at, list(values)] for at, values in sorted(found)]}
                       for name, found in series], "notes": list(notes)}


def cells(title, rows, columns, cell, legend, x="", y="", notes=()):
    """A cell for each row and column. `cell(row, column)` gives (kind, text, whether it is framed, in words), or None
    for an empty cell; `legend` is [(kind, what it means)]."""
    found = {(row, column): cell(row, column) for row in rows for column in columns}
    return {"kind": "cells", "title": title, "x": x, "y": y, "rows": list(rows), "columns": list(columns),
            "cells": [{"row": row, "column": column, "kind": kind, "text": text, "framed": framed, "words": words}
                      for (row, column), (kind, text, framed, words) in ((at, it) for at, it in found.items() if it)],
            "legend": [list(part) for part in legend], "notes": list(notes)}


def save(folder, name, picture):
    """Writes a description to `name`.json: one line for each group, series and cell."""
    parts = []
    for key, value in picture.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            inside = ",\n".join(f"  {json.dumps(part, ensure_ascii=False)}" for part in value)
            parts.append(f" {json.dumps(key)}: [\n{inside}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    (folder / f"{name}.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")


def load(path):
    """The description in a file; SystemExit names the file if it is none."""
    try:
        picture = json.loads(path.read_text())
        if not isinstance(picture, dict) or picture.get("kind") not in KINDS:
            raise ValueError(f"its kind is not one of {', '.join(KINDS)}")
        return picture
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path} describes no picture: {error}") from error


KINDS = ("bars", "stacked", "lines", "curves", "cells")
