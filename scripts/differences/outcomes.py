"""Two answers compared: a difference out, or None.

    value     other rows
    order     the same rows in another order, where the statement orders them by all columns
    type      the same rows under other types
    accepted  rows where PostgreSQL has an error
    refused   an error where PostgreSQL has rows
    code      another error
    crash     an internal error, or a lost connection

Doubles are equal if their first digits are: sums depend on the order of rows. Numerics are equal if their values are.
"""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

# Worst first.
KINDS = ["crash", "value", "order", "accepted", "refused", "type", "code"]
TIMEOUT = "57014"
DIGITS = {"real": 5, "double precision": 10}
# Casts of varchar(n), and most columns, are reported as text (docs/reference/sql.md).
REPORTED = {"varchar": "text", "char": "text"}


@dataclass(frozen=True)
class Difference:
    kind: str
    expected: str
    found: str

    def codes(self):
        """What a smaller statement must have in common: the kind, and the codes of errors."""
        codes = [text.split(" ", 1)[0] for text in (self.expected, self.found)]
        return (self.kind, *codes) if self.kind in ("crash", "accepted", "refused", "code") else (self.kind,)


def difference(expected, found, is_ordered):
    """What `found` has that `expected`, PostgreSQL's answer, has not. A statement that takes too long tells nothing."""
    if TIMEOUT in (expected.code, found.code):
        return None
    if found.is_error and found.code in ("XX000", "08006", "58000"):
        return Difference("crash", shown(expected), shown(found))
    if expected.is_error or found.is_error:
        if not found.is_error:
            kind = "accepted"
        elif not expected.is_error:
            kind = "refused"
        elif expected.code != found.code:
            kind = "code"
        else:
            return None
        return Difference(kind, shown(expected), shown(found))
    one, other = normal(expected), normal(found)
    if len(expected.types) != len(found.types) or sorted(one, key=repr) != sorted(other, key=repr):
        return Difference("value", shown(expected), shown(found))
    if is_ordered and one != other:
        return Difference("order", shown(expected), shown(found))
    if reported(expected) != reported(found):
        return Difference("type", ", ".join(expected.types), ", ".join(found.types))
    return None


def reported(answer):
    """The types, as far as both report them alike."""
    return [REPORTED.get(name, name) for name in answer.types]


def normal(answer):
    """The rows, values that count as equal being equal."""
    return [tuple(normal_value(value, name) for value, name in zip(row, answer.types)) for row in answer.rows]


def normal_value(value, type_name):
    if value is None:
        return None
    if type_name in DIGITS:
        try:
            number = float(value)
        except ValueError:
            return value
        if number == 0:
            return "0"
        if number != number or number in (float("inf"), float("-inf")):
            return repr(number)
        return f"{number:.{DIGITS[type_name]}g}"
    if type_name in ("numeric", "smallint", "integer", "bigint"):
        try:
            number = Decimal(value)
        except InvalidOperation:
            return value
        return format(number.normalize(), "f") if number else "0"
    return value


def shown(answer, most=4):
    if answer.is_error:
        return f"{answer.code} {answer.message}"
    rows = sorted(answer.rows, key=repr)
    text = "; ".join(" | ".join("NULL" if value is None else repr(value) for value in row) for row in rows[:most])
    return f"{len(rows)} rows: {text}{' …' if len(rows) > most else ''}"
