"""PEP 249: connections, cursors, transactions, parameters and errors, over whatever runs the statements."""

import datetime
import pathlib
import pickle

import cleave
import pytest
from cleave._connection import _SCHEME as SCHEME


@pytest.fixture
def films(connect):
    """A connection without autocommit, and a table of three rows that are committed."""
    connection = connect()
    connection.execute("CREATE TABLE film (id int PRIMARY KEY, title text NOT NULL, year int)")
    connection.executemany("INSERT INTO film VALUES (?, ?, ?)",
                           [(1, "Alien", 1979), (2, "Brazil", 1985), (3, "Cube", None)])
    connection.commit()
    return connection


def test_the_module_says_what_it_is():
    assert (cleave.apilevel, cleave.threadsafety, cleave.paramstyle) == ("2.0", 2, "qmark")
    for name in ["DataError", "OperationalError", "IntegrityError", "InternalError", "ProgrammingError",
                 "NotSupportedError"]:
        assert issubclass(getattr(cleave, name), cleave.DatabaseError)
        assert getattr(cleave.Connection, name) is getattr(cleave, name)
    assert issubclass(cleave.DatabaseError, cleave.Error) and issubclass(cleave.InterfaceError, cleave.Error)


def test_a_mistyped_url_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url in ["sqlite:///x", "cleave:///films?split=host", "postgre://ada:secret@host/db",
                "postgres:/ada:secret@host/db", "postgresql:ada:secret@host/db", "mysql:/ada:secret@host/db",
                "POSTGRES:/ada:secret@host/db", " postgres://ada:secret@host/db",
                "jdbc:postgresql://ada:secret@host/db",
                "x://ada:secret@host/db", pathlib.Path("postgres://ada:secret@host/db")]:
        with pytest.raises(cleave.ProgrammingError, match="path of a folder, or postgres://") as refused:
            cleave.connect(url)
        assert "secret" not in str(refused.value)
    for folder in ["a:b", "c:/films", "./postgres:/films"]:
        assert SCHEME.match(folder) is None
    # The scheme is read without case.
    with pytest.raises(cleave.OperationalError) as failed:
        cleave.connect("POSTGRES://ada:secret@127.0.0.1:1/db?sslmode=disable")
    assert failed.value.sqlstate == "08001" and "secret" not in str(failed.value)
    assert list(tmp_path.iterdir()) == []


def test_rows_are_fetched_one_some_and_all(films):
    cursor = films.cursor()
    assert cursor.execute("SELECT id, title FROM film ORDER BY id") is cursor
    assert [(column[0], column[1]) for column in cursor.description] == [("id", "integer"), ("title", "text")]
    assert cursor.description[0][1] == cleave.NUMBER and cursor.description[1][1] == cleave.STRING
    assert all(len(column) == 7 for column in cursor.description)
    assert cursor.fetchone() == (1, "Alien")
    assert cursor.fetchmany(1) == [(2, "Brazil")]
    assert cursor.fetchall() == [(3, "Cube")]
    assert cursor.fetchone() is None and cursor.fetchmany() == [] and cursor.fetchall() == []
    assert [row for row in cursor.execute("SELECT id FROM film ORDER BY id DESC")] == [(3,), (2,), (1,)]


def test_statements_that_change_rows_count_them(films):
    cursor = films.execute("UPDATE film SET year = 1997 WHERE year IS NULL")
    assert (cursor.rowcount, cursor.description, cursor.statusmessage) == (1, None, "UPDATE 1")
    assert films.execute("DELETE FROM film WHERE id > ?", [1]).rowcount == 2
    assert films.execute("SELECT 1").rowcount == -1
    with pytest.raises(cleave.ProgrammingError, match="no rows"):
        films.execute("DELETE FROM film").fetchall()


def test_changes_begin_a_transaction_and_queries_do_not(films):
    films.execute("SELECT * FROM film").fetchall()
    assert not films.in_transaction
    films.execute("INSERT INTO film VALUES (4, 'Dune', 1984)")
    assert films.in_transaction
    films.rollback()
    assert films.execute("SELECT count(*) FROM film").fetchall() == [(3,)]
    films.execute("DELETE FROM film")
    films.commit()
    films.rollback()
    assert films.execute("SELECT count(*) FROM film").fetchone() == (0,)


def test_all_that_changes_rows_can_be_rolled_back(films):
    films.execute("PREPARE adding AS INSERT INTO film VALUES (4, 'Dune', 1984)")
    for change in [
        lambda: films.explain("INSERT INTO film VALUES (4, 'Dune', 1984)", analyze=True),
        lambda: films.execute("EXPLAIN ANALYZE DELETE FROM film"),
        lambda: films.execute("EXECUTE adding"),
        lambda: films.execute("TRUNCATE film"),
    ]:
        change()
        assert films.in_transaction
        films.rollback()
        assert films.execute("SELECT count(*) FROM film").fetchone() == (3,)
    films.execute("EXPLAIN ANALYZE SELECT * FROM film")
    films.explain("DELETE FROM film")
    assert not films.in_transaction


def test_with_autocommit_each_statement_commits(films, connect):
    other = connect(autocommit=True)
    other.execute("INSERT INTO film VALUES (4, 'Dune', 1984)")
    assert not other.in_transaction
    assert films.execute("SELECT count(*) FROM film").fetchone() == (4,)
    other.begin()
    other.execute("DELETE FROM film")
    assert films.execute("SELECT count(*) FROM film").fetchone() == (4,)
    with pytest.raises(cleave.ProgrammingError, match="transaction is open"):
        other.autocommit = False
    other.rollback()
    other.autocommit = False
    assert other.execute("SELECT count(*) FROM film").fetchone() == (4,)


def test_a_failed_transaction_waits_for_its_rollback(films):
    films.execute("INSERT INTO film VALUES (4, 'Dune', 1984)")
    with pytest.raises(cleave.IntegrityError) as failed:
        films.execute("INSERT INTO film VALUES (4, 'Dune', 1984)")
    assert failed.value.sqlstate == "23505"
    with pytest.raises(cleave.ProgrammingError) as failed:
        films.execute("SELECT 1")
    assert failed.value.sqlstate == "25P02"
    with pytest.raises(cleave.OperationalError, match="rolled back"):
        films.commit()
    assert films.execute("SELECT count(*) FROM film").fetchone() == (3,)


def test_the_first_change_that_fails_leaves_no_transaction(films):
    with pytest.raises(cleave.IntegrityError):
        films.execute("INSERT INTO film VALUES (1, 'Alien', 1979)")
    assert not films.in_transaction


def test_a_connection_commits_or_rolls_back_as_a_context(films, connect):
    with connect() as connection:
        connection.execute("INSERT INTO film VALUES (4, 'Dune', 1984)")
    assert connection.closed
    with pytest.raises(RuntimeError), connect() as connection:
        connection.execute("DELETE FROM film")
        raise RuntimeError
    assert films.execute("SELECT count(*) FROM film").fetchone() == (4,)


def test_what_is_closed_says_so(films):
    cursor = films.execute("SELECT * FROM film")
    cursor.close()
    cursor.close()
    with pytest.raises(cleave.ProgrammingError, match="cursor is closed"):
        cursor.fetchall()
    left = films.execute("SELECT * FROM film")
    films.close()
    films.close()
    for use in [films.cursor, films.commit, films.rollback, lambda: films.execute("SELECT 1"), left.fetchall,
                lambda: films.append("film", {}), lambda: films.explain("SELECT 1")]:
        with pytest.raises(cleave.ProgrammingError, match="connection is closed"):
            use()


def test_parameters_have_three_forms(films):
    for sql, parameters in [("SELECT title FROM film WHERE id = ? AND title <> '?'", (2,)),
                            ("SELECT title FROM film WHERE id = $1", [2]),
                            ("SELECT title FROM film WHERE id = %(id)s AND 5 %% 3 = %(two)s", {"id": 2, "two": 2})]:
        # Again: the statement was prepared by then.
        for _ in range(2):
            assert films.execute(sql, parameters).fetchall() == [("Brazil",)]
    assert films.execute("SELECT count(*) FROM film WHERE id = ANY (?)", [[1, 3, 99]]).fetchall() == [(2,)]
    for sql, parameters in [("SELECT ?, ?", [1]), ("SELECT $1", []), ("SELECT %(a)s", {"b": 1}), ("SELECT ?", "x")]:
        with pytest.raises(cleave.ProgrammingError):
            films.execute(sql, parameters)
    with pytest.raises(cleave.ProgrammingError, match="cannot be a parameter"):
        films.execute("SELECT ?", [object()])
    for sql, parameters in [("SELECT 1", [1, 2]), ("SELECT $1", [1, 2]), ("SELECT '?'", [1])]:
        with pytest.raises(cleave.ProgrammingError, match="were given") as failed:
            films.execute(sql, parameters)
        assert failed.value.sqlstate == "07001"
    assert films.execute("SELECT 1", []).fetchall() == [(1,)]


def test_rows_of_parameters_are_sequences(films):
    insert = "INSERT INTO film (id, title) VALUES (?, ?)"
    for wrong in [{"id": 5, "title": "x"}, "ab", b"ab", {5, 6}]:
        with pytest.raises(cleave.ProgrammingError, match="row 2") as failed:
            films.executemany(insert, [(4, "Dune"), wrong])
        assert failed.value.sqlstate == "07001"
        films.rollback()
    films.executemany(insert, [(4, "Dune"), [5, "Eva"]])
    assert films.execute("SELECT count(*) FROM film").fetchone() == (5,)


def test_values_have_their_own_types_where_nothing_else_tells_one(films):
    day = datetime.date(2024, 1, 2)
    # Within a transaction too, which a refused try would fail.
    films.begin()
    for sql, parameters, expected in [
        ("SELECT sum(?)", [3], 3),
        ("SELECT ? + ?", [1, 2], 3),
        ("SELECT -?", [5], -5),
        ("SELECT abs(?)", [-1], 1),
        ("SELECT CASE WHEN ? THEN ? ELSE ? END", [True, 1, 2], 1),
        ("SELECT 7 WHERE 3 IN (SELECT ?)", [3], 7),
        ("SELECT extract(year FROM ?)::int", [day], 2024),
        ("SELECT ? + interval '1 day'", [day], datetime.datetime(2024, 1, 3)),
        ("SELECT date_trunc('month', ?)", [datetime.datetime(2024, 5, 6)], datetime.datetime(2024, 5, 1)),
        ("SELECT count(*) FROM generate_series(1, ?)", [4], 4),
        ("SELECT count(*) FROM film WHERE year = ?", [1979.0], 1),
    ]:
        [row] = films.execute(sql, parameters).fetchall()
        assert row == (expected,) and type(row[0]) is type(expected), sql
    films.rollback()
    assert films.execute("VALUES (?, ?)", [1, "x"]).fetchall() == [(1, "x")]
    with pytest.raises(cleave.ProgrammingError) as failed:
        films.execute("SELECT * FROM film WHERE title = ?", [5])
    assert failed.value.sqlstate == "42883"


def test_a_statement_prepared_before_a_table_changed_runs_after_it(films):
    films.autocommit = True
    by_id = "SELECT * FROM film WHERE id = ?"
    assert films.execute(by_id, [1]).fetchall() == [(1, "Alien", 1979)]
    films.execute("ALTER TABLE film ADD COLUMN seen boolean")
    assert films.execute(by_id, [1]).fetchall() == [(1, "Alien", 1979, None)]
    films.execute("DISCARD ALL")
    assert films.execute(by_id, [1]).fetchall() == [(1, "Alien", 1979, None)]


def test_errors_have_a_class_a_sqlstate_and_a_hint(films):
    for sql, kind, sqlstate in [
        ("SELEC 1", cleave.ProgrammingError, "42601"),
        ("SELECT tilte FROM film", cleave.ProgrammingError, "42703"),
        ("SELECT 1 / 0", cleave.DataError, "22012"),
        ("INSERT INTO film VALUES (9, NULL, 1)", cleave.IntegrityError, "23502"),
        ("SELECT * FROM nothing", cleave.ProgrammingError, "42P01"),
        ("COPY film TO STDOUT", cleave.NotSupportedError, "0A000"),
        ("COPY film FROM STDIN", cleave.NotSupportedError, "0A000"),
    ]:
        with pytest.raises(kind) as failed:
            films.execute(sql).fetchall()
        assert failed.value.sqlstate == sqlstate
        # The message is that of the database, without the code.
        assert sqlstate not in str(failed.value) and "copy_" not in str(failed.value)
        films.rollback()
    with pytest.raises(cleave.ProgrammingError) as failed:
        films.execute("SELECT tilte FROM film")
    again = pickle.loads(pickle.dumps(failed.value))
    assert (str(again), again.sqlstate) == (str(failed.value), "42703")


def test_several_statements_give_the_rows_of_the_last(films):
    rows = films.execute("SELECT 1; INSERT INTO film VALUES (4, 'Dune', 1984); SELECT count(*) FROM film").fetchall()
    assert rows == [(4,)]
    assert films.execute("").statusmessage == ""


def test_rows_that_fail_do_not_fail_a_later_transaction(films):
    # More than is computed before it is asked for.
    failing = films.execute("SELECT 1 / (v - 150000) FROM generate_series(1, 200000) AS s(v)")
    films.execute("INSERT INTO film VALUES (4, 'Dune', 1984)")
    with pytest.raises(cleave.DataError):
        failing.fetchall()
    films.commit()
    assert films.execute("SELECT count(*) FROM film").fetchone() == (4,)


def test_returned_rows_are_fetched(films):
    rows = films.execute("INSERT INTO film VALUES (?, ?, ?) RETURNING id, year", [5, "Eva", 1950]).fetchall()
    assert rows == [(5, 1950)]


def test_settings_hold_for_a_connection(connect):
    assert connect(split="host").execute("SHOW split").fetchone() == ("host",)
    assert connect().execute("SHOW split").fetchone() != ("host",)
    with pytest.raises(cleave.DatabaseError):
        connect(no_such_setting=1)
