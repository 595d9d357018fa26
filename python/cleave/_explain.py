"""The plan of a statement as an object: text, JSON, and a picture of its split.

The picture is a tree: operators of the host above, those of devices below, and the link between them. Its layout is
made here, from `EXPLAIN (FORMAT JSON)`, and needs no other package. Every text of the plan is escaped.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, field
from typing import Any

# Sizes in units of the picture.
_WIDTH, _HEIGHT, _ACROSS, _DOWN, _MARGIN = 190, 50, 22, 34, 16
_LINK = 44
_NOT_XML = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# Characters of a line in a box.
_NAME, _DETAIL = 26, 31
_HOST, _DEVICE = ("#dbe9f9", "#2c5f9e"), ("#fde9cf", "#a35a00")
# Keys that say what is known of an operator, in the forms that plans have.
_EXPECTED = ("rows_expected", "Plan Rows")
_ROWS = ("rows", "Actual Rows")
# Those that are not shown, or elsewhere.
_HIDDEN = ("Node Type", "Plans", "Side", "Device", "Parallel Aware", "Async Capable", "Parent Relationship",
           "Startup Cost", "Total Cost", "Plan Width", *_EXPECTED, *_ROWS)


@dataclass
class Operator:
    """An operator of a plan."""

    #: What it is.
    name: str
    #: Its arguments.
    detail: str
    #: `"host"`, or the name of a device.
    runs_on: str
    #: Rows that it gave, if it was run.
    rows: float | None = None
    #: Rows that the planner expects.
    expected: float | None = None
    #: Milliseconds that it computed.
    time_ms: float | None = None
    #: What it reads.
    inputs: list[Operator] = field(default_factory=list)

    @property
    def on_host(self) -> bool:
        """Whether the host runs it."""
        return self.runs_on == "host"

    def walk(self) -> list[Operator]:
        """It and all below."""
        return [self, *(below for one in self.inputs for below in one.walk())]


class Explain:
    """A plan. In a notebook it draws itself; `str` is its text, `json` what the database told, `svg` the picture."""

    def __init__(self, sql: str, plan: str, text: str | None = None) -> None:
        #: The statement.
        self.sql = sql
        #: What `EXPLAIN (FORMAT JSON)` told.
        self.json: Any = json.loads(plan)
        #: The operators that give the result; several only for statements with several plans.
        self.roots: list[Operator] = _roots(self.json)
        self._text = text

    @property
    def svg(self) -> str:
        """The picture, as the text of an SVG file."""
        return _picture(self.roots)

    @property
    def devices(self) -> list[str]:
        """The devices that run a part of it."""
        found = (one.runs_on for root in self.roots for one in root.walk() if not one.on_host)
        return sorted(set(found))

    def __str__(self) -> str:
        if self._text is not None:
            return self._text
        return "\n".join(line for root in self.roots for line in _lines(root, 0))

    def __repr__(self) -> str:
        return str(self)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg}</div>{_candidates(self.json)}'


def _roots(plan: Any) -> list[Operator]:
    """The trees of a plan: of PostgreSQL's form, with nested plans, or of a list of operators with their depths."""
    if isinstance(plan, list):
        return [root for part in plan for root in _roots(part)]
    if not isinstance(plan, dict):
        return []
    for key in ("Plan", "plan"):
        if isinstance(plan.get(key), dict):
            return [_nested(plan[key], "host")]
    listed = plan.get("plan")
    return _listed(listed) if isinstance(listed, list) else []


def _nested(node: dict, above: str) -> Operator:
    # What does not say where it runs, as in plans of PostgreSQL, runs where its parent does.
    side = node.get("Side")
    runs_on = above if side is None else "host" if side == "host" else str(node.get("Device", "a device"))
    shown = [
        f"{key}: {_flat(value)}"
        for key, value in node.items()
        if isinstance(value, (str, list, int, float)) and key not in _HIDDEN and not key.startswith("Actual")
    ]
    # The words for a person have all of it.
    if isinstance(node.get("Description"), str):
        shown = [node["Description"]]
    time = node.get("Actual Total Time")
    return Operator(
        name=str(node.get("Node Type", "?")),
        detail="; ".join(shown),
        runs_on=runs_on,
        rows=_number(_first(node, _ROWS)),
        expected=_number(_first(node, _EXPECTED)),
        time_ms=_number(time),
        inputs=[_nested(below, runs_on) for below in node.get("Plans", []) if isinstance(below, dict)],
    )


def _listed(nodes: list) -> list[Operator]:
    roots: list[Operator] = []
    above: list[Operator] = []
    for node in nodes:
        depth = int(node.get("depth", 0))
        micros = _number(node.get("time_us"))
        one = Operator(
            name=str(node.get("operator", "?")),
            detail=str(node.get("detail", "")),
            runs_on=str(node.get("runs_on", "host")),
            rows=_number(_first(node, _ROWS)),
            expected=_number(_first(node, _EXPECTED)),
            time_ms=None if micros is None else micros / 1000,
        )
        del above[depth:]
        (above[-1].inputs if above else roots).append(one)
        above.append(one)
    return roots


def _first(node: dict, keys: tuple[str, ...]) -> Any:
    return next((node[key] for key in keys if node.get(key) is not None), None)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _flat(value: Any) -> str:
    return ", ".join(_flat(item) for item in value) if isinstance(value, list) else str(value)


def _lines(one: Operator, depth: int) -> list[str]:
    side = "" if one.on_host else f"[{one.runs_on}] "
    detail = f": {one.detail}" if one.detail else ""
    said = f"  ({', '.join(_said(one))})" if _said(one) else ""
    below = (line for each in one.inputs for line in _lines(each, depth + 1))
    return [f"{'  ' * depth}{side}{one.name}{detail}{said}", *below]


def _said(one: Operator) -> list[str]:
    said = []
    if one.rows is not None:
        said.append(f"{_count(one.rows)} rows")
    if one.expected is not None:
        said.append(f"{_count(one.expected)} expected")
    if one.time_ms is not None and one.rows is not None:
        said.append(f"{one.time_ms:.1f} ms")
    return said


def _count(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u202f")


def _picture(roots: list[Operator]) -> str:
    """The SVG. Leaves stand beside each other, an operator above the middle of its inputs."""
    places: dict[int, tuple[float, int]] = {}
    right = float(_MARGIN)

    def place(one: Operator, host_level: int, device_level: int) -> float:
        nonlocal right
        level = host_level if one.on_host else device_level
        deeper = (host_level + 1, device_level) if one.on_host else (host_level, device_level + 1)
        middles = [place(below, *deeper) for below in one.inputs]
        if middles:
            middle = (middles[0] + middles[-1]) / 2
        else:
            middle = right + _WIDTH / 2
            right += _WIDTH + _ACROSS
        places[id(one)] = (middle, level)
        return middle

    for root in roots:
        place(root, 0, 0)
    every = [one for root in roots for one in root.walk()]
    host = [places[id(one)][1] for one in every if one.on_host]
    device = [places[id(one)][1] for one in every if not one.on_host]
    host_levels = max(host, default=-1) + 1
    device_levels = max(device, default=-1) + 1
    width = max(right - _ACROSS, _MARGIN + _WIDTH) + _MARGIN
    link_at = _MARGIN + host_levels * (_HEIGHT + _DOWN) - _DOWN / 2
    height = 2 * _MARGIN + (host_levels + device_levels) * (_HEIGHT + _DOWN) - _DOWN
    height += _LINK if device_levels else 0

    def top(one: Operator) -> float:
        level = places[id(one)][1]
        if one.on_host:
            return _MARGIN + level * (_HEIGHT + _DOWN)
        return _MARGIN + (host_levels + level) * (_HEIGHT + _DOWN) + _LINK

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{_escaped(_summary(every))}</title>",
    ]
    if device_levels:
        parts.append(_link(width, link_at, sorted({one.runs_on for one in every if not one.on_host})))
    for one in every:
        parts += [_edge(places, top, one, below) for below in one.inputs]
    parts += [_box(places[id(one)][0], top(one), one) for one in every]
    parts.append("</svg>")
    return "".join(parts)


def _summary(every: list[Operator]) -> str:
    below = sum(not one.on_host for one in every)
    return f"A plan of {len(every)} operators: {len(every) - below} on the host, {below} on devices"


def _link(width: float, at: float, devices: list[str]) -> str:
    middle, names = at + _LINK / 2 + _DOWN / 4, _cut(", ".join(devices), 60)
    return (
        f'<rect x="0" y="{middle - 9:.1f}" width="{width:.0f}" height="18" fill="#777" fill-opacity="0.16"/>'
        f'<line x1="0" x2="{width:.0f}" y1="{middle:.1f}" y2="{middle:.1f}" stroke="#777" stroke-dasharray="7 5"/>'
        f'<text x="6" y="{middle - 14:.1f}" fill="#777">host</text>'
        f'<text x="6" y="{middle + 23:.1f}" fill="#777">link to {_escaped(names)}</text>'
    )


def _edge(places: dict, top: Any, one: Operator, below: Operator) -> str:
    (x1, _), (x2, _) = places[id(one)], places[id(below)]
    upper, lower = (one, below) if top(one) < top(below) else (below, one)
    start, end = places[id(upper)][0], places[id(lower)][0]
    y1, y2 = top(upper) + _HEIGHT, top(lower)
    crosses = one.on_host != below.on_host
    stroke = '#a35a00" stroke-width="2.5' if crosses else "#888"
    line = f'<path d="M{start:.1f} {y1:.1f} L{end:.1f} {y2:.1f}" fill="none" stroke="{stroke}"/>'
    rows = below.rows if below.rows is not None else below.expected
    if not crosses or rows is None:
        return line
    label = f"{_count(rows)} rows"
    return line + (
        f'<text x="{(x1 + x2) / 2 + 8:.1f}" y="{(y1 + y2) / 2 - 2:.1f}" fill="#a35a00">{_escaped(label)}</text>'
    )


def _box(middle: float, top: float, one: Operator) -> str:
    fill, stroke = _HOST if one.on_host else _DEVICE
    left = middle - _WIDTH / 2
    whole = f"{one.name}\n{one.detail}\n{', '.join(_said(one))}\non {one.runs_on}"
    lines = [_cut(one.detail, _DETAIL), ", ".join(_said(one))]
    texts = "".join(
        f'<text x="{middle:.1f}" y="{top + 31 + 13 * place:.1f}" text-anchor="middle" fill="#333" font-size="10">'
        f"{_escaped(line)}</text>"
        for place, line in enumerate(lines)
        if line
    )
    return (
        f"<g><title>{_escaped(whole)}</title>"
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{fill}" '
        f'stroke="{stroke}"/>'
        f'<text x="{middle:.1f}" y="{top + 17:.1f}" text-anchor="middle" fill="#111" font-weight="600">'
        f"{_escaped(_cut(one.name, _NAME))}</text>{texts}</g>"
    )


def _candidates(plan: Any) -> str:
    """A table of the splits that the planner compared."""
    found = plan[0] if isinstance(plan, list) and plan else plan
    candidates = _first(found, ("candidates", "Candidates")) if isinstance(found, dict) else None
    if not isinstance(candidates, list) or not all(isinstance(one, dict) for one in candidates):
        return ""
    shown = (("split", "split"), ("finish_ms", "expected ms"), ("link_bytes", "bytes over the link"))
    columns = [(key, title) for key, title in shown if any(key in one for one in candidates)]
    if not columns:
        return ""
    head = "".join(f"<th>{title}</th>" for _, title in columns)
    chosen = ' style="font-weight:600"'
    rows = "".join(
        f"<tr{chosen if one.get('chosen') else ''}>"
        + "".join(f"<td>{_escaped(_flat(one.get(key, '')))}</td>" for key, _ in columns)
        + "</tr>"
        for one in candidates
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cut(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1] + "…"


def _escaped(text: str) -> str:
    """Text for SVG and HTML, without the characters that XML does not have, and those that would be no UTF-8."""
    return html.escape(_NOT_XML.sub("\ufffd", text))
