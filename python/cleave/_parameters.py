"""Parameters of statements: places in the text, and values that the compiled part does not know by itself.

`?` and `$1` number the parameters; `%(name)s` names them, where the parameters are a mapping. None of them is one
within quotes, comments and dollar quotes.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._errors import ProgrammingError

# What may be a place for a parameter, behind all that hides one.
_TOKENS = re.compile(
    r"""
    (?P<string> [eE]'(?:[^'\\]|''|\\.)*(?:'|\Z) | '(?:[^']|'')*(?:'|\Z) )
  | (?P<name> "(?:[^"]|"")*(?:"|\Z) )
  | (?P<line> --[^\n]* )
  | (?P<block> /\* )
  | (?P<dollar> \$(?:[A-Za-z_\u0080-\uffff][A-Za-z0-9_\u0080-\uffff]*)?\$ )
  | (?P<word> [A-Za-z_\u0080-\uffff][A-Za-z0-9_$\u0080-\uffff]* )
  | (?P<question> \? )
  | (?P<named> %\((?P<key>[^)]*)\)s )
  | (?P<percent> %% )
    """,
    re.VERBOSE | re.DOTALL,
)
_NUMBERS = re.compile(r"\$([0-9]{1,9})")
_COMMENT = re.compile(r"/\*|\*/")

# The text that stands in the place of a token: of a "?", of a name, or of "%%".
_Place = Callable[[str, str], str]


def placed(sql: str, parameters: Any) -> tuple[str, list | None]:
    """The text with its parameters as `$1`, `$2`, …, and their values in this order; None: there are none."""
    if parameters is None:
        return sql, None
    if isinstance(parameters, Mapping):
        return _named(sql, parameters)
    if isinstance(parameters, (str, bytes)) or not isinstance(parameters, Iterable):
        raise ProgrammingError("parameters are a sequence or a mapping", sqlstate="07001")
    values = list(parameters)
    text, count = numbered(sql) if "?" in sql else (sql, 0)
    if count == 0 and values:
        # Those in quotes count too, so that no statement is refused wrongly.
        highest = max((int(number) for number in _NUMBERS.findall(sql)), default=0)
        count = min(highest, len(values))
    if count != len(values):
        message = f"the statement has {count} parameters, and {len(values)} were given"
        raise ProgrammingError(message, sqlstate="07001")
    return text, values


def numbered(sql: str) -> tuple[str, int]:
    """The text with `$1`, `$2`, … for each `?`, and the number of these."""
    count = 0

    def place(kind: str, token: str) -> str:
        nonlocal count
        if kind != "question":
            return token
        count += 1
        return f"${count}"

    return _rewritten(sql, place), count


def _named(sql: str, parameters: Mapping) -> tuple[str, list | None]:
    places: dict[str, int] = {}

    def place(kind: str, token: str) -> str:
        if kind == "percent":
            return "%"
        if kind != "named":
            return token
        key = token[2:-2]
        if key not in parameters:
            raise ProgrammingError(f'there is no value for the parameter "{key}"', sqlstate="07001")
        return f"${places.setdefault(key, len(places) + 1)}"

    text = _rewritten(sql, place)
    return text, [parameters[key] for key in places] or None


def _rewritten(sql: str, place: _Place) -> str:
    """The text with what `place` says in place of each token that may be a parameter."""
    parts: list[str] = []
    at = 0
    while found := _TOKENS.search(sql, at):
        parts.append(sql[at : found.start()])
        start, at = found.span()
        # The named group within a token is never the last one that matched alone.
        kind = "named" if found.group("named") else found.lastgroup or ""
        if kind == "block":
            at = _end_of_comment(sql, at)
        elif kind == "dollar":
            end = sql.find(found.group(), at)
            at = len(sql) if end < 0 else end + len(found.group())
        token = sql[start:at]
        parts.append(place(kind, token) if kind in ("question", "named", "percent") else token)
    parts.append(sql[at:])
    return "".join(parts)


def _end_of_comment(sql: str, at: int) -> int:
    depth = 1
    for found in _COMMENT.finditer(sql, at):
        depth += 1 if found.group() == "/*" else -1
        if depth == 0:
            return found.end()
    return len(sql)


_INSERT = re.compile(
    r"""
    \s* insert \s+ into \s+ (?P<schema> "?public"? \s* \. \s* )?
    (?P<table> [a-z_][a-z0-9_$]* | "(?:[^"]|"")+" ) \s*
    (?: \( (?P<columns> [^()]+ ) \) \s* )?
    values \s* \( (?P<values> [\s$0-9,]+ ) \) \s* ;? \s*
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NAMES = re.compile(r'\s*(?:[a-z_][a-z0-9_$]*|"(?:[^"]|"")+")\s*', re.IGNORECASE)


def plain_insert(sql: str) -> tuple[tuple[str, bool], list[str] | int] | None:
    """The table of an INSERT of nothing but its parameters in their order, with whether its schema is named, and its
    columns: their names, or how many of the table's. None: it is another statement."""
    found = _INSERT.fullmatch(sql)
    if found is None:
        return None
    values = [value.strip() for value in found.group("values").split(",")]
    if values != [f"${place + 1}" for place in range(len(values))]:
        return None
    table = _folded(found.group("table")), found.group("schema") is not None
    if found.group("columns") is None:
        return table, len(values)
    names = found.group("columns").split(",")
    # A name with a comma in it is left to the parser.
    if len(names) != len(values) or not all(_NAMES.fullmatch(name) for name in names):
        return None
    return table, [_folded(name.strip()) for name in names]


def _folded(name: str) -> str:
    """A name as SQL stores it."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


def adapt(value: Any) -> tuple[str | None, str | None]:
    """The SQL type of a value, None if its place decides, and its text, None for NULL.

    The compiled part calls it for what is not exactly a bool, int, float, str or bytes.
    """
    known = _ADAPTERS.get(type(value))
    if known is not None:
        return known(value)
    if isinstance(value, enum.Enum):
        return _adapted(value.value)
    module = type(value).__module__.partition(".")[0]
    # NA and NaT; the latter is a datetime too.
    if module == "pandas" and type(value).__name__ in ("NAType", "NaTType"):
        return None, None
    if module == "numpy" and getattr(value, "shape", None) == ():
        return _of_numpy(value)
    for kind, adapter in _ADAPTERS.items():
        if isinstance(value, kind):
            return adapter(value)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return _adapted(kind(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytea", "\\x" + bytes(value).hex()
    raise _unknown(value)


def _adapted(value: Any) -> tuple[str | None, str | None]:
    """As `adapt`, also for the types that the compiled part knows."""
    if value is None:
        return None, None
    if isinstance(value, bool):
        return "boolean", "true" if value else "false"
    if type(value) is int:
        is_int, is_bigint = -(2**31) <= value < 2**31, -(2**63) <= value < 2**63
        return "integer" if is_int else "bigint" if is_bigint else "numeric", str(value)
    if type(value) is float:
        return "double precision", _float(value)
    if type(value) is str:
        return None, value
    return adapt(value)


def _of_numpy(value: Any) -> tuple[str | None, str | None]:
    """The value of numpy's scalar. Its times are objects of Python's in microseconds only."""
    if value.dtype.kind in "mM":
        value = value.astype(value.dtype.str[1:3] + "[us]")
    item = value.item()
    if type(item).__module__ == "numpy":
        raise _unknown(value)
    return _adapted(item)


def _unknown(value: Any) -> ProgrammingError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return ProgrammingError(f"a value of type {kind} cannot be a parameter", sqlstate="07006")


def _float(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _decimal(value: decimal.Decimal) -> tuple[str, str]:
    return "numeric", format(value, "f") if value.is_finite() else str(value)


def _date(value: datetime.date) -> tuple[str, str]:
    return "date", f"{value.year:04}-{value.month:02}-{value.day:02}"


def _datetime(value: datetime.datetime) -> tuple[str, str]:
    text = f"{_date(value)[1]} {value.hour:02}:{value.minute:02}:{value.second:02}.{value.microsecond:06}"
    offset = value.utcoffset()
    return ("timestamp", text) if offset is None else ("timestamptz", text + _offset(offset))


def _time(value: datetime.time) -> tuple[str, str]:
    if value.tzinfo is not None:
        raise ProgrammingError("a time of day with a time zone cannot be a parameter", sqlstate="07006")
    return "time", value.isoformat("microseconds")


def _offset(offset: datetime.timedelta) -> str:
    seconds = int(offset.total_seconds())
    sign, seconds = ("-", -seconds) if seconds < 0 else ("+", seconds)
    text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}"
    return f"{text}:{seconds % 60:02}" if seconds % 60 else text


def _timedelta(value: datetime.timedelta) -> tuple[str, str]:
    return "interval", f"{value.days} days {value.seconds}.{value.microseconds:06} seconds"


def _uuid(value: uuid.UUID) -> tuple[str, str]:
    return "uuid", str(value)


def _list(value: list | tuple) -> tuple[None, str]:
    """A list as text, which takes the type of its place: `id = ANY (?)`."""
    items = []
    for item in value:
        if isinstance(item, (list, tuple)):
            items.append(_list(item)[1])
            continue
        text = _adapted(item)[1]
        escaped = None if text is None else text.replace("\\", "\\\\").replace('"', '\\"')
        items.append("NULL" if escaped is None else f'"{escaped}"')
    return None, "{" + ",".join(items) + "}"


# A datetime is a date: the more special type stands first.
_ADAPTERS: dict[type, Callable[[Any], tuple[str | None, str | None]]] = {
    decimal.Decimal: _decimal,
    datetime.datetime: _datetime,
    datetime.date: _date,
    datetime.time: _time,
    datetime.timedelta: _timedelta,
    uuid.UUID: _uuid,
    list: _list,
    tuple: _list,
}
