"""Random expressions of a type over the columns of a scope.

Most have the type that is asked for; some combine operands of any two types, which may be an error.
"""

from dataclasses import dataclass, replace

from .functions import AGGREGATES, ALL, BARE, CALLS, COMPARISONS, NUMBERS, ODD, SPELLINGS, TIMES, WHOLE
from .tables import VALUES, literal
from .trees import PLAIN, listed, node, optional

PLAIN.update({f"e {name}": f"NULL::{name}" for name in ALL})
PLAIN.update({"e integer": "1", "e boolean": "true", "e text": "'a'", "from": "t1", "e any": "NULL"})


@dataclass(frozen=True)
class Scope:
    """The columns that an expression may name: text and type. `outer` are those of queries around."""

    columns: tuple = ()
    outer: tuple = ()
    depth: int = 0
    may_query: bool = True


class Expressions:
    def __init__(self, chance):
        self.chance = chance
        self.number = 0

    def name(self):
        self.number += 1
        return f"q{self.number}"

    def happens(self, share):
        return self.chance.random() < share

    def one(self, choices):
        return self.chance.choice(choices)

    def expression(self, type_name, scope):
        if scope.depth <= 0 or self.happens(0.25):
            return self.leaf(type_name, scope)
        below = replace(scope, depth=scope.depth - 1)
        ways = [self.leaf, self.operated, self.called, self.called, self.conditional, self.converted]
        if self.happens(0.05):
            return self.cast(self.wild(below), type_name) if self.happens(0.7) else self.wild(below)
        if scope.may_query and self.happens(0.05):
            return self.scalar_query(type_name, below)
        if type_name in ("integer", "boolean") and self.happens(0.08):
            return node(f"e {type_name}", "(", self.chain(type_name, below), ")")
        return self.one(ways)(type_name, below)

    def leaf(self, type_name, scope):
        column = self.column_of(scope, type_name)
        if column is not None and self.happens(0.75):
            return column
        return self.constant(type_name)

    def column_of(self, scope, type_name):
        columns = scope.columns if not scope.outer or self.happens(0.7) else scope.outer
        fitting = [name for name, of in columns if of == type_name]
        return node(f"e {type_name}", self.one(fitting)) if fitting else None

    def constant(self, type_name):
        if self.happens(0.08):
            return node(f"e {type_name}", f"NULL::{type_name}")
        if self.happens(0.08):
            return node(f"e {type_name}", self.one(BARE[type_name]))
        values = VALUES.get(type_name) or VALUES["numeric(12,3)"]
        return node(f"e {type_name}", literal(type_name, self.one(values)))

    def cast(self, inner, type_name):
        return node(f"e {type_name}", "CAST(", inner, f" AS {type_name})")

    def wild(self, scope):
        """An operator over operands of any two types."""
        left, right = self.expression(self.one(ALL), scope), self.expression(self.one(ALL), scope)
        return node("e any", "(", left, f" {self.one(['+', '-', '*', '/', '%', '||', '=', '<', '>=', '^', '&'])} ",
                    right, ")")

    def operated(self, type_name, scope):
        def two(left, operator, right):
            return node(f"e {type_name}", "(", self.expression(left, scope), f" {operator} ",
                        self.expression(right, scope), ")")

        if type_name in WHOLE:
            if self.happens(0.1):
                return node(f"e {type_name}", "(- ", self.expression(type_name, scope), ")")
            return two(type_name, self.one(["+", "-", "*", "/", "%", "&", "|", "#"]), type_name)
        if type_name in NUMBERS:
            other = self.one(WHOLE) if self.happens(0.4) and type_name != "real" else type_name
            return two(type_name, self.one(["+", "-", "*", "/"]), other)
        if type_name == "text":
            return two("text", "||", self.one(["text", "text", "integer", "date"]))
        if type_name == "date":
            return two("date", self.one(["+", "-"]), "integer")
        if type_name == "timestamp":
            return two(self.one(["timestamp", "date"]), self.one(["+", "-"]), "interval")
        if type_name in ("timestamptz", "time"):
            return two(type_name, self.one(["+", "-"]), "interval")
        if type_name == "interval":
            if self.happens(0.3):
                of = self.one(["timestamp", "timestamptz", "time"])
                return two(of, "-", of)
            if self.happens(0.3):
                return two("interval", self.one(["*", "/"]), self.one(["double precision", "integer"]))
            return two("interval", self.one(["+", "-"]), "interval")
        return self.condition(scope)

    def condition(self, scope):
        def boolean():
            return self.expression("boolean", scope)

        of = self.one(ALL)
        way = self.chance.random()
        if way < 0.25:
            other = self.related(of) if self.happens(0.3) else of
            return node("e boolean", "(", self.expression(of, scope), f" {self.one(COMPARISONS)} ",
                        self.expression(other, scope), ")")
        if way < 0.42:
            return node("e boolean", "(", boolean(), self.one([" AND ", " OR "]), boolean(), ")")
        if way < 0.48:
            return node("e boolean", "(NOT ", boolean(), ")")
        if way < 0.55:
            return node("e boolean", "(", self.expression(of, scope), self.one([" IS NULL", " IS NOT NULL"]), ")")
        if way < 0.62:
            items = [self.expression(self.related(of) if self.happens(0.1) else of, scope)
                     for _ in range(self.chance.randint(1, 4))]
            return node("e boolean", "(", self.expression(of, scope), self.one([" IN (", " NOT IN ("]),
                        listed(", ", items), "))")
        if way < 0.68:
            between = self.one([" BETWEEN ", " NOT BETWEEN ", " BETWEEN SYMMETRIC "])
            return node("e boolean", "(", self.expression(of, scope), between,
                        self.expression(of, scope), " AND ", self.expression(of, scope), ")")
        if way < 0.76:
            return self.row_comparison(scope)
        if way < 0.8:
            items = [self.expression(of, scope) for _ in range(self.chance.randint(1, 3))]
            return node("e boolean", "(", self.expression(of, scope), f" {self.one(COMPARISONS[:6])} ",
                        self.one(["ANY", "ALL"]), " (ARRAY[", listed(", ", items), "]))")
        if way < 0.9 and scope.may_query:
            return self.queried(of, scope)
        if way < 0.95:
            return self.called("boolean", scope)
        tests = [" IS TRUE", " IS NOT FALSE", " IS UNKNOWN", " IS NOT TRUE", " IS FALSE", " IS NOT UNKNOWN"]
        return node("e boolean", "(", boolean(), self.one(tests), ")")

    def row_comparison(self, scope):
        """Two rows compared, or a row among rows."""
        types = [self.one(ALL) for _ in range(self.chance.randint(2, 3))]

        def row():
            return node("row", self.one(["(", "ROW("]), listed(", ", [self.expression(of, scope) for of in types],
                                                               least=len(types)), ")")

        if self.happens(0.3):
            return node("e boolean", "(", row(), self.one([" IN (", " NOT IN ("]),
                        listed(", ", [row() for _ in range(self.chance.randint(1, 3))]), "))")
        if self.happens(0.1):
            return node("e boolean", "(", row(), self.one([" IS NULL", " IS NOT NULL"]), ")")
        return node("e boolean", "(", row(), f" {self.one(COMPARISONS)} ", row(), ")")

    def queried(self, of, scope):
        """A condition with a subquery, which may name the columns around it."""
        inner = Scope(outer=scope.columns, depth=max(scope.depth - 1, 0), may_query=self.happens(0.2))
        alone = Scope(depth=1, may_query=False)
        way = self.chance.random()
        if way < 0.35:
            return node("e boolean", self.one(["(EXISTS (", "(NOT EXISTS ("]), self.query([of], inner), "))")
        if way < 0.6:
            return node("e boolean", "(", self.expression(of, scope), self.one([" IN (", " NOT IN ("]),
                        self.query([of], alone if self.happens(0.6) else inner), "))")
        if way < 0.8:
            return node("e boolean", "(", self.expression(of, scope), f" {self.one(COMPARISONS[:6])} ",
                        self.one(["ANY (", "ALL (", "SOME ("]), self.query([of], alone), "))")
        types = [of, self.one(ALL)]
        row = listed(", ", [self.expression(name, scope) for name in types], least=2)
        return node("e boolean", "((", row, self.one([") IN (", ") NOT IN (", ") = ANY ("]), self.query(types, alone),
                    "))")

    def called(self, type_name, scope):
        known = CALLS.get(type_name)
        if not known or self.happens(0.05):
            return self.conditional(type_name, scope)
        template, arguments = self.one(known)
        texts = template.split("{}")
        parts = [texts[0]]
        for of, text in zip(arguments, texts[1:]):
            parts += [self.argument(of, scope), text]
        return node(f"e {type_name}", *parts)

    def chain(self, type_name, scope):
        """Operators without parentheses, which bind as they do."""
        if type_name == "integer":
            parts = [self.small(scope)]
            for _ in range(self.chance.randint(1, 3)):
                operator = self.one(["+", "-", "*", "/", "%", "&", "|", "#", "<<", ">>"])
                parts += [f" {operator} {self.one(['', '', '', '- ', '~ ', '@ '])}", self.small(scope)]
            return node("chain", *parts)
        parts = [self.link(scope)]
        for _ in range(self.chance.randint(1, 2)):
            parts += [f" {self.one(['AND', 'OR'])} {self.one(['', '', 'NOT '])}", self.link(scope)]
        return node("chain", *parts)

    def link(self, scope):
        """A condition of a chain, without parentheses."""
        way = self.chance.random()
        if way < 0.25:
            return node("link", self.chain("integer", scope), f" {self.one(COMPARISONS)} ",
                        self.chain("integer", scope))
        if way < 0.4:
            return node("link", self.leaf("boolean", scope), self.one([" IS DISTINCT FROM ", " IS NOT DISTINCT FROM ",
                                                                       " = ", " <> "]), self.leaf("boolean", scope))
        if way < 0.55:
            return node("link", self.chain("integer", scope), self.one([" BETWEEN ", " NOT BETWEEN "]),
                        self.small(scope), " AND ", self.chain("integer", scope))
        if way < 0.65:
            return node("link", self.leaf("text", scope), " || ", self.small(scope), self.one([" LIKE ", " = ", " < "]),
                        self.leaf("text", scope))
        if way < 0.75:
            return node("link", self.small(scope), self.one([" IN (", " NOT IN ("]), self.small(scope), ", 2)")
        if way < 0.9:
            return node("link", self.leaf("boolean", scope), self.one([" IS TRUE", " IS NOT FALSE", " IS NULL"]))
        return node("link", self.leaf("boolean", scope))

    def small(self, scope):
        """A small whole number."""
        column = self.column_of(scope, "smallint")
        return column if column is not None and self.happens(0.3) else self.one(["1", "2", "3", "7"])

    def argument(self, of, scope):
        if of in ODD:
            return self.one(ODD[of])
        return self.expression(self.one(ALL) if of == "any" else of, scope)

    def conditional(self, type_name, scope):
        def value():
            other = self.related(type_name) if self.happens(0.1) else type_name
            return self.expression(other, scope)

        way = self.chance.random()
        kind = f"e {type_name}"
        if way < 0.35:
            return node(kind, "CASE WHEN ", self.expression("boolean", scope), " THEN ", value(),
                        node("clause", optional(" WHEN ", self.expression("boolean", scope), " THEN ", value())
                             if self.happens(0.2) else ""),
                        node("clause", optional(" ELSE ", value())), " END")
        if way < 0.45:
            of = self.one(ALL)
            return node(kind, "CASE ", self.expression(of, scope), " WHEN ", self.expression(of, scope), " THEN ",
                        value(), " ELSE ", value(), " END")
        if way < 0.65:
            return node(kind, "coalesce(", listed(", ", [value(), value()]), ")")
        if way < 0.8:
            return node(kind, "nullif(", value(), ", ", value(), ")")
        return node(kind, f"{self.one(['greatest', 'least'])}(", listed(", ", [value(), value(), value()]), ")")

    def related(self, type_name):
        for family in (NUMBERS, ["date", "timestamp", "timestamptz"], ["time", "interval"]):
            if type_name in family:
                return self.one(family)
        return type_name

    def converted(self, type_name, scope):
        if self.happens(0.15):
            return self.cast(self.spelling(type_name), type_name)
        if self.happens(0.1):
            # Most of these pairs have no cast.
            of = self.one(ALL)
        elif type_name in NUMBERS:
            of = self.one(NUMBERS + ["text"])
        elif type_name == "text":
            of = self.one(ALL)
        elif type_name in TIMES:
            of = self.one(["date", "timestamp", "timestamptz", type_name])
        else:
            of = type_name
        return self.cast(self.expression(of, scope), type_name)

    def spelling(self, type_name):
        """A text that a cast to the type reads, or does not."""
        kind = "whole" if type_name in WHOLE else "number" if type_name in NUMBERS else type_name
        spelt = self.one(SPELLINGS.get(kind, ["a", " a ", "", "ä"]))
        return node("e text", f"'{spelt}'" if self.happens(0.5) else f"'{spelt}'::text")

    def scalar_query(self, type_name, scope):
        inner = Scope(depth=1, may_query=False)
        source, columns = self.source(inner, ())
        rows = Scope(columns, scope.columns, 1, False)
        where = optional(" WHERE ", self.expression("boolean", rows)) if self.happens(0.6) else ""
        return node(f"e {type_name}", "(SELECT ", self.aggregate(type_name, Scope(columns, (), 1, False)), " FROM ",
                    source, where, ")")

    # Aggregates and windows

    def over_groups(self, type_name, rows):
        """An expression over aggregates."""
        if self.happens(0.3) and type_name in NUMBERS:
            one, other = self.aggregate(type_name, rows), self.aggregate(self.one(NUMBERS), rows)
            return self.cast(node("e any", "(", one, self.one([" + ", " - ", " * "]), other, ")"), type_name)
        if type_name == "boolean" and self.happens(0.5):
            of = self.one(ALL)
            return node("e boolean", "(", self.aggregate(of, rows), f" {self.one(COMPARISONS)} ",
                        self.constant(of), ")")
        return self.aggregate(type_name, rows)

    def aggregate(self, type_name, rows):
        known = AGGREGATES.get(type_name, [])
        filtered = node("clause", optional(" FILTER (WHERE ", self.expression("boolean", rows), ")")
                        if self.happens(0.15) else "")
        if type_name not in ("boolean", "text") and self.happens(0.06):
            within = self.one(["mode()", "percentile_disc(0.5)", "percentile_disc(0)"])
            return node(f"e {type_name}", f"{within} WITHIN GROUP (ORDER BY ", self.expression(type_name, rows),
                        self.one(["", " DESC"]), ")", filtered)
        if type_name == "double precision" and self.happens(0.1):
            of = self.one(WHOLE)
            if self.happens(0.5):
                return node("e double precision", "percentile_cont(0.5) WITHIN GROUP (ORDER BY ",
                            self.expression(type_name, rows), ")", filtered)
            name = self.one(["corr", "covar_pop", "covar_samp", "regr_count", "regr_slope", "regr_avgx"])
            return node("e double precision", f"{name}(", self.expression(of, rows), ", ", self.expression(of, rows),
                        ")", filtered)
        if known and self.happens(0.6):
            name, arguments = self.one(known)
            inner = self.expression(self.one(ALL) if arguments == ["any"] else arguments[0], rows)
            if name == "count" and self.happens(0.4):
                return node(f"e {type_name}", "count(*)", filtered)
            distinct = optional("DISTINCT ") if self.happens(0.2) else ""
            return node(f"e {type_name}", f"{name}(", distinct, inner, ")", filtered)
        if type_name == "text" and self.happens(0.6):
            return self.joined_texts(rows, filtered)
        if type_name == "boolean":
            return node("e boolean", "bool_or(", self.expression("boolean", rows), ")", filtered)
        return node(f"e {type_name}", f"{self.one(['min', 'max'])}(", self.expression(type_name, rows), ")", filtered)

    def joined_texts(self, rows, filtered):
        """string_agg in an order that leaves no choice."""
        inner = self.expression("text", rows)
        separator = self.one(["','", "''", "NULL", "' - '"])
        way = self.one(["", " DESC", " NULLS FIRST"])
        if self.happens(0.3):
            return node("e text", "string_agg(DISTINCT ", inner, f", {separator} ORDER BY ", inner, way, ")", filtered)
        before = node("clause", optional(self.expression(self.one(ALL), rows), ", ") if self.happens(0.3) else "")
        return node("e text", "string_agg(", inner, f", {separator} ORDER BY ", before, inner, way, ")", filtered)

    def window(self, type_name, rows):
        """A window function. What stands on the order of rows has one that a unique column makes definite."""
        partition = node("clause", optional("PARTITION BY ", self.expression(self.one(ALL), rows), " ")
                         if self.happens(0.6) else "")
        unique = [name for name, _ in rows.columns if name.endswith(".id")]
        if unique and self.happens(0.5):
            return self.framed(type_name, rows, partition, unique[0])
        keys = [self.expression(self.one(ALL), rows) for _ in range(self.chance.randint(0, 2))]
        order = node("clause", optional("ORDER BY ", listed(", ", keys)) if keys else "")
        frame = ""
        if keys and self.happens(0.3):
            units = self.one(["RANGE", "GROUPS"])
            frame = optional(f" {units} BETWEEN ", self.one(["UNBOUNDED PRECEDING", "CURRENT ROW"]), " AND ",
                             self.one(["CURRENT ROW", "UNBOUNDED FOLLOWING"]), self.exclusion())
        over = node("clause", " OVER (", partition, order, frame, ")")
        if type_name == "bigint" and self.happens(0.6):
            return node("e bigint", self.one(["rank()", "dense_rank()", "count(*)"]), over)
        if type_name == "double precision" and self.happens(0.3):
            return node("e double precision", self.one(["percent_rank()", "cume_dist()"]), over)
        name, inner = self.one(AGGREGATES.get(type_name, [(self.one(["min", "max"]), [type_name])]))
        if type_name == "boolean":
            name, inner = "bool_and", ["boolean"]
        argument = self.expression(self.one(ALL) if inner == ["any"] else inner[0], rows)
        filtered = optional(" FILTER (WHERE ", self.expression("boolean", rows), ")") if self.happens(0.1) else ""
        return node(f"e {type_name}", f"{name}(", argument, ")", filtered, over)

    def framed(self, type_name, rows, partition, unique):
        """A window function over rows in the order of a unique column, perhaps with a frame."""
        way = self.one(["", " DESC", " NULLS FIRST"])
        before = node("clause", optional(self.expression(self.one(ALL), rows), self.one(["", " DESC"]), ", ")
                      if self.happens(0.3) else "")
        frame = self.frame(str(before) == "") if self.happens(0.6) else ""
        over = node("clause", " OVER (", partition, "ORDER BY ", before, f"{unique}{way}", frame, ")")
        value = self.expression(type_name, rows)
        choice = self.chance.random()
        if choice < 0.3:
            name = self.one(["first_value", "last_value", "max", "min"]) if type_name != "boolean" else "last_value"
            return node(f"e {type_name}", f"{name}(", value, ")", over)
        if choice < 0.6:
            rest = self.one(["", ", 1", ", 2", ", 0", ", -1", ", NULL"])
            if rest and self.happens(0.3):
                # The result has the common type of both.
                default = self.constant(self.related(type_name) if self.happens(0.3) else type_name)
                shifted = node("e any", f"{self.one(['lag', 'lead'])}(", value, rest, ", ", default, ")", over)
                return self.cast(shifted, type_name)
            return node(f"e {type_name}", f"{self.one(['lag', 'lead'])}(", value, rest, ")", over)
        if choice < 0.7:
            return node(f"e {type_name}", "nth_value(", value, f", {self.one(['1', '2', '3'])})", over)
        if type_name == "bigint":
            return node("e bigint", self.one(["row_number()", "count(*)", "rank()"]), over)
        if type_name == "integer":
            return node("e integer", f"ntile({self.one(['1', '2', '3', '100'])})", over)
        name, inner = self.one(AGGREGATES.get(type_name, [("max", [type_name])]))
        argument = self.expression(self.one(ALL) if inner == ["any"] else inner[0], rows)
        if type_name in ("real", "double precision"):
            # Sums of doubles depend on what was added before.
            name, argument = "min", value
        return node(f"e {type_name}", f"{name}(", argument, ")", over)

    def frame(self, is_plain):
        """The frame of a window that is ordered by one unique integer, or by that last."""
        starts = ["UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "0 PRECEDING"]
        ends = ["UNBOUNDED FOLLOWING", "2 FOLLOWING", "1 FOLLOWING", "CURRENT ROW", "1 PRECEDING"]
        units = self.one(["ROWS", "ROWS", "GROUPS", "RANGE"] if is_plain else ["ROWS", "GROUPS"])
        bounds = f"BETWEEN {self.one(starts)} AND {self.one(ends)}" if self.happens(0.8) else self.one(starts[:4])
        return optional(f" {units} {bounds}", self.exclusion())

    def exclusion(self):
        ways = ["CURRENT ROW", "GROUP", "TIES", "NO OTHERS"]
        return optional(f" EXCLUDE {self.one(ways)}") if self.happens(0.2) else ""
