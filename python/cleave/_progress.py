"""What a statement that takes long shows in a notebook: the time so far, in the output of its cell.

The compiled part calls `tick(seconds)` while it waits. A bar with the share of the work needs a counter of the database,
which there is none of yet: `tick` is where it would come in.
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


@contextlib.contextmanager
def shown(wanted: bool | None) -> Iterator[Callable[[float], None] | None]:
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

    def tick(self, seconds: float) -> None:
        if seconds >= self._shown_at + _PAUSE:
            self._shown_at = seconds
            print(f"\rrunning for {seconds:.1f} s ", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown_at >= PATIENCE:
            print("\r" + " " * 30 + "\r", end="", file=sys.stderr, flush=True)


class _InNotebook:
    """An output of the cell, which is updated in its place."""

    def __init__(self) -> None:
        self._shown_at = PATIENCE - _PAUSE
        self._handle: Any = None

    def tick(self, seconds: float) -> None:
        if seconds < self._shown_at + _PAUSE:
            return
        from IPython.display import display

        self._shown_at = seconds
        data = {"text/plain": f"running for {seconds:.1f} s"}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def end(self) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": ""}, raw=True)


def _notebook() -> Any:
    """The shell of a notebook; None: this is none."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell if type(shell).__name__ == "ZMQInteractiveShell" else None
