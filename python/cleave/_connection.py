"""Connections and cursors: PEP 249 over the compiled part, with Arrow, data frames and bulk loads beside it."""

from __future__ import annotations

import atexit
import os
import re
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from . import _cleave, _errors, _progress
from ._explain import Explain
from ._frames import Finder, load_source, renew, source_of
from ._parameters import _folded as folded
from ._parameters import numbered, placed, plain_insert

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_Parameters = Sequence[Any] | Mapping[str, Any] | None

_SERVER = re.compile("postgres(?:ql)?://", re.IGNORECASE)
# `postgres:/user:secret@host` too, which is what `pathlib.Path` makes of a URL. `c:/films` is a path.
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]+):(?:/|[^/]*@|[A-Za-z0-9+.-]+:/)|\s*postgres(?:ql)?:|[A-Za-z]://", re.I)
_TABLE = re.compile(r'("?public"?\.)?([a-z_][a-z0-9_$]*|"(?:[^"]|"")+")', re.IGNORECASE)
_NOT_THERE = "a server cannot read tables of this process; append() their rows to a table of its own"
# Closed when the interpreter ends, so that the next process has nothing to recover.
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def connect(
    target: str | os.PathLike[str] = ":memory:",
    *,
    autocommit: bool = False,
    create: bool = True,
    read_only: bool = False,
    buffer_pool_bytes: int | None = None,
    query_memory_bytes: int | None = None,
    **settings: Any,
) -> Connection:
    """Opens a database in this process, or connects to a server.

    `target` is the folder of a database, which is made if `create` says so; `":memory:"`, for a database in a temporary
    folder that is removed when the connection is closed; or `"postgres://user@host:port/database"`, a server of Cleave
    or PostgreSQL.

    A folder that a server (`cleave serve`) or a shell (`cleave sql`) has open is reached by that process. Beside a
    shell the connection only reads. With `read_only` it does so everywhere: all but reads is refused, whatever
    statements set, and no database is made.

    With `autocommit` each statement commits by itself. Without, as PEP 249 has it, a statement that changes or locks
    rows begins a transaction, which `commit` or `rollback` ends; so does EXECUTE, whatever it runs. Queries and
    definitions except TRUNCATE do not begin one.

    `settings` are those of SQL's SET, for this connection: `connect("films", split="host")`. `buffer_pool_bytes` and
    `query_memory_bytes` are the memory of a database of this process, and hold if it is not open yet.

    Connections of one process to one folder share the database.
    """
    if not isinstance(autocommit, bool):
        raise _errors.ProgrammingError(f"autocommit is True or False, and not {autocommit!r}", sqlstate="22023")
    name = os.fspath(target)
    named = [(key, _setting(value)) for key, value in settings.items()]
    if (server := _SERVER.match(name)) is not None:
        name = name[: server.end()].lower() + name[server.end() :]
        core = _cleave.connect_server(name, named, read_only=read_only)
        return Connection(core, _without_password(name), autocommit)
    if _SCHEME.match(name) is not None:
        # Not a folder of this name, which may hold a password.
        scheme = name.partition(":")[0].strip()
        raise _errors.ProgrammingError(
            f"{scheme}: is no scheme of a database: name the path of a folder, or postgres://user@host:port/database; "
            f"a folder of such a name is ./{scheme}:…",
            sqlstate="22023",
        )
    core = _cleave.connect(
        None if name == ":memory:" else name,
        named,
        create=create,
        read_only=read_only,
        buffer_pool_bytes=buffer_pool_bytes,
        query_memory_bytes=query_memory_bytes,
    )
    return Connection(core, name, autocommit)


class Connection:
    """A connection. Threads may share it: its statements run one after the other. `connect` makes one.

    As a context manager it commits at the end, or rolls back after an exception, and closes.
    """

    Warning = _errors.Warning
    Error = _errors.Error
    InterfaceError = _errors.InterfaceError
    DatabaseError = _errors.DatabaseError
    DataError = _errors.DataError
    OperationalError = _errors.OperationalError
    IntegrityError = _errors.IntegrityError
    InternalError = _errors.InternalError
    ProgrammingError = _errors.ProgrammingError
    NotSupportedError = _errors.NotSupportedError

    def __init__(self, core: _cleave.Session, target: str, autocommit: bool) -> None:
        self._core = core
        self._target = target
        self._autocommit = autocommit
        self._registered: dict[str, Any] = {}
        self._cursors: weakref.WeakSet[Cursor] = weakref.WeakSet()
        #: Whether statements that take long show their progress; None: in notebooks.
        self.progress: bool | None = None
        _connections.add(self)

    def cursor(self) -> Cursor:
        """A new cursor."""
        self._check_open()
        return Cursor(self)

    def execute(self, sql: str, parameters: _Parameters = None) -> Cursor:
        """Runs a statement in a new cursor, which it returns. See `Cursor.execute`."""
        return self.cursor()._execute(sql, parameters, sys._getframe(1))

    def executemany(self, sql: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> Cursor:
        """Runs a statement for each row of parameters, in a new cursor. See `Cursor.executemany`."""
        return self.cursor().executemany(sql, rows)

    def append(self, table: str, rows: Any) -> int:
        """Adds rows to a table by the names of their columns, and returns their number.

        `table` is a name of SQL, which is folded to lower case unless it is quoted, as in `append('"Film"', …)`.

        `rows` are a data frame, an Arrow table or reader, anything else with `__arrow_c_stream__`, a dictionary of
        columns, or a list of dictionaries. Columns that they lack get their default. All rows are added, or none. It
        is as fast as COPY: outside of a transaction many rows are loaded as pages.

        It begins no transaction: where none is open, the rows are committed at once.
        """
        self._check_open()
        source = load_source(rows)
        capsule, _ = source.stream(None)
        with _progress.shown(self.progress) as tick:
            return self._core.append(_target(table), capsule, tick=tick)

    def register(self, name: str, value: Any) -> None:
        """Has `name` in statements of this connection stand for a data frame, an Arrow table or the like.

        A table of the database with this name goes first. In SQL a name that is not quoted is found in any case.
        """
        self._check_open()
        if self._core.is_server:
            raise _errors.NotSupportedError(_NOT_THERE, sqlstate="0A000")
        if source_of(value, name) is None:
            raise _errors.ProgrammingError(
                f"a {type(value).__name__} is no table; register a data frame, an Arrow table or reader",
                sqlstate="42804",
            )
        self._registered[name] = value

    def unregister(self, name: str) -> None:
        """Ends `register`; a name that is not registered is an error."""
        if self._registered.pop(name, None) is None:
            raise _errors.ProgrammingError(f'"{name}" is not registered', sqlstate="42P01")

    def explain(self, sql: str, parameters: _Parameters = None, *, analyze: bool = False) -> Explain:
        """The plan of a statement, as text, JSON and a picture of its split; with `analyze` it is run, and measured."""
        frame = sys._getframe(1)
        if not _cleave.is_one_statement(placed(sql, parameters)[0]):
            # A second one would run.
            raise _errors.NotSupportedError("a plan of more than one statement, or of none", sqlstate="0A000")
        options = "ANALYZE, FORMAT JSON" if analyze else "FORMAT JSON"
        [[plan]] = self.cursor()._execute(f"EXPLAIN ({options}) {sql}", parameters, frame).fetchall()
        text = None
        if not analyze:
            lines = self.cursor()._execute(f"EXPLAIN {sql}", parameters, frame).fetchall()
            text = "\n".join(line for [line] in lines)
        return Explain(sql, plan, text)

    def begin(self) -> None:
        """Begins a transaction, also with `autocommit`."""
        self._run("BEGIN")

    def commit(self) -> None:
        """Ends the transaction and keeps its changes. Without one it does nothing."""
        status = self._status()
        if status == "idle":
            return
        self._run("COMMIT")
        if status == "failed":
            raise _errors.OperationalError("the transaction had failed, and was rolled back", sqlstate="25P02")

    def rollback(self) -> None:
        """Ends the transaction and undoes its changes. Without one it does nothing."""
        if self._status() != "idle":
            self._run("ROLLBACK")

    def cancel(self) -> None:
        """Stops what other threads run in this connection: their statements and fetches raise `OperationalError`.

        It is as Ctrl-C in their place: an open transaction has failed then. Where nothing runs, it does nothing.
        """
        self._check_open()
        self._core.cancel()

    def close(self) -> None:
        """Rolls back what was not committed, and closes. Again: does nothing.

        Statements of other threads are waited for, if nothing cancels them; fetches of other threads are stopped.
        """
        self._close(wait=True)

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._core.closed

    @property
    def autocommit(self) -> bool:
        """Whether each statement commits by itself. Not to be changed within a transaction."""
        return self._autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        if bool(value) != self._autocommit and self._status() != "idle":
            raise _errors.ProgrammingError("a transaction is open: commit or roll back first", sqlstate="25001")
        self._autocommit = bool(value)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, or has failed and waits for its rollback."""
        return self._status() != "idle"

    def __enter__(self) -> Connection:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.closed:
                return
            if kind is None:
                self.commit()
            else:
                self.rollback()
        finally:
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<cleave.Connection to {self._target}, {state}>"

    def _close(self, wait: bool) -> None:
        if not self._core.closed:
            for cursor in list(self._cursors):
                cursor._give_up(wait)
        self._core.close(wait=wait)
        _connections.discard(self)

    def _run(self, sql: str) -> None:
        self._check_open()
        self._core.run(sql)

    def _status(self) -> str:
        self._check_open()
        return self._core.status()

    def _check_open(self) -> None:
        if self._core.closed:
            raise _errors.ProgrammingError("the connection is closed", sqlstate="08003")


class Cursor:
    """Runs statements, and gives the rows of the last one.

    Rows are fetched as tuples (`fetchone`, `fetchmany`, `fetchall`, iteration) or as Arrow (`arrow`,
    `fetch_record_batch`, `df`, `pl`, `__arrow_c_stream__`). A query runs as far as its rows are fetched.
    """

    #: How many rows `fetchmany` fetches if it is not told.
    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: _cleave.Rows | None = None
        self._rowcount = -1
        self._closed = False
        connection._cursors.add(self)

    @property
    def connection(self) -> Connection:
        """Its connection."""
        return self._connection

    @property
    def description(self) -> list[tuple] | None:
        """Name, type, three unknowns (None), precision, scale and None of each column; None: there are no rows.

        The type is the SQL name of the type as text. It equals one of `cleave.STRING`, `BINARY`, `NUMBER` and
        `DATETIME`.
        """
        columns = None if self._rows is None else self._rows.columns
        if columns is None:
            return None
        return [(name, TypeCode(kind), None, None, precision, scale, None) for name, kind, precision, scale in columns]

    @property
    def rowcount(self) -> int:
        """How many rows the last statement has changed; -1 if it gives rows, which are counted by fetching."""
        return self._rowcount

    @property
    def statusmessage(self) -> str | None:
        """The command tag of the last statement, such as "INSERT 0 3"; None for rows."""
        return None if self._rows is None else self._rows.tag

    def execute(self, sql: str, parameters: _Parameters = None) -> Cursor:
        """Runs a statement, or several without parameters, and returns the cursor with the rows of the last one.

        Parameters are a sequence for `?` or `$1`, or a mapping for `%(name)s`. A table that the database does not have
        is looked for among registered objects and the caller's variables. It is read as rows are fetched, and not to be
        changed before.
        """
        return self._execute(sql, parameters, sys._getframe(1))

    def _execute(self, sql: str, parameters: _Parameters, frame: FrameType | None) -> Cursor:
        self._check_open()
        text, values = placed(sql, parameters)
        connection = self._connection
        self._begin()
        find = Finder(connection._registered, frame)
        try:
            with _progress.shown(connection.progress) as tick:
                self._rows = connection._core.run(
                    text, values, implicit=not connection._autocommit, find=find, tick=tick
                )
            self._rowcount = _count(self._rows.tag)
        except KeyboardInterrupt:
            self._interrupted()
            raise
        except _errors.ProgrammingError as error:
            _explain_missing(connection, error, find)
            raise
        return self

    def executemany(self, sql: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> Cursor:
        """Runs a statement for each row of parameters: all of them, or none where no transaction was open before.

        An INSERT of the parameters alone is one load, as fast as COPY.
        """
        self._check_open()
        connection = self._connection
        self._begin()
        rows = rows if isinstance(rows, list) else list(rows)
        # What it begins it ends, if it fails: also where Ctrl-C comes just as it has begun.
        is_own = connection._status() == "idle"
        try:
            self._rows, self._rowcount = None, self._run_many(sql, rows, is_own and connection._autocommit)
        except BaseException:
            if is_own and not connection.closed:
                connection.rollback()
            raise
        return self

    def _run_many(self, sql: str, rows: list[Sequence[Any] | Mapping[str, Any]], begins: bool) -> int:
        """Runs a statement for each row, in a transaction of its own if it `begins` one; how many rows it changed."""
        connection = self._connection
        target = plain_insert(numbered(sql)[0])
        if target is not None and rows and not isinstance(rows[0], Mapping):
            with _progress.shown(connection.progress) as tick:
                count = connection._core.load_rows(*target, rows, implicit=not connection._autocommit, tick=tick)
            if count is not None:
                return count
        # One transaction, whose commit makes all of them durable at once.
        if begins and rows:
            connection.begin()
        total = 0
        for row in rows:
            self._execute(sql, row, None)
            total += max(self._rowcount, 0)
        if begins:
            connection.commit()
        return total

    def fetchone(self) -> tuple | None:
        """The next row; None after the last one."""
        rows = self._fetch(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple]:
        """The next rows, at most `size` of them."""
        return self._fetch(self.arraysize if size is None else size)

    def fetchall(self) -> list[tuple]:
        """All rows that are left."""
        return self._fetch(None)

    def __iter__(self) -> Iterator[tuple]:
        return self

    def __next__(self) -> tuple:
        try:
            row = self.fetchone()
        except KeyboardInterrupt:
            self._interrupted()
            raise
        if row is None:
            raise StopIteration
        return row

    def arrow(self) -> pyarrow.Table | ArrowStream:
        """All rows that are left as a table of pyarrow, or where that is not installed as an `ArrowStream`."""
        stream = self._whole()
        try:
            import pyarrow
        except ImportError:
            return stream
        # `pyarrow.table` imports pandas first, to see whether the rows are one of its frames.
        return pyarrow.RecordBatchReader.from_stream(stream).read_all()

    def fetch_record_batch(self) -> pyarrow.RecordBatchReader:
        """The rows that are left as a reader of pyarrow, which runs the query as it is read."""
        import pyarrow

        try:
            reader = pyarrow.RecordBatchReader.from_stream(ArrowStream(self._held(), self._held().stream(False)))
            batches = self._batches(reader, pyarrow.ArrowException)
            return pyarrow.RecordBatchReader.from_batches(reader.schema, batches)
        except KeyboardInterrupt:
            self._interrupted()
            raise

    def df(self, **options: Any) -> pandas.DataFrame:
        """All rows that are left as a data frame of pandas; `options` go to pyarrow's `to_pandas`.

        Where a date lies beyond Python's, such as `infinity`, dates are those of numpy.
        """
        import pyarrow

        table = pyarrow.table(self._whole())
        try:
            return table.to_pandas(**options)
        except (ValueError, OverflowError):
            if "date_as_object" in options or options.get("self_destruct"):
                raise
            return table.to_pandas(date_as_object=False, **options)

    def pl(self) -> polars.DataFrame:
        """All rows that are left as a data frame of polars, which has no intervals."""
        import polars

        for name, kind, *_ in self.description or []:
            if kind.partition("[")[0] == "interval":
                raise _errors.NotSupportedError(
                    f'column "{name}" is an interval, which polars does not have: cast it to text',
                    sqlstate="0A000",
                    hint="cast it to text",
                )
        return polars.DataFrame(self._whole())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows that are left, by the Arrow PyCapsule interface."""
        return self._held().stream(False)

    def __arrow_c_schema__(self) -> object:
        """The columns, by the Arrow PyCapsule interface."""
        return self._held().schema()

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Does nothing: PEP 249 asks for it."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing: PEP 249 asks for it."""

    def close(self) -> None:
        """Gives up the rows that are left, also while another thread fetches them. Again: does nothing."""
        self._closed = True
        self._give_up()

    def __enter__(self) -> Cursor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind, *_ in self.description or [])
        return f"<cleave.Cursor ({columns})>" if columns else f"<cleave.Cursor {self.statusmessage or 'without rows'}>"

    def _begin(self) -> None:
        self._rows, self._rowcount = None, -1
        renew(self)

    def _give_up(self, wait: bool = True) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close(wait=wait)

    def _fetch(self, limit: int | None) -> list[tuple]:
        rows = self._held()
        try:
            with _progress.shown(self._connection.progress) as tick:
                return rows.fetch(limit, tick=tick)
        except KeyboardInterrupt:
            self._interrupted()
            raise

    def _interrupted(self) -> None:
        """Gives up the rows that are left after Ctrl-C in code of Python: its traceback may hold this cursor for long,
        and the next statement would wait for them."""
        if self._rows is not None:
            self._rows.close(wait=False, interrupted=True)

    def _batches(self, reader: pyarrow.RecordBatchReader, failure: type[Exception]) -> Iterator[pyarrow.RecordBatch]:
        """The batches of a reader. A stream of C reports Ctrl-C as text; here Python raises what is pending."""
        try:
            try:
                yield from reader
            except failure:
                _pass()
                raise
        except KeyboardInterrupt:
            self._interrupted()
            raise

    def _whole(self) -> ArrowStream:
        """All rows that are left, read now."""
        rows = self._held()
        try:
            with _progress.shown(self._connection.progress) as tick:
                return ArrowStream(rows, rows.stream(True, tick=tick))
        except KeyboardInterrupt:
            self._interrupted()
            raise

    def _held(self) -> _cleave.Rows:
        self._check_open()
        if self._rows is None:
            raise _errors.ProgrammingError("there are no rows: execute a query first", sqlstate="24000")
        return self._rows

    def _check_open(self) -> None:
        if self._closed:
            raise _errors.ProgrammingError("the cursor is closed", sqlstate="08003")
        self._connection._check_open()


class ArrowStream:
    """Rows for any library that reads the Arrow PyCapsule interface. They are given once."""

    def __init__(self, rows: _cleave.Rows, capsule: object) -> None:
        self._schema = rows.schema
        self._capsule: object | None = capsule

    def __arrow_c_schema__(self) -> object:
        """The columns."""
        return self._schema()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows."""
        capsule, self._capsule = self._capsule, None
        if capsule is None:
            raise _errors.ProgrammingError("the rows were given before", sqlstate="24000")
        return capsule


class TypeCode(str):
    """The SQL name of a column's type. It equals the type object of PEP 249 that it belongs to."""

    __slots__ = ()


class TypeObject:
    """A type object of PEP 249: equal to the types of columns that it stands for."""

    def __init__(self, name: str, *kinds: str) -> None:
        self._name = name
        self._kinds = frozenset(kinds)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other.partition("(")[0] in self._kinds
        return self is other

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"cleave.{self._name}"


STRING = TypeObject("STRING", "text", "character varying", "character", "uuid")
BINARY = TypeObject("BINARY", "bytea")
NUMBER = TypeObject(
    "NUMBER", "smallint", "integer", "bigint", "real", "double precision", "numeric", "boolean"
)
DATETIME = TypeObject(
    "DATETIME", "date", "time without time zone", "timestamp without time zone", "timestamp with time zone", "interval"
)
#: No column is one.
ROWID = TypeObject("ROWID")


def _pass() -> None:
    """Does nothing: signals are handled where a function of Python begins."""


def _count(tag: str | None) -> int:
    """The rows that a command tag counts; -1: none."""
    last = (tag or "").rpartition(" ")[2]
    return int(last) if last.isdigit() else -1


def _target(table: str) -> tuple[str, bool]:
    """The name of a table as the database has it, and whether it was given with the schema. What is no name of SQL is
    one already."""
    found = _TABLE.fullmatch(table)
    return (table, False) if found is None else (folded(found[2]), found[1] is not None)


def _explain_missing(connection: Connection, error: _errors.Error, find: Finder) -> None:
    """Raises a clearer error if a server lacks a table that is an object of the caller."""
    if error.sqlstate != "42P01" or not connection._core.is_server:
        return
    named = re.search(r'"([^"]+)"', str(error))
    if named is not None and find(named[1]) is not None:
        message = f'relation "{named[1]}" does not exist: {_NOT_THERE}'
        raise _errors.ProgrammingError(message, sqlstate="42P01") from error


def _without_password(url: str) -> str:
    """The scheme, the host and the database: a password may hold any character, and be among the options too."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def _setting(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


@atexit.register
def _close_all() -> None:
    # A statement of a daemon thread may not end: this waits for some time, and the log has what a close would write.
    for connection in list(_connections):
        connection._close(wait=False)
    _cleave.finish()
