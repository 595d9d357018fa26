"""Objects of the caller as tables: what a name in a statement stands for, and how it is read.

Anything with `__arrow_c_stream__` is a table (pyarrow, polars, nanoarrow, another cursor), and so are pandas' data
frames, which are converted with pyarrow. Only the columns that a query names are converted.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import FrameType, ModuleType
from typing import Any

from ._errors import ProgrammingError

# Marks a column in which NaN is NULL, for the compiled part: it looks for NaN on all threads, as rows are read.
_NAN_IS_NULL = {b"cleave.nan": b"null"}
# Readers that give their rows once, by their identity, after they have done so; with what sees their end.
_spent: dict[int, Any] = {}


class Source:
    """An object as a table. The compiled part calls `schema`, `rows` and `stream`."""

    def __init__(self, value: Any, name: str) -> None:
        self._value = value
        self._name = name

    def schema(self) -> Any:
        """A capsule that describes the columns; None: only a stream tells them."""
        if is_once(self._value):
            _check_unspent(self._value, self._name)
        # A reader's own `__arrow_c_schema__`, or that of its `schema`: nothing is read.
        for owner in (self._value, getattr(self._value, "schema", None)):
            told = getattr(owner, "__arrow_c_schema__", None)
            if callable(told):
                return told()
        return None

    def rows(self) -> int | None:
        """How many rows there are, if the object says so without being read."""
        told = getattr(self._value, "num_rows", None)
        if told is None:
            told = getattr(self._value, "height", None)
        return told if isinstance(told, int) else None

    def stream(self, columns: list[int] | None) -> tuple[Any, bool]:
        """A capsule with a stream, and whether it has only `columns`, in their order."""
        value, projected = self._value, None
        if is_once(value):
            _check_unspent(value, self._name)
            capsule = value.__arrow_c_stream__()
            _note_spent(value)
            return capsule, False
        if columns is not None:
            projected = _projected(value, columns)
        if projected is not None:
            return projected.__arrow_c_stream__(), True
        return value.__arrow_c_stream__(), False


class PandasSource(Source):
    """A data frame of pandas, without its index."""

    def __init__(self, value: Any, name: str) -> None:
        super().__init__(value, name)
        _check_names(value, name)
        for column, kind in zip(value.columns, value.dtypes):
            # Arrow's type of pandas' own is integers to all others.
            if _is(kind, "pandas", "PeriodDtype"):
                raise _no_type(name, column, f"{kind} of pandas")
        self._pyarrow = _pyarrow(f'to read "{name}"')

    def schema(self) -> Any:
        return self._converted(lambda pyarrow: pyarrow.Schema.from_pandas(self._value, preserve_index=False)
                               ).__arrow_c_schema__()

    def rows(self) -> int | None:
        return len(self._value) if len(self._value.columns) else 0

    def stream(self, columns: list[int] | None) -> tuple[Any, bool]:
        count = len(self._value.columns)
        # A query of no column asks for the first one, which may not be there.
        is_projected = columns is not None and count > 0
        places = list(columns or []) if is_projected else list(range(count))
        table = self._converted(lambda pyarrow: self._table(pyarrow, places))
        return table.__arrow_c_stream__(), is_projected

    def _table(self, pyarrow: Any, places: list[int]) -> Any:
        """The columns at `places`, in this order.

        Arrow would look for NaN value by value. It takes columns of floating-point numbers as they are, and copies
        those only whose values lie apart.
        """
        frame, dtypes = self._value, list(self._value.dtypes)
        real = [place for place in places if _is_real(dtypes[place])]
        rest = [place for place in places if not _is_real(dtypes[place])]
        found: dict[int, tuple[Any, Any]] = {}
        if rest or not real:
            names = [frame.columns[place] for place in rest]
            table = pyarrow.Table.from_pandas(frame, columns=names, preserve_index=False)
            if not real:
                return table
            found.update(zip(rest, zip(table.schema, table.columns)))
        # Names as Arrow gives them to columns of pandas.
        fields = pyarrow.Table.from_pandas(frame.iloc[:0, real], preserve_index=False).schema
        for place, field in zip(real, fields):
            column = pyarrow.array(frame.iloc[:, place].to_numpy(), from_pandas=False)
            found[place] = field.with_metadata(_NAN_IS_NULL), column
        columns = [found[place] for place in places]
        schema = pyarrow.schema([field for field, _ in columns])
        return pyarrow.Table.from_arrays([column for _, column in columns], schema=schema)

    def _converted(self, convert: Any) -> Any:
        try:
            return convert(self._pyarrow)
        except (self._pyarrow.ArrowException, TypeError, ValueError, OverflowError, IndexError) as error:
            # pyarrow's message has a second argument that names the column. Those of Unicode are no message.
            parts = [error] if isinstance(error, UnicodeError) else error.args
            message = "; ".join(str(part) for part in parts).encode("utf-8", "backslashreplace").decode()
            raise ProgrammingError(f'"{self._name}" cannot be read: {message}', sqlstate="42804") from error


class PolarsSource(Source):
    """A data frame of polars."""

    def __init__(self, value: Any, name: str) -> None:
        kinds = {column: str(kind) for column, kind in value.schema.items()}
        for column, kind in kinds.items():
            # polars gives the addresses of objects, and 128 bits by a type of its own.
            if kind in ("Object", "Int128", "UInt128"):
                raise _no_type(name, column, f"{kind} of polars")
        nothing = [value.get_column(column) for column, kind in kinds.items() if kind == "Null"]
        if nothing:
            import polars

            # polars gives such a column a buffer, which it has none of in Arrow.
            value = value.with_columns([column.cast(polars.String) for column in nothing])
        super().__init__(value, name)


def source_of(value: Any, name: str) -> Source | None:
    """The object as a table; None: it is none."""
    if isinstance(value, type) or isinstance(value, ModuleType):
        return None
    if _is(value, "pandas", "DataFrame"):
        return PandasSource(value, name)
    if _is(value, "polars", "DataFrame"):
        return PolarsSource(value, name)
    # Their streams are values, and not rows.
    if _is(value, "pandas", "Series") or _is(value, "polars", "Series"):
        raise _no_table(value, name, "use its to_frame()")
    if _is(value, "pyarrow", "ChunkedArray"):
        raise _no_table(value, name, "make it a column of a pyarrow.table()")
    if callable(getattr(value, "__arrow_c_stream__", None)):
        return Source(value, name)
    return None


def load_source(value: Any) -> Source:
    """The object as rows for a table; a list of dictionaries, or a dictionary of columns, is one with pyarrow."""
    source = source_of(value, "the rows")
    if source is None and isinstance(value, Mapping):
        source = Source(_table(dict(value)), "the rows")
    if source is None and isinstance(value, list) and all(isinstance(row, Mapping) for row in value):
        # The keys of all: one that only a later row has is a column too.
        names = dict.fromkeys(name for row in value for name in row)
        if value and not names:
            raise ProgrammingError("the rows name no columns", sqlstate="42601")
        source = Source(_table({name: [row.get(name) for row in value] for name in names}), "the rows")
    if source is None:
        raise ProgrammingError(
            f"rows cannot be read of a {_kind(value)}; give a data frame, an Arrow table or reader, or dictionaries",
            sqlstate="42804",
        )
    return source


def _table(columns: dict[Any, Any]) -> Any:
    """A table of pyarrow with these columns."""
    odd = next((name for name in columns if not isinstance(name, str)), None)
    if odd is not None:
        raise ProgrammingError(f"the rows name a column {odd!r}, which is no text", sqlstate="42703")
    pyarrow = _pyarrow("to append dictionaries")
    arrays = {}
    for name, values in columns.items():
        try:
            is_arrow = hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")
            arrays[name] = values if is_arrow else pyarrow.array(values)
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ProgrammingError(f'column "{name}" of the rows cannot be read: {error}', sqlstate="42804") from error
    try:
        return pyarrow.table(arrays)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise ProgrammingError(f"the rows cannot be read: {error}", sqlstate="42804") from error


class Finder:
    """Finds what the names of a statement stand for: registered objects first, then variables of the caller."""

    def __init__(self, registered: Mapping[str, Any], frame: FrameType | None) -> None:
        self._registered = registered
        self._frame = frame

    def __call__(self, name: str) -> Source | None:
        if name in self._registered:
            return source_of(self._registered[name], name)
        alike = _alike(self._registered, name)
        if alike is not None:
            return source_of(self._registered[alike], name)
        if self._frame is None:
            return None
        scopes = (self._frame.f_locals, self._frame.f_globals)
        for scope in scopes:
            if name in scope:
                return self._readable(scope[name], name)
        for scope in scopes:
            alike = _alike(scope, name)
            if alike is not None:
                return self._readable(scope[alike], name)
        return None

    def _readable(self, value: Any, name: str) -> Source | None:
        source = source_of(value, name)
        if source is None and not callable(value) and not isinstance(value, ModuleType):
            hint = "; collect() it first" if _is(value, "polars", "LazyFrame") else ""
            raise ProgrammingError(
                f'relation "{name}" does not exist, and the variable of this name is a {_kind(value)}, '
                f"which SQL cannot read{hint}",
                sqlstate="42P01",
            )
        return source


def _alike(scope: Mapping[str, Any], name: str) -> str | None:
    """The one name that SQL has folded to `name`: `SELECT * FROM myDf` asks for `mydf`."""
    alike = [key for key in list(scope) if key.lower() == name]
    return alike[0] if len(alike) == 1 else None


def is_once(value: Any) -> bool:
    """Whether the object gives its rows once."""
    return hasattr(value, "read_next_batch") or hasattr(value, "__next__")


def renew(value: Any) -> None:
    """Notes that the object has new rows to give."""
    _spent.pop(id(value), None)


def _check_unspent(value: Any, name: str) -> None:
    if id(value) in _spent:
        raise ProgrammingError(
            f'"{name}" is a {_kind(value)}, which gives its rows once, and was read; keep them in a table to read them '
            "again",
            sqlstate="55000",
        )


def _note_spent(value: Any) -> None:
    key = id(value)
    try:
        # Another object may have the number later.
        _spent[key] = weakref.ref(value, lambda _: _spent.pop(key, None))
    except TypeError:
        # What cannot be referred to weakly lives as long as this process, so that its number stays its own.
        _spent[key] = value


def _projected(value: Any, columns: list[int]) -> Any:
    """The object with only these columns; None: it cannot leave out others."""
    if _is(value, "pyarrow", "Table") or _is(value, "pyarrow", "RecordBatch"):
        # A query of no column asks for the first one, which may not be there.
        return value.select(columns) if value.num_columns else None
    if _is(value, "polars", "DataFrame"):
        return value[:, columns] if value.width else None
    return None


def _check_names(value: Any, name: str) -> None:
    names = [str(column) for column in value.columns]
    twice = {column for column in names if names.count(column) > 1} if len(set(names)) < len(names) else set()
    if twice:
        listed = ", ".join(f'"{column}"' for column in sorted(twice))
        raise ProgrammingError(f'"{name}" has several columns named {listed}', sqlstate="42701")


def _no_table(value: Any, name: str, instead: str) -> ProgrammingError:
    return ProgrammingError(f'"{name}" is a {_kind(value)}, which is no table: {instead}', sqlstate="42804")


def _no_type(name: str, column: object, kind: str) -> ProgrammingError:
    message = f'"{name}" cannot be read: column "{column}" has the type {kind}, which SQL does not have; cast it'
    return ProgrammingError(message, sqlstate="42804")


def _is_real(dtype: Any) -> bool:
    """Whether columns of a type of pandas are floating-point numbers of numpy, which Arrow takes over as they are."""
    return _is(dtype, "numpy", "dtype") and str(dtype) in ("float32", "float64")


def _is(value: Any, package: str, name: str) -> bool:
    """Whether the object is of a class of a package, which need not be installed."""
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package for kind in type(value).__mro__
    )


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _pyarrow(why: str) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ProgrammingError(f"pyarrow is needed {why}: pip install pyarrow", sqlstate="0A000") from error
    return pyarrow
