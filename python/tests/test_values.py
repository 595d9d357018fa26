"""Values of every type: as parameters, in rows, and as Arrow."""

import datetime as dt
import decimal
import uuid

import cleave
import pytest

UTC = dt.timezone.utc
VALUES = {
    "boolean": [True, False],
    "smallint": [-32768, 32767],
    "integer": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1],
    "numeric(38, 4)": [decimal.Decimal("12345678901234567890.1234"), decimal.Decimal("-0.0001")],
    "real": [0.5, 1.25],
    "double precision": [0.1, 1e300, float("inf")],
    "text": ["", "naïve 'quotes' \\ \n", "𝄞"],
    "bytea": [b"", b"\x00\xff"],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "time": [dt.time(0, 0), dt.time(23, 59, 59, 999999)],
    "timestamp": [dt.datetime(1969, 12, 31, 23, 59, 59, 1), dt.datetime(9999, 12, 31, 23, 59, 59)],
    "timestamptz": [dt.datetime(2024, 2, 29, 12, tzinfo=UTC)],
    "interval": [dt.timedelta(days=-3, seconds=5, microseconds=7), dt.timedelta(0)],
    "uuid": [uuid.UUID(int=0), uuid.UUID("12345678-1234-5678-1234-567812345678")],
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_comes_back_as_it_was(connect, kind):
    connection = connect()
    connection.execute(f"CREATE TABLE t (id int, v {kind})")
    rows = [*enumerate(VALUES[kind]), (99, None)]
    for row in rows:
        connection.execute("INSERT INTO t VALUES (?, ?)", row)
    assert connection.execute("SELECT * FROM t ORDER BY id").fetchall() == rows
    for value in VALUES[kind]:
        [[shown]] = connection.execute("SELECT ?" if kind != "real" else "SELECT CAST(? AS real)", [value]).fetchall()
        assert shown == value and type(shown) is type(value)
    # As one load.
    connection.execute("DELETE FROM t")
    connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    assert connection.execute("SELECT * FROM t ORDER BY id").fetchall() == rows


def test_nan_and_whatever_python_cannot_hold(connect):
    connection = connect()
    [[value]] = connection.execute("SELECT ?", [float("nan")]).fetchall()
    assert value != value
    assert connection.execute("SELECT ?", [2**70]).fetchone() == (2**70,)
    assert connection.execute("SELECT DATE 'infinity', TIMESTAMP '-infinity'").fetchall() == [("infinity", "-infinity")]
    assert connection.execute("SELECT INTERVAL '1 year 2 months 3 days'").fetchone() == (dt.timedelta(365 + 60 + 3),)
    east = dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))
    assert connection.execute("SELECT ?", [east]).fetchone() == (east,)


def test_lists_are_lists(db):
    assert db.execute("SELECT make_array(1, 2, NULL), make_array('a')").fetchall() == [([1, 2, None], ["a"])]


def test_values_out_of_range_are_refused(connect):
    connection = connect(autocommit=True)
    connection.execute("CREATE TABLE t (v smallint)")
    with pytest.raises(cleave.DataError) as failed:
        connection.execute("INSERT INTO t VALUES (?)", [2**20])
    assert failed.value.sqlstate == "22003"
    with pytest.raises(cleave.DataError):
        connection.executemany("INSERT INTO t VALUES (?)", [(1,), (2**20,)])
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_text_with_a_zero_byte_is_refused(connect):
    pytest.importorskip("pyarrow")
    connection = connect(autocommit=True)
    connection.execute("CREATE TABLE t (id int, v text)")
    for write in [
        lambda: connection.execute("INSERT INTO t VALUES (1, ?)", ["a\0b"]),
        lambda: connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, "a\0b")]),
        lambda: connection.append("t", {"id": [1, 2], "v": [None, "a\0b"]}),
    ]:
        with pytest.raises(cleave.DataError) as failed:
            write()
        assert failed.value.sqlstate == "22021"
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_every_type_becomes_arrow(connect):
    pyarrow = pytest.importorskip("pyarrow")
    connection = connect()
    columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(VALUES))
    connection.execute(f"CREATE TABLE t ({columns})")
    connection.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(VALUES))})", [v[0] for v in VALUES.values()])
    connection.execute(f"INSERT INTO t VALUES ({', '.join(['NULL'] * len(VALUES))})")
    table = connection.execute("SELECT * FROM t ORDER BY c1 NULLS LAST").arrow()
    assert table.num_rows == 2 and table.column(2).to_pylist() == [-(2**31), None]
    assert table.schema.field("c4").type == pyarrow.decimal128(38, 4)
    assert table.schema.field("c12").type == pyarrow.timestamp("us", "UTC")
    assert not table.schema.field("c0").metadata
    table.validate(full=True)


def test_quotients_are_decimals(connect, tmp_path):
    pyarrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    parquet = pytest.importorskip("pyarrow.parquet")
    connection = connect(autocommit=True)
    query, mean = "SELECT avg(v) AS mean FROM (VALUES (1), (2), (NULL)) AS s (v)", decimal.Decimal("1.5")
    [row] = connection.execute(query).fetchall()
    assert row == (mean,) and isinstance(row[0], decimal.Decimal)
    table = connection.execute(query).arrow()
    assert pyarrow.types.is_decimal128(table.schema.field("mean").type) and table["mean"].to_pylist() == [mean]
    assert connection.execute(query).pl()["mean"].to_list() == [mean]
    connection.execute("CREATE TABLE t (mean numeric(38, 20))")
    wide = pyarrow.table({"mean": table["mean"].cast(pyarrow.decimal256(76, 38))})
    assert connection.append("t", table) + connection.append("t", wide) == 2
    assert connection.execute("SELECT * FROM t").fetchall() == [(mean,), (mean,)]
    file = tmp_path / "mean.parquet"
    connection.execute(f"COPY ({query}) TO '{file}'")
    assert parquet.read_schema(file).field("mean").type == pyarrow.decimal128(38, 20)
    assert polars.read_parquet(file)["mean"].to_list() == [mean]


def test_a_quotient_of_too_many_digits_is_no_arrow(db):
    pyarrow = pytest.importorskip("pyarrow")
    query = "SELECT 100000000000000000000::numeric(38, 2) / 8 AS q"
    assert db.execute(query).fetchone() == (decimal.Decimal("12500000000000000000"),)
    with pytest.raises(pyarrow.ArrowException, match='column "q"'):
        db.execute(query).arrow()


def test_arrow_is_whole_or_a_reader(connect):
    pyarrow = pytest.importorskip("pyarrow")
    connection = connect()
    query = "SELECT v AS id, v % 7 AS seventh FROM generate_series(1, 100000) AS s(v)"
    cursor = connection.execute(query)
    assert len(cursor.fetchmany(10)) == 10
    assert cursor.arrow().num_rows == 99_990 and cursor.fetchall() == []
    with connection.execute(query).fetch_record_batch() as reader:
        assert sum(batch.num_rows for batch in reader) == 100_000
    assert pyarrow.table(connection.execute(query)).num_rows == 100_000
    with pytest.raises(cleave.DatabaseError):
        connection.execute("SELECT 1 / (v - 90000) FROM generate_series(1, 100000) AS s(v)").arrow()
    reader = connection.execute("SELECT 1 / (v - 90000) FROM generate_series(1, 100000) AS s(v)").fetch_record_batch()
    with pytest.raises(pyarrow.ArrowInvalid, match="division by zero"):
        reader.read_all()


def test_rows_become_data_frames(connect):
    pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    connection = connect()
    query = "SELECT v AS id, 'n' || v::text AS name FROM generate_series(1, 3) AS s(v)"
    frame = connection.execute(query).df()
    assert list(frame.columns) == ["id", "name"] and frame["name"].tolist() == ["n1", "n2", "n3"]
    frame = connection.execute(query).pl()
    assert isinstance(frame, polars.DataFrame) and frame["id"].to_list() == [1, 2, 3]


def test_what_frames_do_not_have(connect):
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    connection = connect()
    frame = connection.execute("SELECT v FROM (VALUES (DATE 'infinity'), (DATE '2024-02-29')) AS s (v)").df()
    assert str(frame["v"].dtype).startswith("datetime64") and frame["v"].min().year == 2024
    cursor = connection.execute("SELECT 1 AS id, INTERVAL '1 day' AS v")
    with pytest.raises(cleave.NotSupportedError, match='column "v" is an interval') as failed:
        cursor.pl()
    assert failed.value.sqlstate == "0A000" and "text" in failed.value.hint
    assert cursor.fetchall() == [(1, dt.timedelta(1))]
