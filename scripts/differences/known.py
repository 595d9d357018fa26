"""Differences that stay, each with its reason; all are listed in docs/reference/sql.md.

A rule is the kinds of difference it covers, a pattern of the shrunk statement, of PostgreSQL's answer and of Cleave's.
"""

import re

RULES = [
    ({"accepted"}, r"", r"^42883 operator does not exist: (date [-+] bigint|bigint \+ date)", r"",
     "date + bigint: generate_series gives bigints, as few other functions do"),
    ({"accepted"}, r"", r"^42846 cannot cast type bigint to boolean", r"",
     "bigint::boolean: generate_series gives bigints, as few other functions do"),
    ({"accepted"}, r"", r"^22", r"", "an expression that fails, which no row needs, is not evaluated"),
    ({"accepted"}, r"CASE", r"^42883 operator", r"",
     "an operator beside a CASE of several types is checked for the first one"),
    ({"accepted"}, r"(min|max)\(", r"^42883 function (min|max)\(boolean\)", r"", "min and max take booleans"),
    ({"code"}, r"", r"^(22|42)", r"^(22|42|0A)", "of several errors in a statement, another one is reported"),
    ({"refused"}, r"", r" rows: ", r"^22(003|008|P02|007|012)",
     "an expression that fails is evaluated for a row that is not needed, or while the statement is planned"),
    ({"type"}, r"(extract|date_part)\(", r"numeric|double precision", r"integer",
     "extract and date_part give integers for whole parts"),
    ({"value"}, r"numeric.*(AS text|\|\|)|(AS text|\|\|).*numeric", r"", r"\d{10}'",
     "bare numeric has ten digits behind the point, also as text"),
    ({"type"}, r"sum\(", r"real", r"double precision", "sum(real) is a double"),
    ({"accepted"}, r"extract\(", r"^0A000 unit", r"",
     "extract gives 0 for hours of a date; parts that an interval has not fail once a row needs them"),
    ({"accepted"}, r"^WITH ", r"^428(46|83) ", r"", "a query of WITH that nothing uses is not checked"),
]


def reason(kind, sql, expected, found):
    """Why this difference stays; None if nobody knows it."""
    for kinds, statement, of_postgresql, of_cleave, why in RULES:
        if kind in kinds and re.search(statement, sql) and re.search(of_postgresql, expected) \
                and re.search(of_cleave, found):
            return why
    return None
