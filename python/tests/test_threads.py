"""Threads, Ctrl-C, forks, and objects that go in any order."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref

import cleave
import pytest

# A query that does not end by itself.
ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000) a(v), generate_series(1, 1000000) b(w) WHERE v + w = -1"

# A test that takes longer fails, in whatever it waits for; so does what it leaves, after so many more seconds each.
LIMIT, LIMIT_AFTER = 150, 30
# How long a program may take, and how often in a row a thread must be seen in one place to wait there.
PROGRAM_SECONDS, LOOKS = 120, 12


@pytest.fixture
def limited():
    """Ends what a statement that cannot be stopped would keep waiting for hours."""

    def fail(*_):
        raise TimeoutError("a statement was not stopped")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, LIMIT, LIMIT_AFTER)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


# Before the connections, so that closing them is limited too.
interrupting = pytest.mark.usefixtures("limited")


@contextlib.contextmanager
def ctrl_c(first=lambda: None):
    """Presses Ctrl-C once this thread waits in the body, after `first` has run in another thread, and expects that
    this ends the body."""
    waiting, is_over = threading.get_ident(), threading.Event()

    def press():
        before, looks = None, 0
        # Whoever looks has Python's lock: a thread that computes, however slowly, would not be where it was.
        while looks < LOOKS and not is_over.wait(0.02):
            frame = sys._current_frames()[waiting]
            place = (frame, frame.f_lasti)
            looks = looks + 1 if place == before else 0
            before = place
        first()
        if not is_over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press, daemon=True)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        try:
            yield
        finally:
            is_over.set()
    thread.join()


def python(text, *arguments, **options):
    """Runs a program of its own."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)], capture_output=True,
                          text=True, timeout=PROGRAM_SECONDS, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_threads_share_a_connection_and_have_their_own(connect):
    connection = connect(autocommit=True)
    connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    failures = []

    def insert(first, own):
        try:
            used = own or connection
            for number in range(first, first + 20):
                used.execute("INSERT INTO t VALUES (?)", [number])
                assert used.execute("SELECT id FROM t WHERE id = ?", [number]).fetchall() == [(number,)]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=insert, args=(place * 100, connect(autocommit=True) if place % 2 else None))
               for place in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert failures == []
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (120,)


@interrupting
def test_a_running_statement_leaves_the_lock_to_others_and_stops_by_ctrl_c(connect):
    connection, beside = connect(autocommit=True), connect(autocommit=True)
    seen = []
    # Python's code runs while the statement does, and so does another connection.
    with ctrl_c(first=lambda: seen.append(beside.execute("SELECT 1").fetchone())):
        connection.execute(ENDLESS).fetchall()
    assert seen == [(1,)]
    assert connection.execute("SELECT 2").fetchone() == (2,)


@interrupting
def test_another_thread_cancels_a_statement_and_closes_beside_a_fetch(connect):
    connection, failed = connect(autocommit=True), []

    def begun(work):
        def run():
            try:
                work()
            except cleave.Error as error:
                failed.append(error.sqlstate)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    connection.cancel()
    running = begun(lambda: connection.execute(ENDLESS).fetchall())
    while running.is_alive():
        connection.cancel()
        running.join(0.05)
    assert failed == ["57014"]
    assert connection.execute("SELECT 1").fetchone() == (1,)
    many = connection.execute("SELECT v FROM generate_series(1, 1000000) a(v), generate_series(1, 1000000) b(w)")
    # Rows are true.
    first = threading.Event()
    fetching = begun(lambda: next(many) and (first.set() or all(many)))
    assert first.wait(LIMIT)
    connection.close()
    fetching.join()
    assert len(failed) == 2
    with pytest.raises(cleave.ProgrammingError, match="connection is closed"):
        connection.cancel()


@interrupting
def test_ctrl_c_fails_the_transaction(connect):
    connection = connect()
    connection.execute("CREATE TABLE t (id int)")
    connection.execute("INSERT INTO t VALUES (1)")
    with ctrl_c():
        connection.execute(f"INSERT INTO t {ENDLESS.replace('count(*)', '1')}")
    with pytest.raises(cleave.ProgrammingError) as failed:
        connection.execute("SELECT 1")
    assert failed.value.sqlstate == "25P02"
    connection.rollback()
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_two_connections_share_a_database_that_the_last_one_closes(tmp_path):
    folder = tmp_path / "shared"
    one, two = cleave.connect(folder), cleave.connect(folder)
    one.execute("CREATE TABLE t (id int)")
    one.close()
    two.execute("INSERT INTO t VALUES (1)")
    two.commit()
    two.close()
    # Another process can have it.
    counted = python("""
        import cleave, sys
        print(cleave.connect(sys.argv[1]).execute("SELECT count(*) FROM t").fetchone())
    """, folder)
    assert counted == "(1,)\n"
    with cleave.connect(folder, create=False) as again:
        assert again.execute("SELECT count(*) FROM t").fetchone() == (1,)
    with pytest.raises(cleave.ProgrammingError, match="does not exist"):
        cleave.connect(tmp_path / "missing", create=False)
    with pytest.raises(cleave.ProgrammingError, match="does not exist"):
        cleave.connect(tmp_path / "missing", read_only=True)
    assert not (tmp_path / "missing").exists()


def test_a_process_that_wants_a_folder_is_told_which_one_has_it(tmp_path):
    folder = tmp_path / "had"
    with cleave.connect(folder, autocommit=True) as db:
        db.execute("CREATE TABLE t (id int)")
        told = python("""
            import cleave, sys
            try:
                cleave.connect(sys.argv[1])
            except cleave.OperationalError as error:
                print(error.sqlstate, error)
        """, folder)
    assert told.startswith("55006 ") and f"another process, {os.getpid()} (" in told
    with cleave.connect(folder, read_only=True, autocommit=True) as db:
        for change in [
            lambda: db.execute("SET default_transaction_read_only = off; INSERT INTO t VALUES (1)"),
            lambda: db.executemany("INSERT INTO t VALUES (?)", [(1,)]),
        ]:
            with pytest.raises(cleave.ProgrammingError, match="read_only=True") as refused:
                change()
            assert refused.value.sqlstate == "25006"
        assert db.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_a_connection_beside_a_shell_only_reads(tmp_path):
    binary = os.environ.get("CLEAVE_BINARY")
    if not binary:
        pytest.skip("CLEAVE_BINARY does not name the program")
    folder = tmp_path / "shared"
    script = ["-c", "CREATE TABLE t (id int)", "-c", "INSERT INTO t VALUES (7)", "-f", "/dev/stdin"]
    command = [binary, "sql", "--create", "--db", folder, *script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout.readline() == "CREATE TABLE\n" and shell.stdout.readline() == "INSERT 0 1\n"
        with cleave.connect(folder, autocommit=True) as db:
            assert db.execute("SELECT id FROM t WHERE id < ?", [9]).fetchall() == [(7,)]
            with pytest.raises(cleave.ProgrammingError, match=f"process {shell.pid} ") as refused:
                db.execute("INSERT INTO t VALUES (8)")
            assert refused.value.sqlstate == "25006"
            # It does not wait for this connection.
            shell.stdin.close()
            assert shell.wait(timeout=PROGRAM_SECONDS) == 0
            with pytest.raises(cleave.OperationalError):
                db.execute("SELECT 1")
    with cleave.connect(folder, autocommit=True) as db:
        db.execute("INSERT INTO t VALUES (8)")


def test_objects_go_in_any_order():
    for order in range(3):
        connection = cleave.connect(":memory:")
        cursor = connection.execute("SELECT * FROM generate_series(1, 100000) AS s(v)")
        cursor.fetchone()
        if order == 0:
            del connection
            gc.collect()
            assert len(cursor.fetchall()) == 99_999
        elif order == 1:
            del cursor
            connection.close()
        else:
            stream = cursor.__arrow_c_stream__()
            del cursor, connection
            gc.collect()
            del stream


def test_rows_hold_no_variables_of_their_caller():
    class Held:
        pass

    def queried(connection):
        held = Held()
        cursor = connection.execute("SELECT * FROM generate_series(1, 100000) AS s(v)")
        return cursor.fetchone() and weakref.ref(held)

    with cleave.connect(":memory:") as connection:
        held = queried(connection)
        gc.collect()
        assert held() is None


def test_a_database_in_memory_leaves_no_folder(tmp_path):
    python("""
        import cleave, os
        one, two = cleave.connect(), cleave.connect()
        one.execute("CREATE TABLE t (id int)")
        assert len(os.listdir(os.environ["TMPDIR"])) == 2
        one.close()
        assert len(os.listdir(os.environ["TMPDIR"])) == 1
    """, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


@interrupting
def test_rows_whose_reading_was_stopped_are_given_up(connect):
    connection = connect(autocommit=True)
    cursor = connection.cursor()
    with ctrl_c():
        # Many rows come at once, and the next one never.
        cursor.execute(f"SELECT v FROM generate_series(1, 200000) AS s(v) UNION ALL {ENDLESS}")
        cursor.fetchall()
    # Where it was stopped before the first rows came, there are none.
    with pytest.raises(cleave.DatabaseError, match="given up|no rows"):
        cursor.fetchall()
    assert connection.execute("SELECT 2").fetchone() == (2,)


@interrupting
def test_ctrl_c_stops_a_reader_of_arrow(connect):
    pytest.importorskip("pyarrow")
    connection = connect(autocommit=True)
    with ctrl_c():
        # Many rows come at once, and the next one never.
        many = connection.execute(f"SELECT v FROM generate_series(1, 200000) AS s(v) UNION ALL {ENDLESS}")
        many.fetch_record_batch().read_all()
    assert connection.execute("SELECT 2").fetchone() == (2,)


@interrupting
def test_a_query_whose_rows_are_given_up_holds_up_no_statement(connect):
    many = "SELECT v FROM generate_series(1, 1000000) a(v), generate_series(1, 1000000) b(w)"
    connection = connect(autocommit=True)
    cursor = connection.execute(many)
    assert len(cursor.fetchmany(3)) == 3
    cursor.close()
    assert connection.execute("SELECT 1").fetchone() == (1,)
    # Another statement in its place gives them up too, and so does the end of the cursor.
    cursor = connection.execute(many)
    assert cursor.execute("SELECT 2").fetchone() == (2,)
    connection.execute(many).fetchone()
    gc.collect()
    assert connection.execute("SELECT 3").fetchone() == (3,)
    # No change is undone with them, and no transaction fails.
    connection.execute("CREATE TABLE t (id int)")
    connection.execute("INSERT INTO t SELECT * FROM generate_series(1, 100000) AS s(v) RETURNING id").close()
    with connect() as changing:
        changing.execute("INSERT INTO t VALUES (1)")
        changing.execute("SELECT * FROM generate_series(1, 200000) AS s(v)").close()
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (100_001,)


@interrupting
def test_ctrl_c_between_rows_gives_up_the_others(connect, monkeypatch):
    connection = connect(autocommit=True)
    cursor = connection.execute("SELECT v FROM generate_series(1, 1000000) a(v), generate_series(1, 1000000) b(w)")
    assert next(cursor)

    def pressed(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("cleave._progress.shown", pressed)
        next(cursor)
    # The cursor is still there.
    assert connection.execute("SELECT 2").fetchone() == (2,)
    with pytest.raises(cleave.DatabaseError, match="given up"):
        cursor.fetchone()


@interrupting
@pytest.mark.parametrize("last", ["begin", "commit"])
def test_ctrl_c_leaves_no_transaction_of_many_rows_open(connect, monkeypatch, last):
    connection = connect(autocommit=True)
    connection.execute("CREATE TABLE t (id int)")
    statement = getattr(cleave.Connection, last)

    def pressed(self):
        # As late as it can come in the one, and as early in the other.
        if last == "begin":
            statement(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(cleave.Connection, last, pressed)
        connection.executemany("INSERT INTO t VALUES (? + 1)", [(1,), (2,)])
    assert not connection.in_transaction
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)


@interrupting
def test_a_statement_that_is_stopped_while_it_waits_for_other_rows_holds_up_no_other(server):
    connection = cleave.connect(server, autocommit=True)
    cursor = connection.execute("SELECT v FROM generate_series(1, 1000000) a(v), generate_series(1, 1000000) b(w)")
    assert len(cursor.fetchmany(3)) == 3
    with ctrl_c():
        # The server gives one result at a time: what is left of the cursor's is read first.
        connection.execute("SELECT 1")
    assert connection.execute("SELECT 2").fetchone() == (2,)
    cursor.close()
    connection.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_is_refused_and_ends():
    said = python("""
        import cleave, os, sys
        db = cleave.connect()
        child = os.fork()
        if child == 0:
            for use in [lambda: db.execute("SELECT 1"), cleave.connect]:
                try:
                    use()
                except cleave.InterfaceError as error:
                    assert "forked" in str(error)
                else:
                    os._exit(1)
            del db
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(db.execute("SELECT 1").fetchone())
    """)
    assert said == "(1,)\n"
