"""Differences that stay, each with its reason; all are listed in docs/reference/sql.md.

A rule is the kinds of difference it covers, a pattern of the shrunk statement, of PostgreSQL's answer and of Cleave's.
"""

import re

RULES = [
    ({"accepted"}, r"", r"^42883 operator does not exist: (date [-+] bigint|bigint \+ date)", r"",
     "date + bigint: generate_series gives bigints, as few other functions do"),
    ({"accepted"}, r"", r"^42846 cannot cast type bigint to boolean", r"",
     "bigint::boolean: generate_series gives bigints, as few other functions do"),
    ({"type"}, r"generate_series\(", r"integer|bigint", r"bigint|numeric", "generate_series gives bigints"),
    ({"accepted"}, r"", r"^22", r"", "an expression that fails, which no row needs, is not evaluated"),
    ({"accepted"}, r"CASE|nullif|coalesce|greatest|least", r"^42883 (operator|function)", r"",
     "an operator beside a CASE of several types is checked for the first one"),
    ({"accepted"}, r"(min|max)\(", r"^42883 function (min|max)\(boolean\)", r"", "min and max take booleans"),
    ({"accepted"}, r"", r"^42(725|804) (function|operator is not unique: ~|could not determine polymorphic)", r"",
     "of several functions, one is chosen for a literal in quotes or a smallint"),
    ({"code"}, r"", r"^(22|42|0A|2B)", r"^(22|42|0A)", "of several errors in a statement, another one is reported"),
    ({"refused"}, r"", r" rows: ", r"^22(003|008|P02|007|012|023|01F|01E)|^2201",
     "an expression that fails is evaluated for a row that is not needed, or while the statement is planned"),
    ({"type"}, r"(extract|date_part)\(", r"numeric|double precision", r"integer|double precision|numeric",
     "extract and date_part give integers for whole parts, and doubles for the epoch"),
    ({"value"}, r"extract\(epoch|(trunc|round)\(extract\(", r"", r"",
     "extract and date_part give integers for whole parts, and doubles for the epoch"),
    ({"type", "value"}, r"(sqrt|power|exp|ln|log)\(.*(numeric|extract|\bn\b)|\^", r"", r"",
     "roots, powers, logarithms of a numeric are doubles"),
    ({"value"}, r"numeric.*(AS text|\|\|)|(AS text|\|\|).*numeric", r"", r"\d{10}'",
     "bare numeric has ten digits behind the point, also as text"),
    ({"value"}, r"(AS text|format|quote_\w+|concat\w*)\(?.*numeric|numeric.* AS text", r"", r"",
     "bare numeric has ten digits behind the point, also as text"),
    ({"value"}, r"AS numeric\)", r"", r"\.\d{10}'", "bare numeric has ten digits behind the point, also as text"),
    ({"type"}, r"sum\(", r"real", r"double precision", "sum(real) is a double"),
    ({"accepted"}, r"(extract|date_part)\(", r"^0A000 unit", r"",
     "extract gives 0 for hours of a date; parts that an interval has not fail once a row needs them"),
    ({"accepted"}, r"^WITH ", r"^42(846|883|804|725) ", r"", "a query of WITH that nothing uses is not checked"),
    ({"refused"}, r"WITH TIES", r"", r"^0A000 FETCH", "FETCH … WITH TIES is refused"),
    ({"refused"}, r"(LIMIT|OFFSET) ", r"", r"^(0A000 Unsupported (LIMIT|OFFSET)|42000 Expected (LIMIT|OFFSET))",
     "LIMIT and OFFSET take whole numbers"),
    ({"refused"}, r"Infinity|inf", r"", r"^0A000 value", "a numeric is finite"),
    ({"refused"}, r"", r"", r"^42(883|804|000|601) .*\btext\b|^42(883|000) .*Utf8",
     "a literal in quotes as an argument of a function of numbers has no type"),
]


def reason(kind, sql, expected, found):
    """Why this difference stays; None if nobody knows it."""
    for kinds, statement, of_postgresql, of_cleave, why in RULES:
        if kind in kinds and re.search(statement, sql) and re.search(of_postgresql, expected) \
                and re.search(of_cleave, found):
            return why
    return None
