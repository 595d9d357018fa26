"""PostgreSQL and Cleave with the same tables: a statement in, what each answers out."""

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

import servers

from .tables import SEQUENCE, SEQUENCE_START

TIMEOUT_SECONDS = 10
# Names of types by their numbers in the protocol.
TYPE_NAMES = {16: "boolean", 17: "bytea", 20: "bigint", 21: "smallint", 23: "integer", 25: "text", 700: "real",
              701: "double precision", 705: "unknown", 1042: "char", 1043: "varchar", 1082: "date", 1083: "time",
              1114: "timestamp", 1184: "timestamptz", 1186: "interval", 1700: "numeric", 2950: "uuid"}


@dataclass(frozen=True)
class Answer:
    """Types and rows of a result, each value as text; or an error."""

    types: tuple = ()
    rows: tuple = ()
    code: str | None = None
    message: str = ""

    @property
    def is_error(self):
        return self.code is not None


class System:
    """A connection that statements are run on."""

    def __init__(self, psycopg, name, address, settings=()):
        self.psycopg, self.name, self.address, self.settings = psycopg, name, address, settings
        self.connection, self.tag = None, ""
        self.connect()

    def connect(self):
        self.connection = self.psycopg.connect(self.address, autocommit=True)
        for setting in (f"statement_timeout = {TIMEOUT_SECONDS * 1000}", "TimeZone = 'UTC'", *self.settings):
            self.connection.execute(f"SET {setting}")

    def answer(self, sql):
        """What the statement gives, and how far it has moved the sequence, as a row of its own."""
        if SEQUENCE not in sql:
            return self.plain_answer(sql)
        # Beside the statement's connection, whose split may run no such statement.
        with self.psycopg.connect(self.address, autocommit=True) as beside:
            beside.execute(f"SELECT setval('{SEQUENCE}', {SEQUENCE_START})")
            answer = self.plain_answer(sql)
            if answer.is_error:
                return answer
            moved = beside.execute(f"SELECT last_value::text FROM {SEQUENCE}").fetchone()
        return Answer(answer.types, (*answer.rows, (*moved, *["moved"] * (len(answer.types) - 1))))

    def plain_answer(self, sql):
        try:
            result = self.connection.execute(sql).pgresult
        except self.psycopg.Error as error:
            if self.connection.broken or self.connection.closed:
                # A server that is gone ends the run here.
                self.connect()
                return Answer(code="08006", message=f"the connection was lost: {error}")
            return Answer(code=error.sqlstate or "?????", message=str(error).split("\n")[0])
        self.tag = (result.command_status or b"").decode()
        columns = range(result.nfields)
        types = tuple(TYPE_NAMES.get(result.ftype(place), str(result.ftype(place))) for place in columns)

        def value(row, place):
            found = result.get_value(row, place)
            return None if found is None else found.decode("utf-8", "backslashreplace")

        rows = tuple(tuple(value(row, place) for place in columns) for row in range(result.ntuples))
        return Answer(types, rows)

    def changed(self, sql):
        """The same of a statement that may change rows, whose tag with their number counts as a row."""
        answer = self.answer(sql)
        if answer.is_error or answer.types:
            return answer
        return Answer(("text",), ((self.tag,),))

    def execute(self, sql):
        self.connection.execute(sql)

    def close(self):
        self.connection.close()


@contextlib.contextmanager
def running(binaries):
    """PostgreSQL and a server of each build of Cleave, with new databases: their addresses, PostgreSQL's first."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = Path(folder)
        (folder / "postgresql").mkdir()
        peer, port, owner = servers.postgresql(folder / "postgresql")
        stack.callback(servers.stop, peer, 2)
        addresses = [f"host=127.0.0.1 port={port} user={owner} dbname=postgres"]
        for number, binary in enumerate(binaries):
            process, port = servers.serve(binary, folder / f"database{number}", "--trust")
            stack.callback(servers.stop, process)
            addresses.append(f"host=127.0.0.1 port={port} user=cleave dbname=cleave")
        yield addresses
