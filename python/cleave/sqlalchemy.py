"""The dialect of SQLAlchemy: PostgreSQL's, over this package.

    create_engine("cleave://")                        a database in memory
    create_engine("cleave:///films?split=host")       the folder films, with a setting
    create_engine("cleave:////var/lib/films")         an absolute path
    create_engine("cleave://user@host:5432/films")    a server
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

from sqlalchemy import pool, text, util
from sqlalchemy import types as sqltypes
from sqlalchemy.dialects.postgresql import pg_catalog
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.engine import URL

import cleave

# Options of a connection to any database.
_OF_ANY = ("read_only", "autocommit")
_FLAGS = ("create", *_OF_ANY)
_MEMORY = ("buffer_pool_bytes", "query_memory_bytes")
# The options of an identity column, and of all of them.
_IDENTITY = ("always", "start", "increment", "minvalue", "maxvalue", "cache", "cycle")
_IDENTITIES = text("""
    SELECT n.nspname, c.relname, a.attname, a.attidentity = 'a', s.seqstart, s.seqincrement, s.seqmin, s.seqmax,
        s.seqcache, s.seqcycle
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_sequence s
        ON s.seqrelid = CAST(CAST(pg_get_serial_sequence(
            CAST(CAST(a.attrelid AS regclass) AS text), a.attname) AS regclass) AS oid)
    WHERE a.attidentity <> ''
""")
_TRUE, _FALSE = ("1", "true", "on"), ("0", "false", "off")


class _Number:
    """Numbers as they come, as decimals or floats if the type of the column in Python says so."""

    asdecimal: bool

    def bind_processor(self, dialect: Any) -> None:
        return None

    def result_processor(self, dialect: Any, coltype: Any) -> Callable[[Any], Any]:
        if self.asdecimal:
            return lambda value: value if value is None or isinstance(value, decimal.Decimal) else _decimal(value)
        return lambda value: None if value is None else float(value)


class _Numeric(_Number, sqltypes.Numeric):
    pass


class _Float(_Number, sqltypes.Float):
    pass


class _Vector:
    """Numbers in one text, as `pg_index` lists the columns of an index."""

    def result_processor(self, dialect: Any, coltype: Any) -> Callable[[Any], Any]:
        return lambda value: [int(part) for part in value.split()] if isinstance(value, str) else value


def _vectors() -> dict[type, type]:
    """The types of such texts, where this version of SQLAlchemy has them."""
    found = [getattr(pg_catalog, name, None) for name in ("INT2VECTOR", "OIDVECTOR")]
    # Their own processor takes a list.
    return {kind: type(f"_{kind.__name__}", (_Vector, kind), {"cache_ok": True}) for kind in found if kind is not None}


class CleaveDialect(PGDialect):
    """PostgreSQL's dialect over databases of this process, and over servers."""

    driver = "cleave"
    supports_statement_cache = True
    default_paramstyle = "numeric_dollar"
    supports_native_decimal = True
    supports_sane_multi_rowcount = True
    colspecs = util.update_copy(
        PGDialect.colspecs, {sqltypes.Numeric: _Numeric, sqltypes.Float: _Float, **_vectors()}
    )

    @classmethod
    def import_dbapi(cls) -> Any:
        """This package."""
        return cleave

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        """One connection for a database in memory, since each would have its own."""
        return pool.StaticPool if not url.host and url.database in (None, "", ":memory:") else pool.QueuePool

    def create_connect_args(self, url: URL) -> tuple[list, dict]:
        """The arguments of `cleave.connect`."""
        given = url.query if not url.host else {name: url.query[name] for name in _OF_ANY if name in url.query}
        options: dict[str, Any] = {}
        for name, value in given.items():
            options[name] = _option(name, value if isinstance(value, str) else value[-1])
        if not url.host:
            return [url.database or ":memory:"], options
        # The others are the server's.
        server = url.difference_update_query(options).set(drivername="postgres")
        return [server.render_as_string(hide_password=False)], options

    def get_multi_columns(self, connection: Any, *args: Any, **options: Any) -> Any:
        """The columns of tables. PostgreSQL tells the options of identity columns as JSON, which Cleave does not have:
        they are asked for apart."""
        found = list(super().get_multi_columns(connection, *args, **options))
        if any(column.get("identity") for _, columns in found for column in columns):
            return found
        identities = {
            (schema, table, name): dict(zip(_IDENTITY, values))
            for schema, table, name, *values in connection.execute(_IDENTITIES)
        }
        default = self.default_schema_name
        for (schema, table), columns in found:
            for column in columns:
                identity = identities.get((schema or default, table, column["name"]))
                if identity is not None:
                    column.update(identity=identity, autoincrement=True)
        return found

    def do_begin(self, dbapi_connection: Any) -> None:
        """Begins a transaction, which definitions belong to as well."""
        if not dbapi_connection.autocommit:
            dbapi_connection.begin()

    def get_isolation_level_values(self, dbapi_connection: Any) -> tuple[str, ...]:
        """PostgreSQL's levels, and AUTOCOMMIT."""
        return ("AUTOCOMMIT", *super().get_isolation_level_values(dbapi_connection))

    def set_isolation_level(self, dbapi_connection: Any, level: str) -> None:
        """Sets the level of the connection's transactions."""
        dbapi_connection.rollback()
        dbapi_connection.autocommit = level == "AUTOCOMMIT"
        if level != "AUTOCOMMIT":
            dbapi_connection.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")

    def is_disconnect(self, error: Any, connection: Any, cursor: Any) -> bool:
        """Whether the connection is lost."""
        return getattr(error, "sqlstate", None) in ("08003", "08006", "57P01", "57P02")


def _option(name: str, text: str) -> bool | int | str:
    """The value of an option in a URL."""
    if name in _FLAGS:
        if text.lower() not in _TRUE + _FALSE:
            raise cleave.ProgrammingError(f'{name} is true or false, and not "{text}"', sqlstate="22023")
        return text.lower() in _TRUE
    if name in _MEMORY:
        if not (text.isascii() and text.isdigit()):
            raise cleave.ProgrammingError(f'{name} is a number of bytes, and not "{text}"', sqlstate="22023")
        return int(text)
    return text


def _decimal(value: Any) -> decimal.Decimal:
    return decimal.Decimal(str(value))


dialect = CleaveDialect
