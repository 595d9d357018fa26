"""executemany: one load where the statement is a plain INSERT, one transaction elsewhere."""

import cleave
import pytest


@pytest.fixture
def table(connect):
    connection = connect(autocommit=True)
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, name text, price numeric(8, 2) DEFAULT 1)")
    return connection


def count(connection):
    return connection.execute("SELECT count(*), sum(id) FROM t").fetchone()


def test_many_rows_are_one_load(table):
    rows = [(number, f"n{number}", number / 4) for number in range(20_000)]
    assert table.executemany("INSERT INTO t VALUES (?, ?, ?)", rows).rowcount == 20_000
    assert count(table) == (20_000, sum(range(20_000)))
    assert table.execute("SELECT name, price FROM t WHERE id = 3").fetchone() == ("n3", 0.75)
    more = ([number, None] for number in range(20_000, 20_010))
    assert table.executemany('INSERT INTO t ("id", name) VALUES ($1, $2)', more).rowcount == 10
    assert table.execute("SELECT name, price FROM t WHERE id = 20001").fetchone() == (None, 1)
    assert table.executemany("INSERT INTO t VALUES (?, ?, ?)", []).rowcount == 0


@pytest.mark.parametrize("sql", ["INSERT INTO t (id) VALUES (?)", "INSERT INTO t (id) VALUES (? + 0)"])
def test_all_rows_or_none(table, sql):
    for rows in [[(1,), (2,), (1,)], [(1,), ("x",)], [(1,), (1, 2)]]:
        with pytest.raises(cleave.DatabaseError):
            table.executemany(sql, rows)
        assert count(table) == (0, None) and not table.in_transaction
    assert table.executemany(sql, [(1,), (2,)]).rowcount == 2


def test_other_statements_run_once_a_row(table):
    table.executemany("INSERT INTO t (id, name) VALUES (%(id)s, upper(%(name)s))",
                      [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    assert table.executemany("UPDATE t SET name = name || ? WHERE id = ?", [("x", 1), ("y", 2), ("z", 3)]).rowcount == 2
    assert table.execute("SELECT name FROM t ORDER BY id").fetchall() == [("Ax",), ("By",)]
    kept = table.executemany("INSERT INTO t (id) VALUES (?) ON CONFLICT DO NOTHING", [(1,), (3,)])
    assert kept.rowcount == 1


def test_without_autocommit_the_rows_wait_for_commit(table, connect):
    other = connect()
    other.executemany("INSERT INTO t (id) VALUES (?)", [(1,), (2,)])
    assert count(other) == (2, 3) and count(table) == (0, None)
    other.rollback()
    other.executemany("INSERT INTO t (id) VALUES (?)", [(1,)])
    other.commit()
    assert count(table) == (1, 1)


def test_append_reads_the_name_of_the_table_as_sql_does(table):
    pytest.importorskip("pyarrow")
    table.execute('CREATE TABLE "Odd name" (id int)')
    table.execute('CREATE TABLE "T" (id int)')
    for place, name in enumerate(["t", "T", "public.t", 'public."t"']):
        assert table.append(name, {"id": [place]}) == 1
    for name in ['"T"', "Odd name", '"Odd name"']:
        assert table.append(name, {"id": [7]}) == 1
    assert count(table) == (4, 6)
    assert table.execute('SELECT count(*) FROM "T"').fetchone() == (1,)
    assert table.execute('SELECT count(*) FROM "Odd name"').fetchone() == (2,)
