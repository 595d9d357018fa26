"""Random statements over the tables of `tables`: a source of chance in, statements as trees out.

Most expressions have the type that is asked for; some combine operands of any two types, which may be an error. What a
query returns never depends on the order of rows: a LIMIT stands behind an ORDER BY of all columns, windows are the same
for equal rows, and nothing asks for the time or for chance.
"""

from dataclasses import dataclass

from .tables import NAMES, ROWS, TYPES, VALUES, literal
from .trees import PLAIN, listed, node, optional

NUMBERS = ["smallint", "integer", "bigint", "real", "double precision", "numeric"]
WHOLE = NUMBERS[:3]
ALL = NUMBERS + ["boolean", "text", "date", "timestamp", "interval"]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
# Functions by the type of their result: name, types of their arguments.
FUNCTIONS = {
    "integer": [("length", ["text"]), ("octet_length", ["text"]), ("ascii", ["text"]), ("strpos", ["text", "text"]),
                ("abs", ["integer"]), ("mod", ["integer", "integer"]), ("sign", ["integer"])],
    "bigint": [("abs", ["bigint"]), ("mod", ["bigint", "bigint"]), ("div", ["bigint", "bigint"])],
    "numeric": [("abs", ["numeric"]), ("round", ["numeric", "integer"]), ("trunc", ["numeric", "integer"]),
                ("ceil", ["numeric"]), ("floor", ["numeric"]), ("round", ["numeric"]), ("sign", ["numeric"]),
                ("mod", ["numeric", "numeric"])],
    "double precision": [("abs", ["double precision"]), ("round", ["double precision"]), ("sqrt", ["double precision"]),
                         ("ceil", ["double precision"]), ("floor", ["double precision"]),
                         ("trunc", ["double precision"]), ("exp", ["double precision"]), ("ln", ["double precision"]),
                         ("power", ["double precision", "double precision"]), ("log", ["double precision"]),
                         ("cbrt", ["double precision"]), ("degrees", ["double precision"]),
                         ("sign", ["double precision"]), ("date_part", ["field", "timestamp"])],
    "text": [("upper", ["text"]), ("lower", ["text"]), ("reverse", ["text"]), ("initcap", ["text"]),
             ("trim", ["text"]), ("ltrim", ["text", "text"]), ("left", ["text", "integer"]),
             ("right", ["text", "integer"]), ("replace", ["text", "text", "text"]), ("md5", ["text"]),
             ("split_part", ["text", "text", "positive"]), ("lpad", ["text", "small", "text"]),
             ("repeat", ["text", "small"]), ("substr", ["text", "integer"]),
             ("substr", ["text", "small", "positive"]), ("concat", ["text", "any", "any"]),
             ("translate", ["text", "text", "text"]), ("to_hex", ["integer"]), ("chr", ["positive"]),
             ("concat_ws", ["text", "text", "any"]), ("btrim", ["text", "text"]), ("quote_literal", ["text"]),
             ("rpad", ["text", "small", "text"]), ("overlay", ["text", "text", "positive"]),
             ("regexp_replace", ["text", "text", "text"]), ("to_char", ["timestamp", "picture"]),
             ("to_char", ["date", "picture"])],
    "boolean": [("starts_with", ["text", "text"]), ("isfinite", ["date"]), ("isfinite", ["timestamp"]),
                ("isfinite", ["interval"])],
    "timestamp": [("date_trunc", ["field", "timestamp"]), ("date_bin", ["step", "timestamp", "timestamp"])],
    "interval": [("justify_hours", ["interval"]), ("justify_days", ["interval"]), ("age", ["timestamp", "timestamp"])],
}
FIELDS = ["year", "month", "day", "hour", "minute", "second", "quarter", "week", "dow", "doy", "isoyear", "epoch",
          "decade", "century", "isodow"]
TRUNCATED = ["year", "month", "day", "hour", "minute", "second", "quarter", "week"]
AGGREGATES = {
    "bigint": [("count", ["any"]), ("sum", ["integer"]), ("sum", ["smallint"])],
    "numeric": [("sum", ["bigint"]), ("sum", ["numeric"]), ("avg", ["integer"]), ("avg", ["numeric"]),
                ("avg", ["bigint"])],
    "double precision": [("sum", ["double precision"]), ("avg", ["double precision"]), ("avg", ["real"])],
    "boolean": [("bool_and", ["boolean"]), ("bool_or", ["boolean"]), ("every", ["boolean"])],
    "interval": [("sum", ["interval"]), ("avg", ["interval"])],
}
PLAIN.update({f"e {name}": f"NULL::{name}" for name in ALL})
PLAIN.update({"e integer": "1", "e boolean": "true", "e text": "'a'", "from": "t1", "e any": "NULL"})


@dataclass(frozen=True)
class Scope:
    """The columns that an expression may name: text and type. `outer` are those of queries around."""

    columns: tuple = ()
    outer: tuple = ()
    depth: int = 0
    may_query: bool = True


def base(type_name):
    """The type without its length or precision."""
    return "numeric" if type_name.startswith("numeric") else "text" if type_name.startswith("varchar") else type_name


class Grammar:
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

    # Queries

    def statement(self):
        self.number = 0
        types = [self.one(ALL) for _ in range(self.chance.randint(1, 4))]
        with_part = ()
        extra = ()
        if self.happens(0.1):
            name, inner = self.name(), [self.one(ALL) for _ in range(2)]
            with_part = (optional(f"WITH {name} AS ", self.one(["", "", "MATERIALIZED "]), "(",
                                  self.query(inner, Scope(depth=2), name="c"), ") "),)
            extra = ((name, tuple((f"c{place}", type_name) for place, type_name in enumerate(inner))),)
        return node("statement", *with_part, self.query(types, Scope(depth=3), extra=extra, is_top=True))

    def query(self, types, scope, name="c", extra=(), is_top=False):
        """A query of columns of these types, called name0, name1, ..."""
        if scope.depth > 0 and self.happens(0.12):
            below = Scope(outer=scope.outer, depth=scope.depth - 1, may_query=scope.may_query)
            operator = self.one(["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
            other = types if self.happens(0.7) else [self.related(type_name) for type_name in types]
            body = node("query", "(", self.query(types, below, name, extra), f") {operator} (",
                        self.query(other, below, name, extra), ")")
        else:
            body = self.core(types, scope, name, extra)
        if not is_top and not self.happens(0.1):
            return body
        if self.happens(0.5):
            return body
        order = listed(", ", [f"{place + 1}{self.one(['', '', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'])}"
                              for place in range(len(types))], least=len(types))
        limit = optional(f" LIMIT {self.chance.randint(0, 12)}",
                         optional(f" OFFSET {self.chance.randint(0, 5)}")) if self.happens(0.5) else ""
        return node("query", "(", body, ") ORDER BY ", order, limit)

    def related(self, type_name):
        for family in (NUMBERS, ["date", "timestamp"], ["text"]):
            if type_name in family:
                return self.one(family)
        return type_name

    def core(self, types, scope, name, extra):
        sources, columns = self.sources(scope, extra)
        rows = Scope(columns, scope.outer, max(scope.depth, 1), scope.may_query)
        where = optional(" WHERE ", self.expression("boolean", rows)) if self.happens(0.5) else ""
        kind = self.chance.random()
        tail = ("",)
        distinct = ""
        if kind < 0.3:
            items, tail = self.grouped(types, rows)
        elif kind < 0.42 and len(sources.parts) == 1:
            items = [self.window(type_name, rows) if self.happens(0.6) else self.expression(type_name, rows)
                     for type_name in types]
        else:
            items = [self.expression(type_name, rows) for type_name in types]
            distinct = optional("DISTINCT ") if self.happens(0.15) else ""
        named = listed(", ", [node("item", item, f" AS {name}{place}") for place, item in enumerate(items)])
        return node("query", "SELECT ", distinct, named, " FROM ", sources, where, *tail)

    def grouped(self, types, rows):
        key_types = [self.one(ALL) for _ in range(self.chance.randint(0, 2))]
        keys = [self.column_of(rows, key_type) if self.happens(0.7) else self.expression(key_type, rows)
                for key_type in key_types]
        keys = [key for key in keys if key is not None and not str(key).lstrip("(-").isdigit()
                and str(key) not in ("true", "false")]
        items = []
        for type_name in types:
            fitting = [key for key in keys if key.kind == f"e {type_name}"]
            if fitting and self.happens(0.5):
                items.append(self.one(fitting))
            else:
                items.append(self.over_groups(type_name, rows))
        having = optional(" HAVING ", self.over_groups("boolean", rows)) if self.happens(0.2) else ""
        group_by = ("",)
        if keys:
            listing = listed(", ", keys, least=len(keys))
            plain = self.happens(0.85) or any(key.size() > 1 for key in keys)
            group_by = (" GROUP BY ", listing) if plain else \
                (f" GROUP BY {self.one(['ROLLUP', 'CUBE', 'GROUPING SETS'])} (", listing, ")")
        return items, (*group_by, having)

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
                        if self.happens(0.12) else "")
        if known and self.happens(0.6):
            name, arguments = self.one(known)
            inner = self.expression(self.one(ALL) if arguments == ["any"] else arguments[0], rows)
            if name == "count" and self.happens(0.4):
                return node(f"e {type_name}", "count(*)", filtered)
            distinct = optional("DISTINCT ") if self.happens(0.2) else ""
            return node(f"e {type_name}", f"{name}(", distinct, inner, ")", filtered)
        if type_name == "text" and self.happens(0.5):
            inner = self.expression("text", rows)
            return node("e text", "string_agg(", inner, ", ',' ORDER BY ", inner, ")", filtered)
        if type_name == "boolean":
            return node("e boolean", "bool_or(", self.expression("boolean", rows), ")", filtered)
        return node(f"e {type_name}", f"{self.one(['min', 'max'])}(", self.expression(type_name, rows), ")", filtered)

    def window(self, type_name, rows):
        partition = node("clause", optional("PARTITION BY ", self.expression(self.one(ALL), rows), " ")
                         if self.happens(0.6) else "")
        keys = [self.expression(self.one(ALL), rows) for _ in range(self.chance.randint(0, 2))]
        order = node("clause", optional("ORDER BY ", listed(", ", keys)) if keys else "")
        over = node("clause", " OVER (", partition, order, ")")
        if type_name == "bigint" and self.happens(0.6):
            return node("e bigint", self.one(["rank()", "dense_rank()", "count(*)"]), over)
        if type_name == "double precision" and self.happens(0.3):
            return node("e double precision", self.one(["percent_rank()", "cume_dist()"]), over)
        name, inner = self.one(AGGREGATES.get(type_name, [(self.one(["min", "max"]), [type_name])]))
        if type_name == "boolean":
            name, inner = "bool_and", ["boolean"]
        argument = self.expression(self.one(ALL) if inner == ["any"] else inner[0], rows)
        return node(f"e {type_name}", f"{name}(", argument, ")", over)

    def sources(self, scope, extra):
        """What stands behind FROM, and its columns."""
        first, columns = self.source(scope, extra)
        count = self.one([1, 1, 1, 2, 2, 3])
        joined = first
        for _ in range(count - 1):
            other, more = self.source(scope, extra)
            kind = self.one(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"])
            if kind == "CROSS JOIN":
                joined = node("from", joined, " CROSS JOIN ", other)
            elif self.happens(0.12) and {"id"} == self.shared(columns, more):
                joined = node("from", joined, f" {kind} ", other, " USING (id)")
            else:
                both = Scope(columns + more, (), 1, False)
                on = self.equality(columns, more)
                if on is None or self.happens(0.15) and kind != "FULL JOIN":
                    on = self.expression("boolean", both) if kind != "FULL JOIN" else node("e boolean", "true")
                elif self.happens(0.2) and kind != "FULL JOIN":
                    on = node("e boolean", "(", on, " AND ", self.expression("boolean", both), ")")
                joined = node("from", joined, f" {kind} ", other, " ON ", on)
            columns = columns + more
        return listed("", [joined]), columns

    def equality(self, left, right):
        pairs = [(one, other) for one, of in left for other, to in right
                 if of == to or of in WHOLE and to in WHOLE or self.happens(0.01)]
        if not pairs:
            return None
        one, other = self.one(pairs)
        return node("e boolean", f"{one} = {other}")

    def shared(self, left, right):
        """`id`, if both sides have one column of that name, and the left one source."""
        sources = {name.split(".")[0] for name, _ in left}
        both = [{name.split(".")[1] for name, _ in side} for side in (left, right)]
        return both[0] & both[1] & {"id"} if len(sources) == 1 else set()

    def source(self, scope, extra):
        name = self.name()
        if self.happens(0.06):
            types = [self.one(ALL) for _ in range(2)]
            rows = [node("item", "(", listed(", ", [self.constant(of) for of in types], least=2), ")")
                    for _ in range(self.chance.randint(1, 4))]
            columns = tuple((f"{name}.c{place}", of) for place, of in enumerate(types))
            return node("from", "(VALUES ", listed(", ", rows), f") AS {name} (c0, c1)"), columns
        if extra and self.happens(0.5):
            of, columns = self.one(extra)
            return node("from", f"{of} AS {name}"), tuple((f"{name}.{column}", kind) for column, kind in columns)
        if scope.depth > 1 and self.happens(0.15):
            types = [self.one(ALL) for _ in range(2)]
            inner = self.query(types, Scope(outer=(), depth=scope.depth - 1), name="c")
            columns = tuple((f"{name}.c{place}", type_name) for place, type_name in enumerate(types))
            return node("from", "(", inner, f") AS {name}"), columns
        table = self.one(list(ROWS))
        if table == "t4" and self.happens(0.6):
            table = "t3"
        columns = ((f"{name}.id", "integer"),
                   *((f"{name}.{NAMES[type_name]}", base(type_name)) for type_name in TYPES))
        return node("from", f"{table} AS {name}"), columns

    # Expressions

    def expression(self, type_name, scope):
        if scope.depth <= 0 or self.happens(0.25):
            return self.leaf(type_name, scope)
        below = Scope(scope.columns, scope.outer, scope.depth - 1, scope.may_query)
        ways = [self.leaf, self.operated, self.called, self.conditional, self.converted]
        if self.happens(0.06):
            return self.cast(self.wild(below), type_name) if self.happens(0.7) else self.wild(below)
        if scope.may_query and self.happens(0.05):
            return self.scalar_query(type_name, below)
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
        values = VALUES.get(type_name) or VALUES["numeric(12,3)"]
        return node(f"e {type_name}", literal(type_name, self.one(values)))

    def cast(self, inner, type_name):
        return node(f"e {type_name}", "CAST(", inner, f" AS {type_name})")

    def wild(self, scope):
        """An operator over operands of any two types."""
        left, right = self.expression(self.one(ALL), scope), self.expression(self.one(ALL), scope)
        return node("e any", "(", left, f" {self.one(['+', '-', '*', '/', '%', '||', '=', '<', '>='])} ", right, ")")

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
        if type_name == "interval":
            if self.happens(0.3):
                return two("timestamp", "-", "timestamp")
            if self.happens(0.3):
                return two("interval", self.one(["*", "/"]), self.one(["double precision", "integer"]))
            return two("interval", self.one(["+", "-"]), "interval")
        return self.condition(scope)

    def condition(self, scope):
        def boolean():
            return self.expression("boolean", scope)

        of = self.one(ALL)
        way = self.chance.random()
        if way < 0.3:
            other = self.related(of) if self.happens(0.3) else of
            return node("e boolean", "(", self.expression(of, scope), f" {self.one(COMPARISONS)} ",
                        self.expression(other, scope), ")")
        if way < 0.5:
            return node("e boolean", "(", boolean(), self.one([" AND ", " OR "]), boolean(), ")")
        if way < 0.58:
            return node("e boolean", "(NOT ", boolean(), ")")
        if way < 0.7:
            return node("e boolean", "(", self.expression(of, scope), self.one([" IS NULL", " IS NOT NULL"]), ")")
        if way < 0.78:
            items = [self.expression(of, scope) for _ in range(self.chance.randint(1, 4))]
            return node("e boolean", "(", self.expression(of, scope), self.one([" IN (", " NOT IN ("]),
                        listed(", ", items), "))")
        if way < 0.84:
            return node("e boolean", "(", self.expression(of, scope), self.one([" BETWEEN ", " NOT BETWEEN "]),
                        self.expression(of, scope), " AND ", self.expression(of, scope), ")")
        if way < 0.9:
            pattern = self.one(["'a%'", "'%b'", "'_'", "'%'", "''", "'A_c'", "'%a%b%'"])
            return node("e boolean", "(", self.expression("text", scope),
                        self.one([" LIKE ", " NOT LIKE ", " ILIKE "]), pattern, ")")
        if way < 0.95 and scope.may_query:
            inner = Scope(outer=scope.columns, depth=max(scope.depth - 1, 0), may_query=False)
            if self.happens(0.5):
                return node("e boolean", self.one(["(EXISTS (", "(NOT EXISTS ("]), self.query([of], inner), "))")
            return node("e boolean", "(", self.expression(of, scope), self.one([" IN (", " NOT IN ("]),
                        self.query([of], Scope(depth=1, may_query=False)), "))")
        return node("e boolean", "(", boolean(), self.one([" IS TRUE", " IS NOT FALSE", " IS UNKNOWN"]), ")")

    def called(self, type_name, scope):
        known = FUNCTIONS.get(type_name)
        if type_name in ("double precision", "numeric") and self.happens(0.2):
            of = self.one(["date", "timestamp", "interval"])
            part = node("e numeric", f"extract({self.one(FIELDS)} FROM ", self.expression(of, scope), ")")
            return part if type_name == "numeric" else self.cast(part, type_name)
        if not known:
            return self.conditional(type_name, scope)
        name, arguments = self.one(known)
        return node(f"e {type_name}", f"{name}(",
                    listed(", ", [self.argument(of, scope) for of in arguments], least=len(arguments)), ")")

    def argument(self, of, scope):
        if of == "small":
            return str(self.chance.randint(-1, 4))
        if of == "step":
            return self.one(["'1 day'::interval", "'15 minutes'::interval", "'7 days'::interval"])
        if of == "picture":
            return self.one(["'YYYY-MM-DD'", "'HH24:MI:SS'", "'Mon DD, YYYY'", "'Q WW D'", "'MS US'"])
        if of == "positive":
            return str(self.chance.randint(1, 70))
        if of == "field":
            return f"'{self.one(TRUNCATED)}'"
        return self.expression(self.one(ALL) if of == "any" else of, scope)

    def conditional(self, type_name, scope):
        def value():
            other = self.related(type_name) if self.happens(0.1) else type_name
            return self.expression(other, scope)

        way = self.chance.random()
        kind = f"e {type_name}"
        if way < 0.35:
            return node(kind, "CASE WHEN ", self.expression("boolean", scope), " THEN ", value(),
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

    def converted(self, type_name, scope):
        if type_name in NUMBERS:
            of = self.one(NUMBERS + ["text"])
        elif type_name == "text":
            of = self.one(ALL)
        elif type_name in ("date", "timestamp"):
            of = self.one(["date", "timestamp"])
        else:
            of = type_name
        return self.cast(self.expression(of, scope), type_name)

    def scalar_query(self, type_name, scope):
        inner = Scope(depth=1, may_query=False)
        source, columns = self.source(inner, ())
        rows = Scope(columns, scope.columns, 1, False)
        where = optional(" WHERE ", self.expression("boolean", rows)) if self.happens(0.6) else ""
        return node(f"e {type_name}", "(SELECT ", self.aggregate(type_name, Scope(columns, (), 1, False)), " FROM ",
                    source, where, ")")
