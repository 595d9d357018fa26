"""The exceptions of PEP 249, and which of them a SQLSTATE means."""

from __future__ import annotations


class Warning(Exception):  # noqa: A001 (the name is PEP 249's)
    """An important warning. The package raises none."""


class Error(Exception):
    """The base of all errors of the package.

    `sqlstate` is the error's code of five characters, as in PostgreSQL's appendix A, or None; `hint` says what to do,
    where the database knows.
    """

    sqlstate: str | None
    hint: str | None

    def __init__(self, *arguments: object, sqlstate: str | None = None, hint: str | None = None) -> None:
        super().__init__(*arguments)
        self.sqlstate = sqlstate
        self.hint = hint

    def __reduce__(self) -> tuple:
        return (_again, (type(self), self.args, self.sqlstate, self.hint))


class InterfaceError(Error):
    """An error of the use of the package: in a forked process, for example."""


class DatabaseError(Error):
    """An error of the database."""


class DataError(DatabaseError):
    """A value that is out of range, or none of its type."""


class OperationalError(DatabaseError):
    """An error beyond the statement: a conflict, a device that is away, no space, a statement that was stopped."""


class IntegrityError(DatabaseError):
    """A row that breaks a constraint."""


class InternalError(DatabaseError):
    """A defect of the database."""


class ProgrammingError(DatabaseError):
    """A wrong statement, name or parameter, or the use of what is closed."""


class NotSupportedError(DatabaseError):
    """Something that the database does not have."""


# By the first two characters; the others are operational.
_CLASSES: dict[str, type[Error]] = {
    "07": ProgrammingError,
    "0A": NotSupportedError,
    "21": ProgrammingError,
    "22": DataError,
    "23": IntegrityError,
    "24": ProgrammingError,
    "25": ProgrammingError,
    "26": ProgrammingError,
    "2B": ProgrammingError,
    "34": ProgrammingError,
    "3B": ProgrammingError,
    "3D": ProgrammingError,
    "3F": ProgrammingError,
    "42": ProgrammingError,
    "44": IntegrityError,
    "HY": ProgrammingError,
    "XX": InternalError,
}


def error_of(sqlstate: str, message: str, hint: str | None = None) -> Error:
    """The exception for an error with this SQLSTATE."""
    kind = _CLASSES.get(sqlstate[:2], OperationalError)
    # What is closed, and what was forked.
    if sqlstate == "08003":
        kind = InterfaceError if "forked" in message else ProgrammingError
    return kind(message, sqlstate=sqlstate, hint=hint)


def _again(kind: type[Error], arguments: tuple, sqlstate: str | None, hint: str | None) -> Error:
    return kind(*arguments, sqlstate=sqlstate, hint=hint)
