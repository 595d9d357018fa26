"""The compiled part: see crates/cleave-python."""

from collections.abc import Callable, Sequence
from typing import Any

# tick(seconds, begun, all): units of the statement's input, 0 where they are not known.
_Tick = Callable[[float, int, int], None]

__version__: str

def connect(
    path: str | None,
    settings: list[tuple[str, str]],
    *,
    create: bool = True,
    read_only: bool = False,
    buffer_pool_bytes: int | None = None,
    query_memory_bytes: int | None = None,
) -> Session: ...
def connect_server(url: str, settings: list[tuple[str, str]], *, read_only: bool = False) -> Session: ...
def finish() -> None: ...
def is_one_statement(sql: str) -> bool: ...
def plan_svg(explained: str) -> str: ...

class Session:
    """A connection's session."""

    @property
    def closed(self) -> bool: ...
    @property
    def is_server(self) -> bool: ...
    def run(
        self,
        sql: str,
        parameters: Sequence[Any] | None = None,
        *,
        implicit: bool = False,
        find: Callable[[str], Any] | None = None,
        tick: _Tick | None = None,
    ) -> Rows: ...
    def append(self, table: tuple[str, bool], capsule: object, *, tick: _Tick | None = None) -> int: ...
    def load_rows(
        self,
        table: tuple[str, bool],
        columns: list[str] | int,
        rows: Sequence[Sequence[Any]],
        *,
        implicit: bool = False,
        tick: _Tick | None = None,
    ) -> int | None: ...
    def status(self) -> str: ...
    def cancel(self) -> None: ...
    def close(self, *, wait: bool = True) -> None: ...

class Rows:
    """The rows of a statement."""

    @property
    def tag(self) -> str | None: ...
    @property
    def columns(self) -> list[tuple[str, str, int | None, int | None]] | None: ...
    def fetch(self, limit: int | None = None, *, tick: _Tick | None = None) -> list[tuple]: ...
    def stream(self, whole: bool, *, tick: _Tick | None = None) -> object: ...
    def schema(self) -> object: ...
    def close(self, *, wait: bool = True, interrupted: bool = False) -> None: ...
