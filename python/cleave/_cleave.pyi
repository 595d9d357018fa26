"""The compiled part: see crates/cleave-python."""

from collections.abc import Callable, Sequence
from typing import Any

__version__: str

def connect(
    path: str | None,
    settings: list[tuple[str, str]],
    *,
    create: bool = True,
    buffer_pool_bytes: int | None = None,
    query_memory_bytes: int | None = None,
) -> Session: ...
def finish() -> None: ...

class Session:
    """A connection's session."""

    @property
    def closed(self) -> bool: ...
    def run(
        self,
        sql: str,
        parameters: Sequence[Any] | None = None,
        *,
        implicit: bool = False,
        find: Callable[[str], Any] | None = None,
        tick: Callable[[float], None] | None = None,
    ) -> Rows: ...
    def append(self, table: str, capsule: object, *, tick: Callable[[float], None] | None = None) -> int: ...
    def load_rows(
        self,
        table: str,
        columns: list[str] | int,
        rows: Sequence[Sequence[Any]],
        *,
        implicit: bool = False,
        tick: Callable[[float], None] | None = None,
    ) -> int | None: ...
    def status(self) -> str: ...
    def close(self) -> None: ...

class Rows:
    """The rows of a statement."""

    @property
    def tag(self) -> str | None: ...
    @property
    def columns(self) -> list[tuple[str, str, int | None, int | None]] | None: ...
    def fetch(self, limit: int | None = None) -> list[tuple]: ...
    def stream(self, whole: bool) -> object: ...
    def schema(self) -> object: ...
    def close(self) -> None: ...
