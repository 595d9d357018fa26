"""psycopg 3: every type as text and in binary, COPY, pipelines, blocks, errors."""

import datetime
import decimal
import uuid

import psycopg

ROW = (
    2**40, 1.25, "hé'\\", decimal.Decimal("12.345"), datetime.date(2024, 2, 29),
    datetime.datetime(2024, 1, 2, 3, 4, 5, 600000),
    datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc),
    True, b"\x00\xff", uuid.uuid4(), datetime.timedelta(days=1, seconds=5), 3, datetime.time(1, 2, 3),
)
COLUMNS = ("i int8, f float8, s text, n numeric(12,3), d date, ts timestamp, tz timestamptz, b bool, y bytea, g uuid, "
           "iv interval, sm int2, tm time")

with psycopg.connect() as connection:
    assert connection.pgconn.ssl_in_use
    # Blocks, as psycopg begins by itself.
    assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1000,)
    connection.execute("DELETE FROM orders")
    connection.rollback()
    with connection.transaction():
        connection.execute("UPDATE orders SET total = total + 1 WHERE id = 1")
        try:
            with connection.transaction():
                connection.execute("UPDATE orders SET total = 0 WHERE id = 1")
                raise psycopg.Rollback
        except psycopg.Rollback:
            pass
    assert connection.execute("SELECT count(*), sum(total) FROM orders").fetchone() == (1000, 1251)
    assert connection.execute("UPDATE orders SET total = 1.25 WHERE id = 1 RETURNING id, total").fetchall() == [(1,
        decimal.Decimal("1.25"))]
    connection.commit()
    try:
        connection.execute("CREATE TABLE refused (a int)")
    except psycopg.errors.ActiveSqlTransaction as error:
        assert "transaction block" in str(error), error
    connection.rollback()
    connection.autocommit = True
    connection.execute("DROP TABLE IF EXISTS by_psycopg")
    connection.execute(f"CREATE TABLE by_psycopg ({COLUMNS})")
    for style in ["%s", "%b", "%t"]:
        connection.execute(f"INSERT INTO by_psycopg VALUES ({', '.join([style] * len(ROW))})", ROW)
    for binary in (False, True):
        rows = connection.cursor(binary=binary).execute("SELECT * FROM by_psycopg").fetchall()
        assert rows == [ROW] * 3, rows
    with connection.cursor().copy("COPY by_psycopg (i, s) FROM STDIN") as copy:
        for number in range(1000):
            copy.write_row((number, f"row\t{number}"))
    with connection.cursor().copy("COPY (SELECT i, s FROM by_psycopg WHERE i < 3 ORDER BY i) TO STDOUT") as copy:
        copy.set_types(["int8", "text"])
        assert list(copy.rows()) == [(number, f"row\t{number}") for number in range(3)]
    with connection.cursor().copy("COPY by_psycopg (i, s) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(["int8", "text"])
        for number in range(5000, 5100):
            copy.write_row((number, f"row\n{number}"))
    with connection.cursor().copy("COPY (SELECT i, s FROM by_psycopg WHERE i >= 5098 AND i < 6000 ORDER BY i) TO "
                                  "STDOUT (FORMAT BINARY)") as copy:
        copy.set_types(["int8", "text"])
        assert list(copy.rows()) == [(number, f"row\n{number}") for number in (5098, 5099)]
    # Lists as parameters, as text and in binary.
    for place in ["%s", "%b", "%t"]:
        rows = connection.execute(f"SELECT id FROM customers WHERE id = ANY({place}) ORDER BY id",
                                  ([3, 1, 99999],)).fetchall()
        assert rows == [(1,), (3,)], rows
        rows = connection.execute(f"SELECT id FROM customers WHERE email = ANY({place})",
                                  (["c7@example.org", 'a"b'],)).fetchall()
        assert rows == [(7,)], rows
    # Lists of several types beside each other, each column read as the type that the server describes it with.
    for is_binary in [False, True]:
        beside = connection.cursor(binary=is_binary)
        rows = beside.execute("SELECT * FROM unnest(%s::int[], %s::text[])", ([1, 2], ["a", "b"])).fetchall()
        assert rows == [(1, "a"), (2, "b")], rows
    # Cursors that the server keeps.
    with connection.transaction(), connection.cursor("some rows") as cursor:
        cursor.execute("SELECT id FROM orders WHERE id > %s ORDER BY id", (500,))
        assert cursor.fetchone() == (501,) and cursor.fetchmany(3) == [(502,), (503,), (504,)]
        cursor.itersize = 100
        assert sum(1 for _ in cursor) == 496
    with connection.cursor("held", withhold=True) as cursor:
        assert len(cursor.execute("SELECT id FROM orders").fetchall()) == 1000
    with connection.pipeline():
        cursors = [connection.execute("SELECT email FROM customers WHERE id = %s", (number,)) for number in range(1, 6)]
    assert [cursor.fetchone()[0] for cursor in cursors] == [f"c{number}@example.org" for number in range(1, 6)]
    try:
        connection.execute("INSERT INTO customers VALUES (1, 'x')")
    except psycopg.errors.UniqueViolation as error:
        assert error.diag.constraint_name == "customers_pkey" and "already exists" in error.diag.message_detail
    print("psycopg", psycopg.__version__)
