"""The plan of a statement as an object: text, JSON, and a picture of its split.

The picture is drawn by the compiled part, as for `cleave explain --svg`. No text of a plan becomes markup.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, field
from typing import Any

from . import _cleave, _errors

_CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
# What plans of PostgreSQL say of a node besides; ours have a description in words.
_TOLD = ("Relation Name", "Index Name", "Filter", "Index Cond", "Hash Cond", "Group Key", "Sort Key")


@dataclass
class Operator:
    """An operator of a plan."""

    #: What it is, by the name that PostgreSQL has for such a node.
    name: str
    #: What it does, in words.
    detail: str
    #: `"host"`, or the name of a device.
    runs_on: str
    #: Rows that it gave, if it was run.
    rows: float | None = None
    #: Rows that the planner expects.
    expected: float | None = None
    #: Milliseconds that it computed itself, on all threads together.
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
        #: The operators that give the result; none for a statement without a plan.
        self.roots: list[Operator] = [
            _operator(part["Plan"], "host")
            for part in (self.json if isinstance(self.json, list) else [self.json])
            if isinstance(part, dict) and isinstance(part.get("Plan"), dict)
        ]
        self._plan = plan
        self._text = text

    @property
    def svg(self) -> str:
        """The picture, as the text of an SVG file."""
        return _cleave.plan_svg(self._plan)

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

    def _repr_svg_(self) -> str | None:
        try:
            return self.svg
        except _errors.Error:
            # A notebook shows the text then.
            return None

    def _repr_html_(self) -> str:
        text = f"<pre>{html.escape(_CONTROLS.sub(' ', str(self)))}</pre>"
        picture = self._repr_svg_()
        if picture is None:
            return text
        # A screen reader has no picture.
        return (
            f'<div style="overflow-x:auto">{picture}</div>'
            f"<details><summary>The plan as text</summary>{text}</details>"
        )


def _operator(node: dict, above: str) -> Operator:
    # What does not say where it runs, as in plans of PostgreSQL, runs where its parent does.
    side = node.get("Side")
    runs_on = above if side is None else "host" if side == "host" else str(node.get("Device", "a device"))
    name = str(node.get("Node Type", "?"))
    below = [one for one in node.get("Plans", []) if isinstance(one, dict)]
    time = _number(node.get("Actual Total Time"))
    if time is not None:
        # It includes the nodes below.
        time = max(0.0, time - sum(_number(one.get("Actual Total Time")) or 0.0 for one in below))
    return Operator(
        name=name,
        detail=str(node.get("Description") or _told(name, node)),
        runs_on=runs_on,
        rows=_number(node.get("Actual Rows")),
        expected=_number(node.get("Plan Rows")),
        time_ms=time,
        inputs=[_operator(one, runs_on) for one in below],
    )


def _told(name: str, node: dict) -> str:
    told = [f"{key}: {_flat(node[key])}" for key in _TOLD if key in node]
    return f"{name}: {'; '.join(told)}" if told else name


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _flat(value: Any) -> str:
    return ", ".join(_flat(item) for item in value) if isinstance(value, list) else str(value)


def _lines(one: Operator, depth: int) -> list[str]:
    side = "" if one.on_host else f"[{one.runs_on}] "
    said = f"  ({', '.join(_said(one))})" if _said(one) else ""
    below = (line for each in one.inputs for line in _lines(each, depth + 1))
    return [f"{'  ' * depth}{side}{one.detail}{said}", *below]


def _said(one: Operator) -> list[str]:
    said = []
    if one.rows is not None:
        said.append(f"rows {one.rows:.0f}")
    if one.expected is not None:
        said.append(f"expected {one.expected:.0f}")
    if one.time_ms is not None and one.rows is not None:
        said.append(f"{one.time_ms:.3f} ms")
    return said
