"""Random statements over the tables of `tables`: a source of chance in, statements as trees out.

What a query returns never depends on the order of rows: a LIMIT stands behind an ORDER BY of all columns, windows are
the same for equal rows, and nothing asks for the time. What chance gives is not shown. A part of the
statements is small, so that each expression is seen by itself.
"""

from dataclasses import replace

from .expressions import Scope
from .functions import ALL, NUMBERS
from .shapes import Shapes
from .tables import NAMES, ROWS, TYPES
from .trees import listed, node, optional

JOINS = ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
SET_OPERATORS = ["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"]


def base(type_name):
    """The type without its length or precision."""
    return "numeric" if type_name.startswith("numeric") else "text" if type_name.startswith("varchar") else type_name


class Grammar(Shapes):
    def statement(self):
        self.number = 0
        if self.happens(0.2):
            return self.shaped()
        if self.happens(0.35):
            return self.small_statement()
        types = [self.one(ALL) for _ in range(self.chance.randint(1, 4))]
        parts = []
        extra = ()
        if self.happens(0.18):
            is_recursive = self.happens(0.35)
            for _ in range(self.one([1, 1, 2, 3])):
                part, columns = self.with_part(extra, is_recursive)
                parts.append(part)
                extra = (*extra, columns)
            with_part = (optional("WITH RECURSIVE " if is_recursive else "WITH ",
                                  listed(", ", parts, least=len(parts)), " "),)
        else:
            with_part = ()
        return node("statement", *with_part, self.query(types, Scope(depth=3), extra=extra, is_top=True))

    def small_statement(self):
        """A few expressions over a table, or over no table at all."""
        types = [self.one(ALL) for _ in range(self.one([1, 1, 2]))]
        scope = Scope(depth=self.one([1, 2, 2]), may_query=False)
        tail = ""
        if self.happens(0.7):
            source, columns = self.table()
            scope = replace(scope, columns=columns)
            tail = node("tail", " FROM ", source)
        ways = [self.operated, self.called, self.called, self.called, self.conditional, self.converted]
        items = [node("item", self.one(ways)(type_name, scope), f" AS c{place}")
                 for place, type_name in enumerate(types)]
        return node("statement", "SELECT ", listed(", ", items), tail)

    def with_part(self, extra, is_recursive):
        name, types = self.name(), [self.one(ALL) for _ in range(2)]
        columns = (name, tuple((f"c{place}", type_name) for place, type_name in enumerate(types)))
        if is_recursive and self.happens(0.6):
            return self.recursive_part(name), (name, (("c0", "integer"), ("c1", "text")))
        kind = self.one(["", "", "MATERIALIZED ", "NOT MATERIALIZED "])
        inner = self.query(types, Scope(depth=2), name="c", extra=extra)
        return node("part", f"{name} AS {kind}(", inner, ")"), columns

    def recursive_part(self, name):
        """A query that counts up to a few, with a text beside the number."""
        first = Scope(depth=1, may_query=False)
        step = Scope((("q.c0", "integer"), ("q.c1", "text")), (), 1, False)
        union = self.one(["UNION ALL", "UNION"])
        text = node("e text", "left(", self.expression("text", step), ", 20)")
        joined = self.one(["", "", " JOIN t2 ON t2.id = q.c0", " CROSS JOIN t1"])
        return node("part", f"{name} (c0, c1) AS (SELECT {self.one(['0', '1', '-2'])}, CAST(",
                    self.expression("text", first), f" AS text) {union} SELECT q.c0 + 1, ", text,
                    f" FROM {name} AS q{joined} WHERE q.c0 < {self.one(['3', '5', '12'])}",
                    optional(" AND ", self.expression("boolean", step)) if self.happens(0.4) else "", ")")

    # Queries

    def query(self, types, scope, name="c", extra=(), is_top=False):
        """A query of columns of these types, called name0, name1, ..."""
        if scope.depth > 0 and self.happens(0.12):
            below = Scope(outer=scope.outer, depth=scope.depth - 1, may_query=scope.may_query)
            other = types if self.happens(0.7) else [self.related(type_name) for type_name in types]
            body = node("query", "(", self.query(types, below, name, extra), f") {self.one(SET_OPERATORS)} (",
                        self.query(other, below, name, extra), ")")
        elif self.happens(0.05):
            rows = [node("item", "(", listed(", ", [self.constant(of) for of in types], least=len(types)), ")")
                    for _ in range(self.chance.randint(1, 3))]
            body = node("query", "VALUES ", listed(", ", rows))
        elif self.happens(0.06):
            # An order of its own.
            return self.distinct_on(types, scope, name, extra)
        else:
            body = self.core(types, scope, name, extra)
        if not is_top and not self.happens(0.1):
            return body
        if self.happens(0.5):
            return body
        return node("query", "(", body, ") ORDER BY ", self.all_columns(types), self.limit())

    def all_columns(self, types):
        ways = ["", "", " DESC", " NULLS FIRST", " DESC NULLS LAST", " ASC NULLS LAST"]
        return listed(", ", [f"{place + 1}{self.one(ways)}" for place in range(len(types))], least=len(types))

    def limit(self):
        if self.happens(0.5):
            return ""
        few, skipped = self.chance.randint(0, 12), self.chance.randint(0, 5)
        way = self.chance.random()
        if way < 0.6:
            return optional(f" LIMIT {few}", optional(f" OFFSET {skipped}"))
        if way < 0.75:
            return optional(self.one([f" LIMIT {few} + 1", " LIMIT (SELECT count(*) FROM t1) + 1", " LIMIT NULL",
                                      " LIMIT ALL", " LIMIT 2.5", " LIMIT -1", " LIMIT '3'"]),
                            optional(self.one([f" OFFSET {skipped} - 1", " OFFSET NULL", " OFFSET (SELECT 1)"])))
        return optional(optional(f" OFFSET {skipped}{self.one(['', ' ROWS'])}"),
                        f" FETCH FIRST {few} ROWS {self.one(['ONLY', 'ONLY', 'ONLY', 'ONLY', 'WITH TIES'])}")

    def distinct_on(self, types, scope, name, extra):
        """The first row of each group, in an order of all columns."""
        sources, columns = self.sources(scope, extra)
        rows = Scope(columns, scope.outer, max(scope.depth, 1), scope.may_query)
        items = [self.expression(type_name, rows) for type_name in types]
        count = self.chance.randint(1, len(items))
        named = [node("item", item, f" AS {name}{place}") for place, item in enumerate(items)]
        keys = ", ".join(str(place + 1) for place in range(count))
        return node("query", f"SELECT DISTINCT ON ({keys}) ", listed(", ", named, least=len(named)), " FROM ", sources,
                    optional(" WHERE ", self.expression("boolean", rows)) if self.happens(0.4) else "", " ORDER BY ",
                    self.all_columns(types))

    def core(self, types, scope, name, extra):
        sources, columns = self.sources(scope, extra)
        rows = Scope(columns, scope.outer, max(scope.depth, 1), scope.may_query)
        where = optional(" WHERE ", self.expression("boolean", rows)) if self.happens(0.5) else ""
        kind = self.chance.random()
        tail = ("",)
        distinct = ""
        if kind < 0.3:
            items, tail = self.grouped(types, rows)
        elif kind < 0.44 and len(sources.parts) == 1:
            is_single = " JOIN " not in str(sources)
            inner = rows if is_single else replace(rows, columns=tuple(
                (column, of) for column, of in columns if not column.endswith(".id")))
            items = [self.window(type_name, inner) if self.happens(0.6) else self.expression(type_name, rows)
                     for type_name in types]
        else:
            items = [self.expression(type_name, rows) for type_name in types]
            distinct = optional("DISTINCT ") if self.happens(0.15) else ""
        named = listed(", ", [node("item", item, f" AS {name}{place}") for place, item in enumerate(items)])
        whole = node("query", "SELECT ", distinct, named, " FROM ", sources, where, *tail)
        if str(distinct) and all("." in str(item) for item in items) and self.happens(0.3):
            # An order by the same expressions, which a query around it may change.
            return node("query", "SELECT * FROM (", whole, " ORDER BY ", listed(", ", items, least=len(items)),
                        f") AS {self.name()}")
        return whole

    def grouped(self, types, rows):
        of_table = [(name, of) for name, of in rows.columns if name.endswith(".id")]
        if of_table and self.happens(0.12):
            # A primary key, if it is a table's: its other columns may stand beside.
            key, _ = self.one(of_table)
            own = [(name, of) for name, of in rows.columns if name.split(".")[0] == key.split(".")[0]]
            scope = replace(rows, columns=tuple(own), outer=())
            items = [self.expression(of, scope) if self.happens(0.7) else self.over_groups(of, rows) for of in types]
            return items, (" GROUP BY ", node("e integer", key))
        key_types = [self.one(ALL) for _ in range(self.chance.randint(0, 3))]
        keys = [self.column_of(rows, key_type) if self.happens(0.7) else self.expression(key_type, rows)
                for key_type in key_types]
        keys = [key for key in keys if key is not None and self.may_group(str(key))]
        sets = self.grouping_sets(keys) if keys and self.happens(0.2) else None
        items = []
        for type_name in types:
            fitting = [key for key in keys if key.kind == f"e {type_name}"]
            if sets is not None and type_name == "integer" and self.happens(0.5):
                some = self.chance.sample(keys, self.chance.randint(1, len(keys)))
                items.append(node("e integer", "grouping(", listed(", ", some), ")"))
            elif fitting and self.happens(0.5):
                items.append(self.one(fitting))
            else:
                items.append(self.over_groups(type_name, rows))
        having = optional(" HAVING ", self.over_groups("boolean", rows)) if self.happens(0.2) else ""
        group_by = ("",)
        if keys:
            group_by = (" GROUP BY ", sets or listed(", ", keys, least=len(keys)))
        return items, (*group_by, having)

    def may_group(self, key):
        """Whether a key is no number, which would be the place of a column, and no bare text."""
        is_number = key.lstrip("(-").rstrip(")").replace(".", "").isdigit() or "1e3" in key
        is_text = key.startswith("'") and key.endswith("'")
        return not is_number and not is_text and key not in ("true", "false", "NULL")

    def grouping_sets(self, keys):
        def some():
            return listed(", ", self.chance.sample(keys, self.chance.randint(1, len(keys))))

        all_keys = listed(", ", keys, least=len(keys))
        way = self.chance.random()
        if way < 0.1:
            return node("sets", "ROLLUP ((", all_keys, "), ", self.one(keys), ")")
        if way < 0.15:
            return node("sets", "GROUPING SETS (CUBE (", some(), "), (", all_keys, "))")
        if way < 0.3:
            return node("sets", "ROLLUP (", all_keys, ")")
        if way < 0.5:
            return node("sets", "CUBE (", all_keys, ")")
        if way < 0.65 and len(keys) > 1:
            return node("sets", keys[0], ", ", f"{self.one(['ROLLUP', 'CUBE'])} (",
                        listed(", ", keys[1:], least=len(keys) - 1), ")")
        sets = [node("set", "(", all_keys, ")"), node("set", "()"), node("set", "(", some(), ")")]
        chosen = self.chance.sample(sets, self.chance.randint(1, 3))
        if sets[0] not in chosen:
            chosen.append(sets[0])
        return node("sets", "GROUPING SETS (", listed(", ", chosen), ")")

    # What stands behind FROM

    def sources(self, scope, extra):
        """What stands behind FROM, and its columns."""
        if self.happens(0.06):
            return self.joined_by_name()
        first, columns = self.source(scope, extra)
        count = self.one([1, 1, 1, 2, 2, 3])
        joined = first
        for _ in range(count - 1):
            if self.happens(0.12):
                joined, columns = self.lateral(joined, columns)
                continue
            other, more = self.source(scope, extra)
            kind = self.one([*JOINS, "CROSS JOIN"])
            if kind == "CROSS JOIN":
                joined = node("from", joined, self.one([" CROSS JOIN ", " CROSS JOIN ", ", "]), other)
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

    def joined_by_name(self):
        """Tables joined by columns of one name, which then have no table."""
        names = self.chance.sample(list(ROWS), 2)
        left, right = self.name(), self.name()
        kind = self.one(JOINS)
        types = self.chance.sample(TYPES, 2)
        columns = tuple((NAMES[of], base(of)) for of in types)
        own = tuple((f"{table}.{NAMES[of]}", base(of)) for table in (left, right) for of in TYPES if of not in types)
        if self.happens(0.5):
            using = ", ".join(name for name, _ in columns)
            text = node("from", f"{names[0]} AS {left} {kind} {names[1]} AS {right} USING ({using})")
            return listed("", [text]), columns + own
        # A table of the common columns and one each of its own.
        shared = ", ".join(name for name, _ in columns)
        extra = self.one([of for of in TYPES if of not in types])
        text = node("from", f"(SELECT {shared}, id AS a FROM {names[0]}) AS {left} NATURAL {kind} "
                            f"(SELECT {shared}, {NAMES[extra]} AS b FROM {names[1]}) AS {right}")
        return listed("", [text]), (*columns, ("a", "integer"), ("b", base(extra)))

    def lateral(self, joined, columns):
        """A source that may name the columns of those before it."""
        name = self.name()
        if self.happens(0.3):
            whole = [column for column, of in columns if of == "integer"]
            start = self.one(whole) if whole else "2"
            end = f"least({start}, 1000000) + {self.one(['1', '2', '-1'])}"
            call = f"generate_series(least({start}, 1000000), {end})"
            return (node("from", joined, f" {self.one(['CROSS JOIN', 'CROSS JOIN LATERAL'])} {call} AS {name} (g)"),
                    (*columns, (f"{name}.g", "integer")))
        types = [self.one(ALL) for _ in range(2)]
        scope = Scope(columns, (), 1, False)
        if self.happens(0.4):
            items = [node("item", self.expression(of, scope), f" AS c{place}") for place, of in enumerate(types)]
            inner = node("query", "SELECT ", listed(", ", items, least=2))
        else:
            source, own = self.table()
            rows = Scope(own, columns, 1, False)
            make = self.aggregate if self.happens(0.5) else self.expression
            items = [node("item", make(of, replace(rows, outer=())) if make == self.aggregate else make(of, rows),
                          f" AS c{place}") for place, of in enumerate(types)]
            inner = node("query", "SELECT ", listed(", ", items, least=2), " FROM ", source,
                         optional(" WHERE ", self.equality(own, columns) or self.expression("boolean", rows)))
        found = tuple((f"{name}.c{place}", of) for place, of in enumerate(types))
        if self.happens(0.4):
            return node("from", joined, " LEFT JOIN LATERAL (", inner, f") AS {name} ON true"), columns + found
        return node("from", joined, " CROSS JOIN LATERAL (", inner, f") AS {name}"), columns + found

    def equality(self, left, right):
        pairs = [(one, other) for one, of in left for other, to in right
                 if of == to or of in NUMBERS[:3] and to in NUMBERS[:3] or self.happens(0.01)]
        if not pairs:
            return None
        one, other = self.one(pairs)
        return node("e boolean", f"{one} = {other}")

    def shared(self, left, right):
        """`id`, if both sides have one column of that name, and the left one source."""
        sources = {name.split(".")[0] for name, _ in left}
        both = [{name.split(".")[-1] for name, _ in side} for side in (left, right)]
        return both[0] & both[1] & {"id"} if len(sources) == 1 else set()

    def source(self, scope, extra):
        name = self.name()
        if self.happens(0.06):
            types = [self.one(ALL) for _ in range(2)]
            rows = [node("item", "(", listed(", ", [self.constant(of) for of in types], least=2), ")")
                    for _ in range(self.chance.randint(1, 4))]
            columns = tuple((f"{name}.c{place}", of) for place, of in enumerate(types))
            return node("from", "(VALUES ", listed(", ", rows), f") AS {name} (c0, c1)"), columns
        if self.happens(0.05):
            return self.series(name)
        if extra and self.happens(0.5):
            of, columns = self.one(extra)
            return node("from", f"{of} AS {name}"), tuple((f"{name}.{column}", kind) for column, kind in columns)
        if scope.depth > 1 and self.happens(0.15):
            types = [self.one(ALL) for _ in range(2)]
            inner = self.query(types, Scope(outer=(), depth=scope.depth - 1), name="c")
            columns = tuple((f"{name}.c{place}", type_name) for place, type_name in enumerate(types))
            return node("from", "(", inner, f") AS {name} (c0, c1)"), columns
        return self.table(name)

    def table(self, name=None):
        name = name or self.name()
        table = self.one(list(ROWS))
        if table == "t4" and self.happens(0.6):
            table = "t3"
        columns = ((f"{name}.id", "integer"),
                   *((f"{name}.{NAMES[type_name]}", base(type_name)) for type_name in TYPES))
        return node("from", f"{table} AS {name}"), columns

    def series(self, name):
        """A series of numbers or times, perhaps numbered."""
        of, call = self.one([
            ("integer", "generate_series(1, 4)"), ("integer", "generate_series(5, 1, -2)"),
            ("integer", "generate_series(3, 1)"), ("bigint", "generate_series(1::bigint, 3)"),
            ("timestamp", "generate_series('2024-01-30'::timestamp, '2024-05-01', '1 month')"),
            ("timestamptz", "generate_series('2024-03-30 12:00+00'::timestamptz, '2024-04-02', '12 hours')")])
        if self.happens(0.3):
            return (node("from", f"{call} WITH ORDINALITY AS {name} (g, n)"),
                    ((f"{name}.g", of), (f"{name}.n", "bigint")))
        return node("from", f"{call} AS {name} (g)"), ((f"{name}.g", of),)
