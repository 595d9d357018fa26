"""What a statement that takes long shows in a notebook: a bar, and the time that is left, in the output of its cell.

The compiled part calls `tick(seconds, begun, all)` while it waits, with how much of the statement's input was begun.
The bar needs no other package: it is text and HTML of the cell's output, which is updated in its place.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

#: Seconds after which something is shown.
PATIENCE = 1.0
# Seconds between two changes of what is shown.
_PAUSE = 0.5
# Characters of a bar.
_BAR = 30

Tick = Callable[[float, int, int], None]


@contextlib.contextmanager
def shown(wanted: bool | None) -> Iterator[Tick | None]:
    """The function to be called while a statement runs; None: nothing is shown. What it has shown is removed at last.

    `wanted` is the connection's `progress`.
    """
    notebook = _notebook()
    if wanted is False or (wanted is None and notebook is None):
        yield None
        return
    shower: _InNotebook | _AsText = _AsText() if notebook is None else _InNotebook()
    try:
        yield shower.tick
    finally:
        shower.end()


class _AsText:
    """One line of standard error, which is written again and again."""

    def __init__(self) -> None:
        self._shown_at = PATIENCE - _PAUSE

    def tick(self, seconds: float, begun: int, all_: int) -> None:
        if seconds >= self._shown_at + _PAUSE:
            self._shown_at = seconds
            print(f"\r{line(seconds, begun, all_):<70}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown_at >= PATIENCE:
            print("\r" + " " * 70 + "\r", end="", file=sys.stderr, flush=True)


class _InNotebook:
    """An output of the cell, which is updated in its place."""

    def __init__(self) -> None:
        self._shown_at = PATIENCE - _PAUSE
        self._handle: Any = None

    def tick(self, seconds: float, begun: int, all_: int) -> None:
        if seconds < self._shown_at + _PAUSE:
            return
        from IPython.display import display

        self._shown_at = seconds
        text = line(seconds, begun, all_)
        bar = f'<progress max="{all_}" value="{begun}"></progress> ' if begun else ""
        data = {"text/plain": text, "text/html": f"<div>{bar}{text.rpartition('] ')[2]}</div>"}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def end(self) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)


def line(seconds: float, begun: int, all_: int) -> str:
    """What is shown after so many seconds, with a bar and the time that is left where they are known."""
    if begun <= 0 or all_ <= 0:
        return f"running for {seconds:.0f} s"
    share = min(begun / all_, 1.0)
    filled = round(share * _BAR)
    left = seconds / share - seconds
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {share:.0%}, {seconds:.0f} s, about {left:.0f} s left"


def _notebook() -> Any:
    """The shell of a notebook; None: this is none."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell if type(shell).__name__ == "ZMQInteractiveShell" else None
