"""Differences that stay, each with its reason; all are listed in docs/reference/sql.md.

A rule is the kinds of difference it covers, a pattern of the shrunk statement, of PostgreSQL's answer and of Cleave's.
"""

import re

# Errors of values, by PostgreSQL's codes.
OF_VALUES = r"^22(001|003|008|007|P02|012|011|023|01F|01E|025|02\d)|^2201[EFG] "
# Errors that the statement has before it runs, by any of its parts.
OF_TYPES = r"^(42(883|804|846|725|P\d\d|601)|0A000) "

RULES = [
    ({"accepted"}, r"LIKE '%\\+'", r"^22025 ", r" rows: ",
     "a pattern that ends in its escape character is refused where a row reaches it"),
    ({"accepted"}, r"generate_series\(", r"^42883 operator does not exist: (date [-+] bigint|bigint \+ date)", r"",
     "date + bigint: generate_series gives bigints, as few other functions do"),
    ({"accepted"}, r"generate_series\(", r"^42846 cannot cast type bigint to boolean", r"",
     "bigint::boolean: generate_series gives bigints, as few other functions do"),
    ({"type"}, r"generate_series\([-0-9]", r"integer|bigint", r"bigint|numeric", "generate_series gives bigints"),
    # No row comes of it: by a condition that is never true, an empty table, or an argument that is NULL.
    ({"accepted"}, r"\bt0\b|false|NULL|WHERE|HAVING|JOIN|LIMIT|OFFSET|WITH|CASE|coalesce|UNION|INTERSECT|EXCEPT|IN \(",
     OF_VALUES, r" rows: ", "an expression that fails, which no row needs, is not evaluated"),
    ({"accepted"},
     r"(nullif|coalesce|greatest|least)\b.*(smallint|real|\b[qt]\d+\.[srbdn]\b|numeric)",
     r"^42883 (operator|function)", r" rows: ",
     "an operator beside a coalesce and the like of several types is checked for the first one"),
    ({"accepted"}, r"(min|max)\(", r"^42883 function (min|max)\(boolean\)", r"", "min and max take booleans"),
    ({"accepted"}, r"'\s*[,)]|smallint|\.s\b", r"^42725 (function \w+\(.*unknown|operator is not unique: ~)", r"",
     "of several functions, one is chosen for a literal in quotes or a smallint"),
    ({"accepted"}, r"'|NULL", r"^42804 could not determine polymorphic type because input has type unknown", r"",
     "of several functions, one is chosen for a literal in quotes or a smallint"),
    ({"accepted"}, r"date_trunc\('\w+', .*'[-+:\d]+'::interval", r"^42883 function date_trunc\(", r"",
     "the zone of date_trunc may be an interval"),
    ({"accepted"}, r"\bid = \w+\.id \+ 1\b|\bid = id \+", r"^23505 ", r"",
     "unique keys are compared once a statement has changed all its rows"),
    # Both have an error: each is one that the statement has, or both are of values.
    ({"code"}, r"", OF_VALUES, OF_VALUES, "of several errors of values, another one is reported"),
    ({"code"}, r"^(UPDATE|INSERT|DELETE|BEGIN|WITH)", r"^23(505|514|503|502) |^22|^21000 ",
     r"^23(505|514|503|502) |^22|^21000 ", "of several errors of rows, another one is reported"),
    ({"code"}, r"RETURNING", OF_TYPES, r"^23(505|514|503|502) ",
     "of several errors in a statement, another one is reported"),
    ({"code"}, r"", OF_TYPES, r"^(42|0A|22)", "of several errors in a statement, another one is reported"),
    ({"code"}, r"", OF_VALUES + r"|^2BP01", r"^(42|0A)", "of several errors in a statement, another one is reported"),
    ({"refused"}, r"NULL|false|CASE|coalesce|AND|OR|WHERE|HAVING|JOIN|LIMIT|\bt0\b|IN \(", r" rows: ",
     r"^22(003|008|012|023|01F|01E)|^2201[EFG] ",
     "an expression that fails is evaluated for a row that is not needed, or while the statement is planned"),
    # Spellings of times, intervals and numbers that only literals have, or that are not read at all.
    ({"refused"},
     r"'(Jan|January|1/8/|1 fortnight|\d+ \w+ ago|@ |P\d|-?1-2'|294276|.* (EST|PM|Europe/Berlin)'|3 4:|-1:30"
                  r"|1 day 25|1 year -1|2 weeks|1\.5 months|0\.5 days|100000 hours|infinity|-infinity)", r" rows: ",
     r"^22(007|008|P02) |Parser error", "some spellings of times and intervals are not read, or by literals only"),
    ({"refused"}, r"'(0x10|1_000|1e2|NaN|-?inf\w*|Infinity|1e39|1e400|1e-400| ?[\d.]+ ?|5874897[-\d]*)'", r" rows: ",
     r"^22(P02|003|008) ", "some spellings of numbers are not read, and numerics have 38 digits"),
    ({"type"}, r"(extract|date_part)\(", r"numeric|double precision", r"integer|double precision|numeric",
     "extract and date_part give integers for whole parts, and doubles for the epoch"),
    ({"value"}, r"extract\((epoch|julian)|(trunc|round)\(extract\(", r"\d", r"\d",
     "extract and date_part give integers for whole parts, and doubles for the epoch"),
    ({"value"}, r"numeric|\.n\b", r"\.\d*0'", r"\d'",
     "columns of numeric, and what is computed of them, are shown without trailing zeros"),
    ({"value"}, r"cbrt\(", r"\.\d{12}", r"\.\d{12}", "the last digit of cbrt differs, as between platforms"),
    ({"type"}, r"sum\(", r"real", r"double precision", "sum(real) is a double"),
    ({"accepted"}, r"(extract|date_part)\(", r"^0A000 unit", r"",
     "extract gives 0 for hours of a date; parts that an interval has not fail once a row needs them"),
    ({"accepted"}, r"^WITH ", r"^42(846|883|804|725) ", r"", "a query of WITH that nothing uses is not checked"),
    ({"refused"}, r"WITH TIES", r"", r"^0A000 FETCH", "WITH TIES of DISTINCT and the like, by unnamed columns"),
    ({"refused"}, r"(LIMIT|OFFSET) \(SELECT", r"", r"^0A000 Unsupported (LIMIT|OFFSET)",
     "LIMIT and OFFSET of DISTINCT and the like take no subqueries, by columns without names"),
    ({"refused"}, r"Infinity|inf", r"", r"^0A000 value", "a numeric is finite"),
    ({"refused"}, r"\w\('[^']*'[,)]|, '[^']*'\)", r"", r"^42(883|000) .*(\btext\b|Utf8)",
     "a literal in quotes as an argument of a function of numbers has no type"),
]


def reason(kind, sql, expected, found):
    """Why this difference stays; None if nobody knows it."""
    for kinds, statement, of_postgresql, of_cleave, why in RULES:
        if kind in kinds and re.search(statement, sql) and re.search(of_postgresql, expected) \
                and re.search(of_cleave, found):
            return why
    return None
