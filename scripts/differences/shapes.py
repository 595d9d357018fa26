"""Shapes of statements that random expressions seldom have: NULL in lists, ordered subqueries, volatile functions,
aggregates of outer columns, modifiers of a single row, templates.

Each is a production of the grammar, with random expressions for its parts. What a volatile function gives is known,
since `systems` sets the sequence `numbers` to `SEQUENCE_START` before each statement that has it.
"""

from dataclasses import replace

from .expressions import Expressions, Scope
from .functions import ALL, NUMBERS
from .tables import NAMES, ROWS, SEQUENCE, SEQUENCE_START
from .trees import listed, node, optional

# Types with an order that `min` and `array_agg` take, and with equal texts for equal values.
PLAIN_TYPES = ["smallint", "integer", "bigint", "boolean", "text", "date", "timestamp", "timestamptz"]
NEXT = f"nextval('{SEQUENCE}')"
UNITS = ["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"]
SPANS = ["YEAR TO MONTH", "DAY TO HOUR", "DAY TO MINUTE", "DAY TO SECOND", "HOUR TO MINUTE", "HOUR TO SECOND",
         "MINUTE TO SECOND"]
LENGTHS = ["1", "-1", "1 2", "1-2", "-1-2", "1:02", "1 2:03", "1 2:03:04", "1 2:03:04.5678", "-1 2:03:04", "2:03.45",
           "1 day 01:23:45.6789", "1 year 2 months", "-1 year 2 days", "1.5", "0", "100:00:00", "1 day -1:00"]
NUMBER_PIECES = ["9", "9", "9", "0", "0", ".", ",", "D", "G", "S", "MI", "PR", "PL", "SG", "FM", "th", "TH", "V", "L",
                 "RN", "rn", "EEEE", '"a"', '"\\\\b"', "\\", " ", "x"]
TIME_PIECES = ["YYYY", "YYY", "YY", "Y", "Y,YYY", "IYYY", "IY", "CC", "MM", "MON", "Mon", "MONTH", "Month", "month",
               "RM", "rm", "DD", "DDD", "D", "ID", "IDDD", "DAY", "Day", "day", "DY", "Dy", "W", "WW", "IW", "J", "Q",
               "HH", "HH12", "HH24", "MI", "SS", "MS", "US", "FF3", "SSSS", "AM", "pm", "A.M.", "BC", "ad", "B.C.",
               "TZ", "OF", "TZH", "TZM", "FM", "th", "TH", '"ye\\"ar"', "\\", "-", " ", ":", "x", "/"]


class Shapes(Expressions):
    def shaped(self):
        """A statement of one of the shapes."""
        return self.one([
            self.null_lists, self.null_lists, self.ordered_subquery, self.ordered_subquery, self.first_of_each,
            self.volatile, self.volatile, self.modified_rows, self.outer_aggregate, self.whole_rows, self.equal_keys,
            self.moments, self.interval_spelling, self.nested_lists, self.template, self.mixed_times, self.exponents,
        ])()

    def rows_of(self, table=None):
        """A table with its alias, and a scope of its columns."""
        source, columns = self.table() if table is None else (node("from", f"{table} AS x"), (
            ("x.id", "integer"), *((f"x.{name}", of.split("(")[0] if of != "varchar(9)" else "text")
                                   for of, name in NAMES.items())))
        return source, Scope(columns, (), 1, False)

    # NULL

    def null_lists(self):
        """Conditions that a simplification could make true or false for a NULL."""
        source, scope = self.rows_of()
        condition = self.forgetful(self.one(PLAIN_TYPES), scope)
        if self.happens(0.4):
            condition = node("e boolean", "(", condition, self.one([" OR ", " AND "]),
                             self.forgetful(self.one(PLAIN_TYPES), scope), ")")
        if self.happens(0.3):
            condition = node("e boolean", "(NOT ", condition, ")")
        alias = scope.columns[0][0].split(".")[0]
        way = self.chance.random()
        if way < 0.4:
            return node("statement", f"SELECT {alias}.id AS c0 FROM ", source, " WHERE ", condition)
        if way < 0.6:
            return node("statement", "SELECT ", condition, " AS c0 FROM ", source)
        if way < 0.75:
            return node("statement", "SELECT count(*) FILTER (WHERE ", condition, ") AS c0 FROM ", source)
        if way < 0.9:
            return node("statement", f"SELECT {alias}.id AS c0, y.id AS c1 FROM ", source, " LEFT JOIN t2 AS y ON ",
                        condition)
        return node("statement", f"SELECT {alias}.b AS c0 FROM ", source, f" GROUP BY {alias}.b HAVING ",
                    self.forgetful("bigint", Scope(((f"{alias}.b", "bigint"),), (), 0, False)))

    def forgetful(self, of, scope):
        column = self.column_of(scope, of) or self.constant(of)

        def items():
            return listed(", ", [self.constant(of) for _ in range(self.chance.randint(1, 3))])

        def one():
            way = self.chance.random()
            if way < 0.4:
                return node("e boolean", column, self.one([" IN (", " NOT IN ("]), items(), ")")
            if way < 0.7:
                return node("e boolean", column, self.one([" = ", " <> ", " < ", " >= "]), self.constant(of))
            if way < 0.8:
                return node("e boolean", column, self.one([" = ", " <> "]), column)
            array = node("e any", "ARRAY[", items(), optional(", NULL"), f"]::{of}[]")
            return node("e boolean", column, self.one([" = ANY (", " <> ALL (", " = ALL (", " <> ANY (", " < ANY ("]),
                        array, ")")

        left, right = one(), one()
        if self.happens(0.2):
            right = node("e boolean", "(NOT ", left, ")")
        both = node("e boolean", "(", left, self.one([" AND ", " OR "]), right, ")")
        return node("e boolean", "(NOT ", both, ")") if self.happens(0.4) else both

    # Order

    def ordered_subquery(self):
        """What depends on the order of a subquery: its rows are equal where they have no order."""
        source, scope = self.rows_of()
        of = self.one(PLAIN_TYPES)
        inner = node("query", "SELECT ", optional("DISTINCT ") if self.happens(0.2) else "",
                     self.expression(of, scope), " AS k FROM ", source,
                     optional(" WHERE ", self.expression("boolean", scope)) if self.happens(0.3) else "",
                     f" ORDER BY 1{self.one(['', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'])}",
                     self.one(["", "", " LIMIT 5", " OFFSET 2"]))
        around = self.one([
            "SELECT array_agg(k) AS c0 FROM ({}) AS y", "SELECT string_agg(k::text, ',') AS c0 FROM ({}) AS y",
            "SELECT k AS c0, row_number() OVER () AS c1 FROM ({}) AS y", "SELECT k AS c0 FROM ({}) AS y LIMIT 3",
            "SELECT k AS c0 FROM ({}) AS y OFFSET 3", "SELECT lag(k) OVER () AS c0, k AS c1 FROM ({}) AS y",
            "SELECT array_agg(k) FILTER (WHERE k IS NOT NULL) AS c0 FROM (SELECT k FROM ({}) AS z) AS y",
            "WITH y AS ({}) SELECT array_agg(k) AS c0 FROM y", "SELECT ARRAY({}) AS c0",
            "SELECT k AS c0, first_value(k) OVER () AS c1 FROM ({}) AS y"])
        before, behind = around.split("{}")
        return node("statement", before, inner, behind)

    def first_of_each(self):
        """The first rows for each outer row, by LATERAL or in the list of columns."""
        of, other = self.one(PLAIN_TYPES), self.one(PLAIN_TYPES)
        column = NAMES["integer"]
        inner_scope = self.rows_of("t3")[1]
        bound = self.one([f"x.{column} >= o.{column}", f"x.{column} = o.{column}", f"x.id < o.id", "true"])
        key, value = self.expression(of, inner_scope), self.expression(other, inner_scope)
        end = self.one(["", " LIMIT 1", " LIMIT 2", " LIMIT 1 OFFSET 1", " OFFSET 1", " FETCH FIRST 2 ROWS WITH TIES"])
        distinct = self.one(["", "DISTINCT ON (k) ", "DISTINCT ON (k) ", "DISTINCT "])
        ways = ["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]
        rows = node("query", f"SELECT {distinct}k, v FROM (SELECT ", key, " AS k, ", value,
                    f" AS v FROM t3 AS x WHERE {bound}) AS y ORDER BY k{self.one(ways)}, v{self.one(ways)}{end}")
        if self.happens(0.7):
            join = self.one([", LATERAL (", " CROSS JOIN LATERAL (", " LEFT JOIN LATERAL ("])
            on = " ON true" if "LEFT" in join else ""
            return node("statement", f"SELECT o.id AS c0, r.k AS c1, r.v AS c2 FROM t2 AS o{join}", rows,
                        f") AS r{on}")
        make = self.one(["SELECT array_agg(v) FROM (", "SELECT count(*) FROM (", "SELECT min(k) FROM ("])
        if of == "boolean":
            make = "SELECT count(*) FROM ("
        return node("statement", f"SELECT o.id AS c0, ({make}", rows, ") AS r) AS c1 FROM t2 AS o")

    # Volatile functions

    def volatile(self):
        few = self.chance.randint(1, 5)
        least = SEQUENCE_START + self.chance.randint(0, 4)
        series = f"generate_series(1, {few})"
        return node("statement", self.one([
            f"SELECT n AS c0 FROM (SELECT {NEXT} AS n, count(*) FROM {series} GROUP BY 1) AS z WHERE n > {least}",
            f"SELECT n AS c0 FROM (SELECT DISTINCT {NEXT} AS n FROM {series}) AS z WHERE n > {least}",
            f"SELECT n AS c0 FROM (SELECT {NEXT} AS n FROM {series}) AS z WHERE n > {least}",
            f"WITH w AS (SELECT {NEXT} AS n FROM {series}) SELECT n AS c0 FROM w WHERE n <> {least}",
            f"WITH w AS (SELECT {NEXT} AS n FROM t2) SELECT count(*) AS c0, count(DISTINCT a.n) AS c1 FROM w AS a "
            f"JOIN w AS b ON a.n = b.n WHERE a.n > {least}",
            f"SELECT {NEXT} AS c0, {NEXT} AS c1", f"SELECT {NEXT} + {NEXT} * 100 AS c0, {NEXT} AS c1",
            f"SELECT {NEXT} AS c0, {NEXT} AS c1 FROM {series}",
            f"SELECT CASE WHEN g < 3 THEN {NEXT} ELSE 0 END AS c0 FROM {series} AS g",
            f"SELECT coalesce(NULL, {NEXT}) AS c0, greatest({NEXT}, {least}) AS c1",
            f"SELECT n AS c0, n AS c1 FROM (SELECT {NEXT} AS n FROM {series}) AS z",
            f"SELECT count(*) AS c0 FROM t3 WHERE {NEXT} > {least}",
            f"SELECT max(n) AS c0 FROM (SELECT id, {NEXT} AS n FROM t3) AS z WHERE id > 3",
            f"SELECT sum(n) AS c0 FROM (SELECT {NEXT} AS n FROM t2 UNION ALL SELECT {NEXT} FROM t1) AS z "
            f"WHERE n > {least}",
            f"SELECT count(*) AS c0 FROM (SELECT {NEXT} AS n, id FROM t3 OFFSET 0) AS z JOIN t2 ON t2.id = z.id "
            f"WHERE z.n > {least}",
            "SELECT count(*) AS c0 FROM (SELECT random() AS a, random() AS b FROM t3) AS z WHERE a = b",
            "SELECT count(*) AS c0 FROM (SELECT random() AS a FROM t3) AS z WHERE a <> a OR a + 1 <> a + 1",
            "SELECT count(DISTINCT a) AS c0 FROM (SELECT random() AS a FROM t4) AS z",
            "SELECT set_config('application_name', 'x', false) AS c0, set_config('application_name', 'y', false) AS c1",
            "SELECT pg_advisory_lock(7) IS NULL AS c0, pg_advisory_unlock(7) AS c1, pg_advisory_unlock(7) AS c2",
        ]))

    # Types of lists

    def modified_rows(self):
        """A modifier of one row's value, which holds for no other row's."""
        modified, plain = self.one([
            (["'abc'::varchar(2)", "'xyz'::varchar(3)"], ["'defg'", "'b'::text", "NULL", "x.x", "x.v"]),
            (["1.25::numeric(4,1)", "2.5::numeric(8,3)"], ["3.14159", "1", "NULL", "x.n", "x.i"]),
            (["'12:00:00.6789'::time(1)"], ["'01:02:03.456789'::time", "NULL", "x.h"]),
            (["'2024-01-01 12:00:00.6789'::timestamp(0)"], ["'2024-01-01 00:00:00.123456'::timestamp", "x.m", "x.y"]),
            (["'1 day 01:02:03.456'::interval(1)"], ["'1.234567 s'::interval", "NULL", "x.l"])])
        one, other = self.one(modified), self.one(plain)
        parts = [one, other] if self.happens(0.5) else [other, one]
        if "x." not in other and self.happens(0.5):
            rows = listed(", ", [node("item", f"({part})") for part in parts], least=2)
            return node("statement", "SELECT c0 FROM (VALUES ", rows, ") AS v (c0)")
        way = self.chance.random()
        if way < 0.4:
            return node("statement", f"SELECT {parts[0]} AS c0 FROM t2 AS x UNION ALL SELECT {parts[1]} FROM t2 AS x")
        if way < 0.7:
            return node("statement", f"SELECT coalesce({parts[0]}, {parts[1]}) AS c0, "
                                     f"CASE WHEN x.t THEN {parts[0]} ELSE {parts[1]} END AS c1 FROM t3 AS x")
        return node("statement", f"SELECT greatest({parts[0]}, {parts[1]}) AS c0, ARRAY[{parts[0]}, {parts[1]}] AS c1 "
                                 "FROM t3 AS x")

    def mixed_times(self):
        """Dates, timestamps with a zone and without, in one column or comparison."""
        types = ["date", "timestamp", "timestamptz"]
        one, other = self.chance.sample(types, 2)
        scope = self.rows_of("t3")[1]
        odd = ["date '1500-03-04'", "date '0044-03-15 BC'", "timestamptz '2024-01-01 05:00+02'",
               "timestamp '1066-10-14 09:00'"]
        left = self.expression(one, scope) if self.happens(0.6) else node("e any", self.one(odd))
        right = self.expression(other, scope) if self.happens(0.6) else node("e any", self.one(odd))
        way = self.chance.random()
        if way < 0.35:
            compare = self.one(["=", "<", ">=", "<>", "IS DISTINCT FROM"])
            return node("statement", "SELECT x.id AS c0 FROM t3 AS x WHERE ", left, f" {compare} ", right)
        if way < 0.55:
            return node("statement", "SELECT ", left, " AS c0 FROM t3 AS x UNION ALL SELECT ", right, " FROM t3 AS x")
        if way < 0.75:
            return node("statement", "SELECT coalesce(", left, ", ", right, ") AS c0, least(", left, ", ", right,
                        ") AS c1 FROM t3 AS x")
        constant = [self.constant(one), self.constant(other), node("e any", self.one(odd))]
        rows = listed(", ", [node("item", "(", part, ")") for part in constant], least=2)
        return node("statement", "SELECT c0 FROM (VALUES ", rows, ") AS v (c0)")

    # Aggregates

    def outer_aggregate(self):
        """Aggregates that belong to the query around, since they name its columns alone."""
        call = self.one(["sum(o.i)", "count(o.x)", "max(o.b)", "min(o.y)", "count(*) FILTER (WHERE o.i > 0)",
                         "count(DISTINCT o.s)", "bool_or(o.t)", "max((SELECT z.i FROM t3 AS z WHERE z.id = o.id))"])
        body = self.one([f"(SELECT {call})", f"(SELECT {call} FROM t1 LIMIT 1)",
                         f"(SELECT {call} FROM (VALUES (1)) AS y (b))", f"(SELECT count(*) FROM t2 AS y WHERE y.id < 3 "
                         f"HAVING {call} IS NOT NULL)"])
        tail = self.one(["", "", " WHERE o.id > 2", " GROUP BY o.t", " GROUP BY o.s"])
        return node("statement", f"SELECT {body} AS c0 FROM {self.one(list(ROWS))} AS o{tail}")

    def whole_rows(self):
        """A table's row as a value."""
        item = self.one(["count(y.*)", "count(y)", "count(*) FILTER (WHERE y IS NULL)", "count(y) FILTER (WHERE x.t)",
                         "count(*) FILTER (WHERE y IS NOT NULL)", "count(*) FILTER (WHERE NOT (y IS NULL))"])
        kind = self.one(["LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "JOIN"])
        return node("statement", f"SELECT {item} AS c0 FROM {self.one(list(ROWS))} AS x {kind} "
                                 f"{self.one(list(ROWS))} AS y ON x.i = y.i",
                    optional(self.one([" GROUP BY x.t", " WHERE x.id > 1"])))

    def equal_keys(self):
        """One expression under two names, grouped by each."""
        column = self.one(["g.i", "g.t", "g.s", "g.i % 2"])
        sets = self.one(["c0, ROLLUP (c1)", "ROLLUP (c0, c1)", "CUBE (c0, c1)", "GROUPING SETS ((c0), (c1), ())",
                         "c0, c1", "c0, GROUPING SETS ((c1), ())"])
        return node("statement", f"SELECT {column} AS c0, {column} AS c1, count(*) AS c2 FROM t3 AS g GROUP BY {sets}")

    def moments(self):
        """Variances and the like over infinite values, of one row and of many."""
        of = self.one(["double precision", "real", "numeric", "integer"])
        call = self.one(["var_pop", "var_samp", "variance", "stddev_pop", "stddev_samp", "stddev", "sum", "avg"])
        odd = "" if of in ("numeric", "integer") else self.one(["'inf'", "'-inf'", "'nan'", "NULL", "'1e300'"])
        column = {"double precision": "x.d", "real": "x.r", "numeric": "x.n", "integer": "x.s"}[of]
        value = f"CASE WHEN x.id = 1 THEN {odd}::{of} ELSE {column} END" if odd else column
        return node("statement", f"SELECT {call}({value}) AS c0 FROM {self.one(['t1', 't2', 't3'])} AS x",
                    optional(self.one([" WHERE x.id = 1", " WHERE x.id < 2", " GROUP BY x.t"])))

    # Spellings

    def interval_spelling(self):
        length = self.one(LENGTHS)
        way = self.chance.random()
        if way < 0.6:
            kind = self.one([*UNITS, *SPANS, "SECOND(1)", "DAY TO SECOND(2)", "MINUTE TO SECOND(0)"])
            text = f"interval '{length}' {kind}"
        elif way < 0.8:
            text = f"interval({self.chance.randint(0, 6)}) '{length}'"
        else:
            text = f"'{length}'::interval{self.one(['(0)', '(1)', '(3)', ' MONTH', ' HOUR TO MINUTE', ' SECOND(1)'])}"
        return node("statement", f"SELECT {text} AS c0")

    def nested_lists(self):
        of = self.one(["text", "varchar", "integer", "numeric", "date"])
        values = {"text": ["'a'", "'b,c'", "NULL", "'{'", "''"], "varchar": ["'a'", "'bc'", "NULL"],
                  "integer": ["1", "2", "NULL", "-3"], "numeric": ["1.5", "2"], "date": ["'2024-01-01'"]}[of]

        def rows(depth):
            if depth == 0:
                return self.one(values)
            return f"[{', '.join(rows(depth - 1) for _ in range(2))}]"

        array = f"ARRAY{rows(self.one([1, 2, 2, 3]))}::{of}[]"
        item = self.one(["{}", "array_dims({})", "array_ndims({})", "array_length({}, 2)", "cardinality({})",
                         "({})::text[]", "({})[1]", "({})[1][2]", "array_upper({}, 1)", "({})::text", "{} || {}",
                         "array_to_string({}, ',', '*')", "({})[1:1]", "array_append({}, NULL)", "({}) = ({})"])
        return node("statement", f"SELECT {item.replace('{}', array)} AS c0")

    def template(self):
        is_number = self.happens(0.5)
        pieces = NUMBER_PIECES if is_number else TIME_PIECES
        text = "".join(self.one(pieces) for _ in range(self.chance.randint(1, 5))).replace("'", "''")
        value = self.one(["0", "1", "-1", "12", "100", "485", "12345", "0.5", "-0.1", "1.25", "-1234.567", "99.95",
                          "1e10::float8", "0.001::float8", "-485::numeric",
                          "123456789012"]) if is_number else self.one([
                              "timestamp '2024-02-29 01:02:03.456789'", "timestamp '0044-03-15 13:00:00 BC'",
                              "date '1999-12-31'", "interval '1 year 2 mons 3 days 04:05:06.7'", "interval '-3 months'",
                              "timestamptz '2024-07-01 12:00+05:30'", "interval '-1 day -02:00'"])
        return node("statement", f"SELECT to_char({value}, '{text}') AS c0")

    def exponents(self):
        """Numerics with many digits, and what keeps or makes them."""
        values = ["1e-12", "1e-15::float8", "123456.789012345678", "0.000000000000000000001", "3.75", "1.10", "10", "7",
                  "123456789012345678901234567890.12345678", "-2.5", "0.5", "1e20", "'1e-12'", "x.n", "x.d", "x.i"]
        item = self.one(["{}::numeric", "({}::numeric) ^ 3", "({}::numeric) ^ -2", "sqrt(abs({}::numeric))",
                         "round({}::numeric, 3)", "trunc({}::numeric, -1)", "({}::numeric) * ({}::numeric)",
                         "({}::numeric) + ({}::numeric)", "({}::numeric) / 3", "exp(least({}::numeric, 5))",
                         "sum({}::numeric)", "avg({}::numeric)", "({}::numeric)::text", "scale({}::numeric)",
                         "width_bucket({}::numeric, 0, 10, 5)", "mod({}::numeric, 0.7)", "({}::numeric)::float8",
                         "trim_scale({}::numeric)", "ln(abs({}::numeric) + 1)", "stddev({}::numeric)"])
        parts = item.split("{}")
        text = parts[0]
        for part in parts[1:]:
            text += self.one(values) + part
        return node("statement", f"SELECT {text} AS c0 FROM {self.one(['t1', 't2'])} AS x")
