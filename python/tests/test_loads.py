"""executemany: one load where the statement is a plain INSERT, one transaction elsewhere."""

import cleave
import pytest


@pytest.fixture
def table(connect):
    connection = connect(autocommit=True)
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, name text, price numeric(8, 2) DEFAULT 1)")
    return connection


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


def test_rows_go_to_the_table_as_the_transaction_sees_it(connect):
    db = connect()
    db.execute("CREATE TABLE t (id int, v int)")
    db.commit()
    for changes, expected in [
        (["DROP TABLE t", "CREATE TABLE t (id text, v text)"], ("007", "1.5")),
        (["ALTER TABLE t ALTER v TYPE text", "ALTER TABLE t ALTER id TYPE text"], ("007", "1.5")),
        (["ALTER TABLE t RENAME TO old", "CREATE TABLE t (v text, id text)"], ("1.5", "007")),
        (["ALTER TABLE t DROP v", "ALTER TABLE t ADD v text", "ALTER TABLE t ALTER id TYPE text"], ("007", "1.5")),
        (["CREATE TEMPORARY TABLE t (id text, v text)"], ("007", "1.5")),
    ]:
        db.begin()
        for change in changes:
            db.execute(change)
        db.executemany("INSERT INTO t (id, v) VALUES (?, ?)", [("007", "1.5"), ("008", "2")])
        assert db.execute("SELECT * FROM t ORDER BY id").fetchone() == expected
        db.rollback()


def test_a_load_that_fails_leaves_no_transaction_open(connect):
    db = connect()
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    db.commit()
    for sql in ["INSERT INTO t VALUES (?)", "INSERT INTO t VALUES (? + 0)", "INSERT INTO t (id) VALUES (%(id)s)"]:
        for rows in [[(1,), (1,)], [(1,), ("x",)], [(1,), (1, 2)]]:
            if "%" in sql:
                rows = [{"id": row[0]} for row in rows[:2]] if len(rows[1]) == 1 else [{"id": 1}, {}]
            with pytest.raises(cleave.DatabaseError):
                db.executemany(sql, rows)
            assert not db.in_transaction, (sql, rows)
    # One that was open before is the caller's.
    db.execute("INSERT INTO t VALUES (5)")
    with pytest.raises(cleave.DatabaseError):
        db.executemany("INSERT INTO t VALUES (?)", [(1,), (1,)])
    assert db.in_transaction
    db.rollback()


def test_all_keys_of_dictionaries_are_columns(connect):
    pytest.importorskip("pyarrow")
    db = connect(autocommit=True)
    db.execute("CREATE TABLE t (id int, name text DEFAULT 'd', price numeric)")
    assert db.append("t", [{"id": 1}, {"id": 2, "name": "x"}, {"price": 2.5, "id": 3}]) == 3
    assert db.execute("SELECT * FROM t ORDER BY id").fetchall() == [(1, None, None), (2, "x", None), (3, None, 2.5)]
    assert db.append("t", [{"id": 4}]) == 1
    assert db.execute("SELECT name FROM t WHERE id = 4").fetchone() == ("d",)
    for rows, state in [
        ([{"id": 1}, {"id": 2, "nam": "x"}], "42703"),
        ([{"id": 1}, {5: 2}], "42703"),
        ([{}], "42601"),
        ([{"id": 1}, {"id": "x"}], "42804"),
        ({"id": [1, 2], "name": ["x"]}, "42804"),
    ]:
        with pytest.raises(cleave.ProgrammingError) as raised:
            db.append("t", rows)
        assert raised.value.sqlstate == state, rows
    assert count(db) == (4, 10)


def count(connection):
    return connection.execute("SELECT count(*), sum(id) FROM t").fetchone()
