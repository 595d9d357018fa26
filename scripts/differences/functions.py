"""What expressions are made of: functions, operators and aggregates by the type of their result, and odd constants.

A call is a template with a place for each argument, and the types of the arguments; `ODD` names kinds of arguments that
are chosen from a list of texts.
"""

NUMBERS = ["smallint", "integer", "bigint", "real", "double precision", "numeric"]
WHOLE = NUMBERS[:3]
TIMES = ["date", "timestamp", "timestamptz", "time"]
ALL = NUMBERS + ["boolean", "text", "interval"] + TIMES
COMPARISONS = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]


def calls(names, arguments):
    """Plain calls of functions that take the same arguments."""
    return [(f"{name}({', '.join(['{}'] * len(arguments))})", arguments) for name in names.split()]


CALLS = {
    "smallint": [*calls("abs", ["smallint"]), *calls("mod", ["smallint", "smallint"])],
    "integer": [*calls("length octet_length ascii char_length bit_length", ["text"]),
                *calls("strpos", ["text", "text"]),
                *calls("abs", ["integer"]), *calls("mod gcd lcm", ["integer", "integer"]),
                *calls("sign", ["integer"]), ("position({} IN {})", ["text", "text"]),
                ("({} - {})", ["date", "date"]), ("width_bucket({}, 0, 10, 4)", ["double precision"]),
                ("({} << {})", ["integer", "small"]), ("({} >> {})", ["integer", "small"]),
                ("(~ {})", ["integer"])],
    "bigint": [*calls("abs", ["bigint"]), *calls("mod gcd lcm", ["bigint", "bigint"]),
               ("({} << {})", ["bigint", "small"])],
    "numeric": [*calls("abs ceil floor round trunc sign ceiling", ["numeric"]),
                *calls("round trunc", ["numeric", "small"]), *calls("round trunc", ["numeric", "integer"]),
                *calls("round trunc", ["integer", "small"]), *calls("round trunc", ["bigint", "small"]),
                *calls("mod div", ["numeric", "numeric"]), ("extract({} FROM {})", ["part", "date"]),
                ("extract({} FROM {})", ["part", "timestamp"]), ("extract({} FROM {})", ["part", "interval"]),
                ("extract({} FROM {})", ["part", "time"]), ("extract({} FROM {})", ["part", "timestamptz"]),
                ("factorial({})", ["small"]), ("sqrt({})", ["numeric"]), ("power({}, {})", ["numeric", "small"])],
    "real": [*calls("abs", ["real"])],
    "double precision": [*calls("abs round sqrt ceil floor trunc exp ln log cbrt degrees radians sign sin cos atan",
                                ["double precision"]),
                         *calls("round trunc ceil floor sign", ["integer"]), *calls("round trunc", ["bigint"]),
                         *calls("power atan2", ["double precision", "double precision"]),
                         *calls("date_part", ["partname", "timestamp"]), *calls("date_part", ["partname", "time"]),
                         *calls("date_part", ["partname", "interval"]), ("({} ^ {})", ["double precision", "small"]),
                         ("(|/ {})", ["double precision"]), ("pi()", [])],
    "text": [*calls("upper lower reverse initcap trim md5 quote_literal quote_ident btrim", ["text"]),
             *calls("ltrim rtrim btrim", ["text", "text"]), *calls("left right repeat substr", ["text", "small"]),
             *calls("left", ["text", "integer"]), *calls("replace translate", ["text", "text", "text"]),
             *calls("split_part", ["text", "text", "small"]), *calls("split_part", ["text", "letters", "small"]),
             *calls("lpad rpad", ["text", "small", "text"]), *calls("lpad rpad", ["text", "small"]),
             *calls("substr substring", ["text", "small", "small"]), *calls("concat", ["text", "any", "any"]),
             *calls("to_hex", ["integer"]), *calls("chr", ["positive"]), *calls("concat_ws", ["text", "text", "any"]),
             *calls("overlay", ["text", "text", "positive"]),
             ("overlay({} PLACING {} FROM {})", ["text", "text", "small"]),
             ("overlay({} PLACING {} FROM {} FOR {})", ["text", "text", "small", "small"]),
             ("substring({} FROM {})", ["text", "small"]), ("substring({} FROM {} FOR {})", ["text", "small", "small"]),
             ("substring({} FOR {})", ["text", "small"]), ("substring({} FROM {})", ["text", "regex"]),
             ("trim(BOTH FROM {})", ["text"]), ("trim(LEADING {} FROM {})", ["text", "text"]),
             ("trim(TRAILING {} FROM {})", ["letters", "text"]), ("trim(BOTH {} FROM {})", ["letters", "text"]),
             ("regexp_replace({}, {}, {})", ["text", "regex", "text"]),
             ("regexp_replace({}, {}, {}, 'g')", ["text", "regex", "replacement"]),
             ("to_char({}, {})", ["timestamp", "picture"]), ("to_char({}, {})", ["date", "picture"]),
             ("to_char({}, {})", ["timestamptz", "picture"]), ("to_char({}, {})", ["interval", "picture"]),
             ("to_char({}, {})", ["numeric", "digits"]), ("to_char({}, {})", ["integer", "digits"]),
             ("to_char({}, {})", ["double precision", "digits"]), *calls("quote_nullable", ["any"]),
             ("format('%s %s', {}, {})", ["any", "any"]), ("format('%L|%5s|%-5s', {}, {}, {})", ["text"] * 3)],
    "boolean": [*calls("starts_with", ["text", "text"]), *calls("isfinite", ["date"]),
                *calls("isfinite", ["timestamp"]),
                *calls("isfinite", ["interval"]), *calls("isfinite", ["timestamptz"]),
                ("({} LIKE {})", ["text", "like"]), ("({} NOT LIKE {})", ["text", "like"]),
                ("({} ILIKE {})", ["text", "like"]), ("({} LIKE {} ESCAPE {})", ["text", "like", "escape"]),
                ("({} ILIKE {} ESCAPE {})", ["text", "like", "escape"]), ("({} LIKE {})", ["text", "text"]),
                ("({} SIMILAR TO {})", ["text", "similar"]), ("({} NOT SIMILAR TO {})", ["text", "similar"]),
                ("({} SIMILAR TO {} ESCAPE {})", ["text", "similar", "escape"]),
                ("({} ~ {})", ["text", "regex"]), ("({} ~* {})", ["text", "regex"]), ("({} !~ {})", ["text", "regex"]),
                ("({} !~* {})", ["text", "regex"]), ("({} ^@ {})", ["text", "text"]),
                ("({} = ANY ({}))", ["integer", "listed"]), ("({} <> ALL ({}))", ["bigint", "listed"]),
                ("({} < ANY ({}))", ["smallint", "listed"]), ("({} = ANY ('{a,NULL,\"b\"}'))", ["text"]),
                ("({} LIKE ANY ({}))", ["text", "likes"]), ("({} NOT LIKE ALL ({}))", ["text", "likes"]),
                ("({} ILIKE ANY ({}))", ["text", "likes"]), ("({} ~ ANY (ARRAY['^a', 'b.']))", ["text"]),
                ("(({}, {}) OVERLAPS ({}, {}))", ["timestamp", "timestamp", "timestamp", "timestamp"]),
                ("(({}, {}) OVERLAPS ({}, {}))", ["date", "interval", "date", "interval"])],
    "date": [("({} + {})", ["date", "small"]), ("({} - {})", ["date", "small"]), ("make_date({}, {}, {})",
             ["positive", "small", "small"]), ("to_date({}, 'YYYY-MM-DD')", ["text"])],
    "timestamp": [*calls("date_trunc", ["field", "timestamp"]), *calls("date_bin", ["step", "timestamp", "timestamp"]),
                  ("({} AT TIME ZONE {})", ["timestamptz", "zone"]), ("({} + {})", ["date", "time"]),
                  ("({} + {})", ["date", "interval"]), ("({} - {})", ["timestamp", "interval"])],
    "timestamptz": [*calls("date_trunc", ["field", "timestamptz"]),
                    *calls("date_trunc", ["field", "timestamptz", "zone"]),
                    ("({} AT TIME ZONE {})", ["timestamp", "zone"]), ("({} + {})", ["timestamptz", "interval"]),
                    ("({} - {})", ["timestamptz", "interval"]), ("date_trunc({}, {})", ["field", "date"]),
                    ("to_timestamp({})", ["double precision"]), ("({} AT TIME ZONE {})", ["date", "zone"])],
    "time": [("({} + {})", ["time", "interval"]), ("({} - {})", ["time", "interval"]),
             ("CAST({} AS time)", ["timestamp"]), ("CAST({} AS time)", ["interval"])],
    "interval": [*calls("justify_hours justify_days justify_interval", ["interval"]),
                 *calls("age", ["timestamp", "timestamp"]), *calls("age", ["timestamptz", "timestamptz"]),
                 ("({} - {})", ["time", "time"]), ("({} - {})", ["timestamptz", "timestamptz"]),
                 ("({} - {})", ["date", "timestamp"]), ("(- {})", ["interval"]), ("CAST({} AS interval)", ["time"])],
}
FIELDS = ["year", "month", "day", "hour", "minute", "second", "quarter", "week", "dow", "doy", "isoyear", "epoch",
          "decade", "century", "isodow", "millennium", "milliseconds", "microseconds", "julian"]
TRUNCATED = ["year", "month", "day", "hour", "minute", "second", "quarter", "week", "decade", "century", "milliseconds"]
# Arguments that are texts of a list.
ODD = {
    "small": ["-2", "-1", "0", "1", "2", "3", "4", "5"],
    "positive": [str(number) for number in (1, 2, 3, 7, 12, 36, 65, 70)],
    "step": ["'1 day'::interval", "'15 minutes'::interval", "'7 days'::interval", "'1.5 hours'::interval"],
    "picture": ["'YYYY-MM-DD'", "'HH24:MI:SS'", "'Mon DD, YYYY'", "'Q WW D'", "'MS US'", "'HH12:MI AM'", "'FMDay FMDD'",
                "'IYYY-IW-ID'", "'DDD J'", "'DAY Month'", "'\"at\" HH:MI:SS.MS'", "'YY Y,YYY CC'"],
    "digits": ["'999.99'", "'FM999.00'", "'000'", "'S99'", "'9,999'", "'99D9PR'", "'MI99'", "'FM9999999999.999'"],
    "field": [f"'{name}'" for name in TRUNCATED],
    "part": FIELDS,
    "partname": [f"'{name}'" for name in FIELDS],
    "letters": ["'a'", "'ab'", "''", "' '", "'b_'"],
    "like": ["'a%'", "'%b'", "'_'", "'%'", "''", "'A_c'", "'%a%b%'", "'a\\_c'", "'\\%'", "'__'", "'%\\'", "'ä%'"],
    "escape": ["'\\'", "'!'", "''", "'a'", "'%'"],
    "similar": ["'a|b'", "'(a|b)%'", "'_b*'", "'[a-c]+'", "'%(ab)?'", "'a{2}'", "'a.c'", "'[^a]_%'"],
    "regex": ["'^a'", "'b$'", "'a|b'", "'.'", "'[[:alpha:]]+'", "'(a)(b)?'", "'a{1,2}'", "'\\d+'", "'^$'", "'\\s'",
              "'A'", "'[^a-z]'", "'a*'", "'a.'", "'a.+b'", "'\\ma'", "'b\\M'", "'[[a]b'", "'\\.'"],
    "replacement": ["'<\\&>'", "'\\1'", "'x'", "''", "'\\0'", "'$1'", "'\\\\1'", "'[\\2]'"],
    "listed": ["'{1,2}'", "'{}'", "'{0,NULL,7}'", "'{-1}'"],
    "likes": ["ARRAY['a%', '_b']", "'{a%,%b}'", "ARRAY['A%']", "'{}'"],
    "zone": ["'UTC'", "'Europe/Berlin'", "'America/New_York'", "'Asia/Kolkata'", "'+02'", "'EST'",
             "'02:30'::interval"],
}
# Texts that a cast from text meets.
SPELLINGS = {
    "whole": ["12", " 7 ", "-0", "+5", "1.5", "1e2", "", "32768", "2147483648", "9223372036854775808", "0x10", "1_000"],
    "number": ["NaN", "Infinity", "-inf", "1e400", "1e-400", ".5", "5.", " 1.25 ", "-0", "1e39", "abc"],
    "boolean": ["t", "yes", "on", "off", "0", "1", "tru", "FALSE", " true ", "2", ""],
    "date": ["2000-02-30", "infinity", "-infinity", "epoch", "2024-1-5", "20240105", "Jan 5 2024", "5874897-12-31",
             "0044-03-15 BC", "2024-01-05 10:00", "January 8, 99 BC", "1/8/1999", "08-Jan-99", "Mon Jan 5 2024",
             "2024.01.05", "13/1/2024", "5 sept 2024", "jan 5"],
    "time": ["24:00:00", "23:59:59.9999999", "12:34 PM", "allballs", "25:00", "04:05", "040506", "23:59:60"],
    "timestamp": ["infinity", "epoch", "2024-01-05T10:00:00", "2024-01-05 24:00:00", "2024-01-05 10:00:00+02",
                  "2024-01-05 10:00:00.1234567", "294276-12-31 23:59:59", "2024-01-05 10:00 PM"],
    "timestamptz": ["2024-01-05 10:00:00+02", "2024-07-05 10:00:00 Europe/Berlin", "infinity", "2024-01-05",
                    "2024-01-05 10:00:00-03:30", "2024-01-05 10:00:00Z", "2024-01-05 10:00 EST"],
    "interval": ["1 year -1 days", "P1Y2M3DT4H5M6S", "1-2", "3 4:05:06", "-1:30", "1.5 months", "2 weeks ago",
                 "1 day 25:00", "@ 1 minute", "0.5 days", "1 fortnight", "100000 hours"],
}
# Constants without a type of their own.
BARE = {
    "integer": ["1", "'1'", "(-1)", "NULL"], "bigint": ["3000000000", "'5'"],
    "numeric": ["1.5", "0.1", "'2.5'", "1e3", "9223372036854775808"],
    "double precision": ["'1.5'", "'NaN'", "'-0'", "'Infinity'"], "text": ["'a'", "NULL", "''", "'A'"],
    "date": ["'2024-01-01'", "date '2000-02-29'"],
    "timestamp": ["'2024-01-01 00:00:00'", "timestamp '2000-02-29 01:02'"],
    "timestamptz": ["timestamptz '2024-07-01 12:00+02'"], "time": ["time '12:34:56'"],
    "interval": ["interval '1 day'", "'1 hour'", "interval '1' month", "interval '2 3' day to hour"],
    "boolean": ["true", "'t'", "NULL"], "smallint": ["'7'"], "real": ["'1.5'"],
}
AGGREGATES = {
    "smallint": [("bit_and", ["smallint"])],
    "integer": [("bit_or", ["integer"]), ("bit_and", ["integer"]), ("bit_xor", ["integer"])],
    "bigint": [("count", ["any"]), ("sum", ["integer"]), ("sum", ["smallint"]), ("bit_or", ["bigint"])],
    "numeric": [("sum", ["bigint"]), ("sum", ["numeric"]), ("avg", ["integer"]), ("avg", ["numeric"]),
                ("avg", ["bigint"]), ("avg", ["smallint"])],
    "double precision": [("sum", ["double precision"]), ("avg", ["double precision"]), ("avg", ["real"])],
    "boolean": [("bool_and", ["boolean"]), ("bool_or", ["boolean"]), ("every", ["boolean"])],
    "interval": [("sum", ["interval"]), ("avg", ["interval"])],
}
