"""What is of servers alone: results one after the other, loads by COPY, and tables that stay on this side."""

import datetime

import cleave
import pytest


@pytest.fixture
def db(server):
    with cleave.connect(server, autocommit=True) as connection:
        yield connection


def test_cursors_take_turns_with_the_server(db):
    query = "SELECT v FROM generate_series(1, 200000) AS s(v)"
    one = db.execute(query)
    assert one.fetchmany(2) == [(1,), (2,)]
    two = db.execute(query)
    # What was left of the first result is in memory now.
    assert len(two.fetchall()) == 200_000 and len(one.fetchall()) == 199_998
    failing = db.execute("SELECT 1 / (v - 150000) FROM generate_series(1, 200000) AS s(v)")
    assert db.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(cleave.DataError):
        failing.fetchall()


def test_frames_are_appended_and_not_read(db):
    pyarrow = pytest.importorskip("pyarrow")
    frame = pyarrow.table({"id": range(30_000), "name": [None, 'a "quoted", text'] * 15_000})
    with pytest.raises(cleave.ProgrammingError, match="append"):
        db.execute("SELECT * FROM frame")
    with pytest.raises(cleave.NotSupportedError, match="append"):
        db.register("frame", frame)
    db.execute("CREATE TABLE t (id bigint PRIMARY KEY, name text, at date DEFAULT '2024-01-01')")
    assert db.append("t", frame) == 30_000
    assert db.execute("SELECT count(*), count(name), min(at)::text FROM t").fetchone() == (30_000, 15_000, "2024-01-01")
    assert db.execute("SELECT name FROM t WHERE id = 1").fetchone() == ('a "quoted", text',)
    for rows in [{"id": [1]}, {"no": [1]}, {"id": ["x"]}]:
        with pytest.raises(cleave.DatabaseError):
            db.append("t", rows)
    assert db.append("t", db.execute("SELECT id + 100000 AS id FROM t")) == 30_000


def test_parameters_name_files_of_the_server(db, tmp_path):
    file = tmp_path / "films.csv"
    file.write_text("id,title,day\n1,one,\n2,two,2024-01-31\n")
    query = "SELECT * FROM read_csv(?) WHERE id > ?"
    assert db.execute(query, [str(file), 1]).fetchall() == [(2, "two", datetime.date(2024, 1, 31))]
    db.execute("CREATE TABLE t (id bigint PRIMARY KEY, title text)")
    db.execute("INSERT INTO t SELECT id, 'x' FROM read_csv(?)", [str(file)])
    update = "UPDATE t SET title = f.title FROM read_csv(?) AS f WHERE f.id = t.id RETURNING f.id, t.title"
    assert sorted(db.execute(update, [str(file)]).fetchall()) == [(1, "one"), (2, "two")]
    delete = "DELETE FROM t WHERE id IN (SELECT id FROM read_csv(?)) AND title = ? RETURNING id"
    assert db.execute(delete, [str(file), "one"]).fetchall() == [(1,)]


def test_a_server_that_is_not_there_says_so(served):
    with pytest.raises(cleave.OperationalError) as failed:
        cleave.connect("postgres://127.0.0.1:1/db?sslmode=disable")
    assert failed.value.sqlstate == "08001"
    for secret in ["secret", "sec%40ret", "%3Fsecret"]:
        with cleave.connect(served.replace("ada@", f"ada:{secret}@")) as connection:
            assert "sec" not in repr(connection) and "@" not in repr(connection)
