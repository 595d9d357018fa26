"""Cleave, a SQL database whose storage computes, in this process or as a client of its server.

    import cleave

    with cleave.connect("films") as db:
        db.execute("CREATE TABLE IF NOT EXISTS film (id int PRIMARY KEY, title text)")
        db.executemany("INSERT INTO film VALUES (?, ?)", [(1, "Alien"), (2, "Brazil")])
        print(db.execute("SELECT * FROM film ORDER BY id").fetchall())

`connect` has the details; `docs/python.md` of the project tells the rest.
"""

from __future__ import annotations

import datetime as _datetime

from ._cleave import __version__
from ._connection import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    ArrowStream,
    Connection,
    Cursor,
    connect,
)
from ._errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from ._explain import Explain

#: The version of PEP 249.
apilevel = "2.0"
#: Threads may share the module and connections.
threadsafety = 2
#: `?`; `$1` and, with a mapping, `%(name)s` work too.
paramstyle = "qmark"

Date = _datetime.date
Time = _datetime.time
Timestamp = _datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> _datetime.date:
    """The date of a number of seconds since 1970, by the local clock."""
    return _datetime.date.fromtimestamp(ticks)


def TimeFromTicks(ticks: float) -> _datetime.time:
    """The time of day of a number of seconds since 1970, by the local clock."""
    return _datetime.datetime.fromtimestamp(ticks).time()


def TimestampFromTicks(ticks: float) -> _datetime.datetime:
    """The date and time of a number of seconds since 1970, by the local clock."""
    return _datetime.datetime.fromtimestamp(ticks)


__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "ArrowStream",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "Explain",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "__version__",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
