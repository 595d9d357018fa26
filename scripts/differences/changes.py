"""Random transactions that change the tables of `tables`: a source of chance in, lists of statements as trees out.

What a statement leaves never depends on the order of rows: an UPDATE finds at most one row of another table for each of
its own, and rows that an INSERT takes from a query have keys of their own.
"""

from dataclasses import dataclass

from .expressions import Scope
from .grammar import Grammar, base
from .tables import NAMES, TYPES
from .trees import listed, node, optional

CHANGED = ["t1", "t2", "t3", "t4", "t4"]
# A child of t2, whose rows go with it, and one of t3, whose rows stay.
CHILDREN = [
    "CREATE TABLE c2 (id integer NOT NULL PRIMARY KEY, p integer REFERENCES t2 ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE c3 (id integer NOT NULL PRIMARY KEY, p integer REFERENCES t3 ON DELETE SET NULL)",
    "INSERT INTO c2 SELECT i, i % 7 FROM generate_series(0, 29) AS g (i)",
    "INSERT INTO c3 SELECT i, i % 9 FROM generate_series(0, 19) AS g (i)",
    "CREATE UNIQUE INDEX t3_unique ON t3 (id, b)",
    "ALTER TABLE t4 ADD CONSTRAINT t4_check CHECK (id < 6000)",
]
ALL_TABLES = ["t0", "t1", "t2", "t3", "t4", "c2", "c3"]
LEVELS = ["", "", " ISOLATION LEVEL REPEATABLE READ", " ISOLATION LEVEL SERIALIZABLE"]


def columns_of(name):
    """The columns of one of the tables under this name, with their types."""
    return ((f"{name}.id", "integer"), *((f"{name}.{NAMES[of]}", base(of)) for of in TYPES))


@dataclass(frozen=True)
class Transaction:
    """Statements in order. Those that begin and end a block are part of it."""

    statements: tuple

    def without(self, place):
        return Transaction(self.statements[:place] + self.statements[place + 1:])

    def with_other(self, place, statement):
        return Transaction(self.statements[:place] + (statement,) + self.statements[place + 1:])


class Changes(Grammar):
    def transaction(self):
        if self.happens(0.4):
            return Transaction((self.change(),))
        statements = [node("block", f"BEGIN{self.one(LEVELS)}")]
        for _ in range(self.chance.randint(1, 4)):
            if self.happens(0.2):
                statements += [node("block", "SAVEPOINT s"), self.change(),
                               node("block", self.one(["ROLLBACK TO s", "ROLLBACK TO s", "RELEASE s"]))]
            elif self.happens(0.2):
                name = self.name()
                statements.append(node("query", f"SELECT {name}.id, {name}.i, {name}.x FROM {self.one(CHANGED)} AS "
                                       f"{name} WHERE ", self.condition_of(columns_of(name))))
            else:
                statements.append(self.change())
        return Transaction((*statements, node("block", self.one(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))))

    def change(self):
        self.number = 0
        ways = [self.update, self.update, self.update_from, self.update_from, self.delete, self.delete_using,
                self.insert, self.insert, self.upsert, self.within_with, self.locking, self.of_keys]
        return self.one(ways)()

    def scope(self, columns, depth=None):
        return Scope(columns=columns, depth=self.one([0, 1, 1, 1, 2]) if depth is None else depth,
                     may_query=self.happens(0.3))

    def condition_of(self, columns):
        """Often one that some rows meet."""
        if self.happens(0.5):
            name = columns[0][0]
            return node("e boolean", self.one([f"{name} % 3 = {self.chance.randint(0, 2)}",
                                               f"{name} < {self.one([1, 5, 100])}", f"{name} > {self.one([3, 150])}",
                                               f"{name} = {self.chance.randint(0, 12)}",
                                               f"{name} IN (1, 5, 6, 200, 1003)"]))
        return self.expression("boolean", self.scope(columns))

    def assignments(self, name, columns):
        chosen = self.chance.sample(TYPES, self.chance.randint(1, 3))
        items = [node("assignment", f"{NAMES[of]} = ", self.assigned(of, columns)) for of in chosen]
        if self.happens(0.06):
            items.append(node("assignment", f"id = {name}.id + {self.one([1000, 2000, 1])}"))
        return listed(", ", items)

    def assigned(self, of, columns):
        if self.happens(0.05):
            return node("e default", "DEFAULT")
        return self.expression(base(of), self.scope(columns))

    def returning(self, columns):
        if self.happens(0.6):
            return ""
        types = [self.one(TYPES) for _ in range(self.chance.randint(1, 2))]
        items = [node("item", self.expression(base(of), self.scope(columns, 1)), f" AS r{place}")
                 for place, of in enumerate(types)]
        return optional(" RETURNING ", columns[0][0], ", ", listed(", ", items))

    def update(self):
        table, name = self.one(CHANGED), self.name()
        columns = columns_of(name)
        return node("change", f"UPDATE {table} AS {name} SET ", self.assignments(name, columns),
                    optional(" WHERE ", self.condition_of(columns)) if self.happens(0.8) else "",
                    self.returning(columns))

    def update_from(self):
        """Each row finds at most one other row, by its key."""
        table, name = self.one(CHANGED), self.name()
        sources, own = [], columns_of(name)
        columns = own
        for _ in range(self.one([1, 1, 2])):
            other = self.name()
            sources.append((other, self.one(CHANGED)))
            columns = columns + columns_of(other)
        texts = ", ".join(f"{of} AS {other}" for other, of in sources)
        keys = " AND ".join(f"{name}.id = {other}.id" for other, _ in sources)
        return node("change", f"UPDATE {table} AS {name} SET ", self.assignments(name, columns), f" FROM {texts} "
                    f"WHERE {keys}", optional(" AND ", self.condition_of(columns)) if self.happens(0.6) else "",
                    self.returning(columns))

    def delete(self):
        table, name = self.one(CHANGED), self.name()
        columns = columns_of(name)
        return node("change", f"DELETE FROM {table} AS {name} WHERE ", self.condition_of(columns),
                    self.returning(columns))

    def delete_using(self):
        table, name = self.one(CHANGED), self.name()
        own = columns_of(name)
        source, other = self.sources(Scope(depth=1), ())
        on = self.equality(own, other) or node("e boolean", f"{name}.id < 5")
        return node("change", f"DELETE FROM {table} AS {name} USING ", source, " WHERE ", on,
                    optional(" AND ", self.condition_of(own)) if self.happens(0.7) else "", self.returning(own))

    def rows(self, types):
        """A query of rows with keys of their own, and columns of these types."""
        table, name = self.one(CHANGED), self.name()
        columns, texts = columns_of(name), [f"{table} AS {name}"]
        if self.happens(0.3):
            other = self.name()
            texts.append(f" {self.one(['JOIN', 'LEFT JOIN'])} {self.one(CHANGED)} AS {other} ON {other}.id = {name}.id")
            columns = columns + columns_of(other)
        beyond = self.one([1000, 1000, 2000, 3000, 5000, 0])
        items = [node("item", self.expression(base(of), self.scope(columns))) for of in types]
        return node("query", f"SELECT {name}.id + {beyond}, ", listed(", ", items, least=len(items)),
                    f" FROM {''.join(texts)}",
                    optional(" WHERE ", self.condition_of(columns)) if self.happens(0.7) else "")

    def insert(self):
        table, types = self.one(CHANGED), self.chance.sample(TYPES, self.chance.randint(1, 4))
        names = ", ".join(["id", *(NAMES[of] for of in types)])
        if self.happens(0.3):
            first = self.one([500, 900, 7000, 3])
            rows = [node("row", f"({first + place}, ", listed(", ", [self.constant(base(of)) for of in types],
                                                              least=len(types)), ")")
                    for place in range(self.chance.randint(1, 3))]
            source = node("query", "VALUES ", listed(", ", rows))
        else:
            source = self.rows(types)
        return node("change", f"INSERT INTO {table} ({names}) ", source, self.returning(columns_of(table)))

    def upsert(self):
        table, types = self.one(CHANGED), self.chance.sample(TYPES, self.chance.randint(1, 4))
        names = ", ".join(["id", *(NAMES[of] for of in types)])
        columns = columns_of(table) + columns_of("excluded")
        if self.happens(0.3):
            action = node("action", "DO NOTHING")
        else:
            chosen = self.chance.sample(TYPES, self.chance.randint(1, 2))
            items = [node("assignment", f"{NAMES[of]} = ", self.expression(base(of), self.scope(columns)))
                     for of in chosen]
            action = node("action", "DO UPDATE SET ", listed(", ", items),
                          optional(" WHERE ", self.condition_of(columns)) if self.happens(0.3) else "")
        return node("change", f"INSERT INTO {table} ({names}) ", self.rows(types), " ON CONFLICT (id) ", action,
                    self.returning(columns_of(table)))

    def within_with(self):
        """A change whose rows another statement reads."""
        table, other = self.chance.sample(["t1", "t2", "t3", "t4"], 2)
        name, part = self.name(), self.name()
        columns = columns_of(name)
        change = self.one([
            lambda: node("part", f"DELETE FROM {table} AS {name} WHERE ", self.condition_of(columns)),
            lambda: node("part", f"UPDATE {table} AS {name} SET ", self.assignments(name, columns), " WHERE ",
                         self.condition_of(columns)),
        ])()
        made = node("with", f"WITH {part} AS (", change, f" RETURNING {name}.id, {name}.i, {name}.x) ")
        return node("change", made, self.one([
            f"INSERT INTO {other} (id, i, x) SELECT id + 4000, i, x FROM {part}",
            f"UPDATE {other} SET x = {part}.x FROM {part} WHERE {other}.id = {part}.id",
            f"DELETE FROM {other} USING {part} WHERE {other}.id = {part}.id",
            f"SELECT count(*), min(id), max(x) FROM {part}",
            f"SELECT count(*) FROM {table} AS a JOIN {part} ON a.id = {part}.id",
        ]))

    def locking(self):
        table, name = self.one(CHANGED), self.name()
        columns = columns_of(name)
        return node("change", f"SELECT {name}.id, {name}.x FROM {table} AS {name} WHERE ", self.condition_of(columns),
                    self.one([" FOR UPDATE", " FOR SHARE", " FOR NO KEY UPDATE", " FOR UPDATE SKIP LOCKED"]))

    def of_keys(self):
        """What foreign keys are about."""
        return node("change", self.one([
            f"DELETE FROM t2 WHERE id = {self.chance.randint(0, 8)}",
            f"DELETE FROM t3 WHERE id % 4 = {self.chance.randint(0, 3)}",
            f"UPDATE t2 SET id = id + 100 WHERE id = {self.chance.randint(0, 8)}",
            f"UPDATE t3 SET id = id + 100 WHERE id = {self.chance.randint(8, 12)}",
            f"INSERT INTO c2 SELECT id + 100, id % 8 FROM t4 WHERE id < {self.one([5, 60, 300])}",
            f"INSERT INTO c3 VALUES ({self.chance.randint(20, 40)}, {self.chance.randint(0, 14)})",
            f"UPDATE c2 SET p = (p + 1) % {self.one([6, 7, 8])}",
            "DELETE FROM c2 WHERE p IN (SELECT i FROM t2)",
            "TRUNCATE c3",
            "UPDATE c3 SET p = NULL WHERE p IN (SELECT id FROM t3 WHERE t)",
        ]))
