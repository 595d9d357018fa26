"""Objects whose rows are made by Python's code as they are read: code that uses the connection, and endless streams."""

import threading

import cleave
import pytest

pyarrow = pytest.importorskip("pyarrow")

SCHEMA = pyarrow.schema([("id", pyarrow.int64())])
PATIENCE = 30


def reader(make):
    """A reader of the batches that a generator function makes."""
    return pyarrow.RecordBatchReader.from_batches(SCHEMA, make())


def batch(*ids):
    return pyarrow.record_batch([pyarrow.array(ids, pyarrow.int64())], schema=SCHEMA)


def within_patience(work):
    """What `work` gives or raises; a failure if it hangs."""
    outcome = []

    def run():
        try:
            outcome.append((work(), None))
        except BaseException as error:  # noqa: BLE001
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert outcome, "it hangs"
    [(value, error)] = outcome
    if error is not None:
        raise error
    return value


USES = {
    "execute": lambda db: db.execute("SELECT 1").fetchall(),
    "executemany": lambda db: db.executemany("INSERT INTO t VALUES (?)", [(7,)]),
    "append": lambda db: db.append("t", {"id": [7]}),
    "commit": lambda db: db.commit(),
    "in_transaction": lambda db: db.in_transaction,
    "close": lambda db: db.close(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("run", ["append", "insert"])
def test_a_stream_that_uses_the_connection_that_reads_it_is_refused(connect, use, run):
    db = connect()
    db.execute("CREATE TABLE t (id bigint)")

    def make():
        yield batch(1)
        USES[use](db)
        yield batch(2)

    if run != "append" and db._core.is_server:
        pytest.skip("a server reads no objects")
    works = {
        "append": lambda rows: db.append("t", rows),
        "insert": lambda rows: db.execute("INSERT INTO t SELECT id FROM rows"),
    }
    with pytest.raises(cleave.Error, match="busy with the statement that reads this object"):
        within_patience(lambda: works[run](reader(make)))
    # It goes on.
    db.rollback()
    assert db.execute("SELECT count(*) FROM t").fetchall() == [(0,)]


@pytest.mark.parametrize("use", USES)
def test_a_query_whose_object_uses_the_connection_ends(connect, use):
    db = connect()
    if db._core.is_server:
        pytest.skip("a server reads no objects")
    db.execute("CREATE TABLE t (id bigint)")
    cursor = db.cursor()

    def make():
        yield batch(1)
        USES[use](db)
        yield batch(2)

    db.register("made", reader(make))
    cursor.execute("SELECT id FROM made")

    def work():
        try:
            return cursor.fetchall()
        except cleave.Error:
            # It was closed, or the query was still beginning.
            return None

    assert within_patience(work) in (None, [(1,), (2,)])


def test_a_cursor_is_not_read_while_its_rows_are_made(connect):
    db = connect()
    if db._core.is_server:
        pytest.skip("a server reads no objects")
    cursor = db.cursor()

    def make():
        yield batch(1)
        cursor.fetchall()
        yield batch(2)

    db.register("made", reader(make))
    cursor.execute("SELECT id FROM made")
    with pytest.raises(cleave.Error):
        within_patience(cursor.fetchall)


def test_another_connection_may_make_the_rows(connect):
    db, other = connect(), connect()
    if db._core.is_server:
        pytest.skip("a server reads no objects")

    def make():
        for [number] in other.execute("SELECT v FROM generate_series(1, 3) AS s(v)"):
            yield batch(number)

    db.register("made", reader(make))
    assert within_patience(lambda: db.execute("SELECT sum(id) FROM made").fetchall()) == [(6,)]


def test_a_stream_without_end_is_stopped_by_the_time_of_its_statement(connect):
    db = connect(autocommit=True, statement_timeout="500ms")
    db.execute("CREATE TABLE t (id bigint)")

    def ones():
        while True:
            yield batch(1)

    def nothing():
        while True:
            yield batch()

    works = [
        lambda rows: db.append("t", rows),
        lambda rows: db.execute("SELECT count(*) FROM rows").fetchall(),
        lambda rows: db.execute("SELECT * FROM rows").fetchall(),
        lambda rows: db.execute("SELECT * FROM rows").arrow(),
        lambda rows: db.execute("INSERT INTO t SELECT * FROM rows"),
    ]
    for make in (ones, nothing):
        for work in works[: 1 if db._core.is_server else None]:
            with pytest.raises(cleave.OperationalError) as raised:
                within_patience(lambda work=work, make=make: work(reader(make)))
            assert raised.value.sqlstate == "57014"
    assert db.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
