"""Data frames and Arrow tables of the caller: read by name, registered, and loaded."""

import ctypes

import cleave
import pytest

pyarrow = pytest.importorskip("pyarrow")


def many(count=100_000):
    return pyarrow.table({"id": range(count), "seventh": [value % 7 for value in range(count)]})


def test_pandas_polars_and_arrow_are_tables(db):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = {"id": [1, 2, 3], "name": ["a", None, "c"]}
    frame, lazy = pandas.DataFrame(columns, index=[7, 8, 9]), polars.DataFrame(columns)
    whole, batch = pyarrow.table(columns), pyarrow.record_batch(columns)
    for name in ["frame", "lazy", "whole", "batch"]:
        assert db.execute(f"SELECT * FROM {name} ORDER BY id").fetchall() == [(1, "a"), (2, None), (3, "c")]
        assert db.execute(f"SELECT name FROM {name} WHERE id > ?", [2]).fetchall() == [("c",)]
        assert db.execute(f"SELECT count(*), count(name) FROM {name}").fetchall() == [(3, 2)]
    assert len([frame, lazy, whole, batch]) == 4


def test_nan_of_pandas_is_null(db):
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    count, nan = 20_000, float("nan")
    values = numpy.arange(count, dtype="float64")
    values[::7] = nan
    frame = pandas.DataFrame({"id": range(count), "v": values, "name": ["x"] * count, "w": values.astype("float32")})
    present = [value for value in range(count) if value % 7]
    assert db.execute("SELECT count(*), count(v), count(w), sum(v) FROM frame").fetchone() == (
        count, len(present), len(present), sum(present))
    few = [value for value in present if value < 5000 and value > 100.5]
    filtered = "SELECT count(*), sum(v), max(w), max(name) FROM frame WHERE id < 5000 AND v > 100.5"
    assert db.execute(filtered).fetchone() == (len(few), sum(few), max(few), "x")
    plan = "\n".join(row[0] for row in db.execute("EXPLAIN " + filtered).fetchall())
    assert "only rows with id < 5000" in plan
    assert db.execute("SELECT count(*) FROM frame WHERE v IS NULL AND id < 70").fetchone() == (10,)
    assert db.execute("SELECT w, name, id, v FROM frame WHERE id BETWEEN 6 AND 8 ORDER BY id").fetchall() == [
        (6.0, "x", 6, 6.0), (None, "x", 7, None), (8.0, "x", 8, 8.0)]
    # The values of a column lie apart: in a block of rows, and in every third row.
    block = numpy.arange(12.0).reshape(4, 3)
    block[1, 1] = nan
    apart, third = pandas.DataFrame(block, columns=["a", "b", "c"]), frame.iloc[::3]
    assert db.execute("SELECT c, b FROM apart ORDER BY c").fetchall() == [(2, 1), (5, None), (8, 7), (11, 10)]
    kept = [value for value in present if value % 3 == 0 and value >= 19_000]
    assert db.execute("SELECT count(v), sum(v) FROM third WHERE v >= 19000").fetchone() == (len(kept), sum(kept))
    # No rows, names that are numbers, None, and what has missing values of its own.
    rowless, numbered = frame.iloc[:0], pandas.DataFrame({0: [1.5, None], 1: ["x", "y"]})
    assert db.execute("SELECT count(*), sum(v), max(name) FROM rowless").fetchone() == (0, None, None)
    assert db.execute('SELECT "0", "1" FROM numbered ORDER BY "1"').fetchall() == [(1.5, "x"), (None, "y")]
    mixed = pandas.DataFrame({
        "nullable": pandas.Series([0.5, None], dtype="Float64"),
        "objects": pandas.Series([0.5, None], dtype=object),
        "v": [nan, -0.0],
    })
    assert db.execute("SELECT * FROM mixed").fetchall() == [(0.5, 0.5, None), (None, None, 0.0)]
    assert db.execute("SELECT count(*) FROM mixed WHERE v = 0 AND nullable IS NULL").fetchone() == (1,)
    assert len([apart, third, rowless, numbered, mixed]) == 5


def test_nan_of_arrow_is_a_number(db):
    table = pyarrow.table({"v": pyarrow.array([1.0, float("nan"), None, -0.0])})
    db.register("given", table)
    assert db.execute("SELECT count(*), count(v) FROM given").fetchone() == (4, 3)
    assert db.execute("SELECT count(*) FROM given WHERE v > 5").fetchone() == (1,)
    assert db.execute("SELECT count(*) FROM given WHERE v >= 0 AND v < 'NaN'::double precision").fetchone() == (2,)


def test_nan_of_pandas_is_null_where_it_is_appended(connect):
    pandas = pytest.importorskip("pandas")
    db = connect(autocommit=True)
    db.execute("CREATE TABLE t (id int, v double precision, w real)")
    frame = pandas.DataFrame({"v": [0.5, float("nan"), 1.5], "id": [1, 2, 3], "w": [None, 1.0, 2.0]})
    assert db.append("t", frame.astype({"w": "float32"})) == 3
    assert db.execute("SELECT * FROM t ORDER BY id").fetchall() == [(1, 0.5, None), (2, None, 1.0), (3, 1.5, 2.0)]


def test_a_frame_joins_a_table_and_itself(db):
    db.execute("CREATE TABLE film (id int PRIMARY KEY, title text)")
    db.execute("INSERT INTO film VALUES (1, 'Alien'), (2, 'Brazil')")
    seen = pyarrow.table({"film": [2, 2, 3]})
    joined = "SELECT title, count(*) FROM film JOIN seen ON film.id = seen.film GROUP BY title"
    assert db.execute(joined).fetchall() == [("Brazil", 2)]
    assert db.execute("SELECT count(*) FROM seen a JOIN seen b USING (film)").fetchone() == (5,)
    # A table of the database goes first.
    film = pyarrow.table({"id": [9]})
    assert db.execute("SELECT count(*) FROM film").fetchone() == (2,) and film.num_rows == 1
    db.execute("CREATE TABLE seen_too AS SELECT * FROM seen")
    assert db.execute("SELECT count(*) FROM seen_too").fetchone() == (3,)


def test_names_are_found_in_the_caller_and_when_registered(db):
    Mixed = pyarrow.table({"v": [1]})
    assert db.execute("SELECT * FROM mixed").fetchall() == db.execute('SELECT * FROM "Mixed"').fetchall() == [(1,)]
    db.register("given", Mixed)
    assert db.execute("SELECT * FROM given").fetchall() == [(1,)]
    db.register("Folded", Mixed)
    assert db.execute("SELECT * FROM Folded").fetchall() == db.execute('SELECT * FROM "Folded"').fetchall() == [(1,)]
    db.unregister("given")
    with pytest.raises(cleave.ProgrammingError) as failed:
        db.execute("SELECT * FROM given")
    assert failed.value.sqlstate == "42P01"
    with pytest.raises(cleave.ProgrammingError, match="not registered"):
        db.unregister("given")
    with pytest.raises(cleave.ProgrammingError, match="no table"):
        db.register("given", 5)


def test_a_frame_changes_between_statements(db):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"v": [1, 2]})
    assert db.execute("SELECT sum(v) FROM frame").fetchone() == (3,)
    frame = polars.DataFrame({"w": ["x"]})
    assert db.execute("SELECT * FROM frame").fetchall() == [("x",)] and frame.height == 1


def test_many_rows_in_one_batch_are_read_by_all_threads(db):
    table = many()
    query = "SELECT seventh, count(*), sum(id) FROM table_ GROUP BY seventh ORDER BY seventh"
    db.register("table_", table)
    expected = [(s, len(range(s, 100_000, 7)), sum(range(s, 100_000, 7))) for s in range(7)]
    assert db.execute(query).fetchall() == expected
    db.register("table_", pyarrow.Table.from_batches(table.to_batches(max_chunksize=999)))
    assert db.execute(query).fetchall() == expected
    assert db.execute("SELECT * FROM table_ LIMIT 3").arrow().num_rows == 3


def test_a_reader_is_read_once(db):
    table = many(10)
    reader = pyarrow.RecordBatchReader.from_batches(table.schema, table.to_batches())
    db.explain("SELECT * FROM reader")
    assert db.execute("SELECT count(*) FROM reader").fetchone() == (10,)
    with pytest.raises(cleave.ProgrammingError, match="gives its rows once"):
        db.execute("SELECT count(*) FROM reader")
    reader = pyarrow.RecordBatchReader.from_batches(table.schema, table.to_batches())
    with pytest.raises(cleave.DatabaseError, match="gives its rows once"):
        db.execute("SELECT count(*) FROM reader a JOIN reader b USING (id)").fetchall()
    # The rows of another cursor are such a reader.
    given = db.execute("SELECT 1 AS one")
    assert db.execute("SELECT one + 1 FROM given").fetchall() == [(2,)] and given.fetchall() == []
    with pytest.raises(cleave.ProgrammingError, match="gives its rows once"):
        db.execute("SELECT * FROM given")
    given.execute("SELECT 2 AS one")
    assert db.execute("SELECT one + 1 FROM given").fetchall() == [(3,)]


def test_every_type_of_arrow_is_read_or_refused(db):
    import decimal

    arrays = {
        "i8": pyarrow.array([-1, None], pyarrow.int8()),
        "u16": pyarrow.array([65535, None], pyarrow.uint16()),
        "u64": pyarrow.array([2**64 - 1, None], pyarrow.uint64()),
        "f16": pyarrow.array([0.5, None], pyarrow.float16()),
        "large": pyarrow.array(["x", None], pyarrow.large_string()),
        "view": pyarrow.array(["x", None], pyarrow.string_view()),
        "dictionary": pyarrow.array(["x", None]).dictionary_encode(),
        "decimal": pyarrow.array([decimal.Decimal("1.50"), None]),
        "seconds": pyarrow.array([1, None], pyarrow.timestamp("s")),
        "zoned": pyarrow.array([1, None], pyarrow.timestamp("ns", "Asia/Tokyo")),
        "duration": pyarrow.array([1, None], pyarrow.duration("ms")),
        "nothing": pyarrow.nulls(2),
        "list": pyarrow.array([[1, None], None]),
    }
    table = pyarrow.table(arrays)
    db.register("typed", table)
    row, nulls = db.execute("SELECT * FROM typed ORDER BY i8 NULLS LAST").fetchall()
    assert row[:7] == (-1, 65535, 2**64 - 1, 0.5, "x", "x", "x")
    assert row[8].year == 1970 and row[10].microseconds == 1000 and row[12] == [1, None]
    assert nulls == (None,) * len(arrays)
    db.register("typed", pyarrow.table({"s": pyarrow.array([{"a": 1}])}))
    with pytest.raises(cleave.DatabaseError, match='column "s" has the type'):
        db.execute("SELECT * FROM typed")


def test_columns_of_polars_are_read_or_refused(db):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"id": [1, 2], "nothing": [None, None]})
    assert db.execute("SELECT id, nothing FROM frame ORDER BY id").fetchall() == [(1, None), (2, None)]
    assert db.execute("SELECT count(nothing) FROM frame WHERE id > 1").fetchone() == (0,) and frame.width == 2
    for kind, values in [("Object", [object()]), ("Int128", [1])]:
        frame = polars.DataFrame({"v": polars.Series(values, dtype=getattr(polars, kind))})
        with pytest.raises(cleave.ProgrammingError, match=f'column "v" has the type {kind} of polars') as failed:
            db.execute("SELECT * FROM frame")
        assert failed.value.sqlstate == "42804"


def test_what_cannot_be_read_says_why(db):
    pandas = pytest.importorskip("pandas")
    mixed = pandas.DataFrame({"v": [1, "x", object()]})
    twice = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    listed, missing = [1, 2], None
    large, half = [pandas.DataFrame({"v": pandas.Series([value], dtype=object)}) for value in (2**70, "\ud800")]
    months = pandas.DataFrame({"v": pandas.period_range("2024-01", periods=2, freq="M")})
    series, chunked = mixed["v"], pyarrow.chunked_array([[1, 2]])
    for name, said in [("mixed", "cannot be read"), ("twice", "several columns named"), ("listed", "is a list"),
                       ("missing", "is a NoneType"), ("large", "too large"), ("half", r"\\ud800"),
                       ("months", "period"), ("series", r"to_frame\(\)"), ("chunked", "no table")]:
        with pytest.raises(cleave.DatabaseError, match=said) as failed:
            db.execute(f"SELECT * FROM {name}").fetchall()
        assert str(failed.value).encode()
    assert [len(mixed), len(twice), len(listed), missing] == [3, 1, 2, None]
    assert [len(large), len(half), len(months), len(series), len(chunked)] == [1, 1, 2, 3, 2]
    # A frame without columns has no rows.
    for empty in [pandas.DataFrame(), pyarrow.table({})]:
        assert db.execute("SELECT count(*) FROM empty").fetchone() == (0,) and len(empty) == 0
    # What WITH names is no variable, and not what another table's error is about.
    assert db.execute("WITH listed AS (SELECT 1 AS v) SELECT * FROM listed").fetchall() == [(1,)]
    with pytest.raises(cleave.ProgrammingError, match='"nothing" does not exist'):
        db.execute("WITH listed AS (SELECT 1 AS v) SELECT * FROM listed, nothing")


class Given:
    """An object that gives whatever it was made of as a stream."""

    def __init__(self, given):
        self.given = given

    def __arrow_c_stream__(self, requested_schema=None):
        return self.given() if callable(self.given) else self.given


def failing_reader(error):
    """A reader that fails in its second batch."""

    def batches():
        yield pyarrow.record_batch({"v": [1]})
        raise error

    return pyarrow.RecordBatchReader.from_batches(pyarrow.schema({"v": pyarrow.int64()}), batches())


def test_streams_that_break_off_are_errors_of_that_statement(db):
    db.execute("CREATE TABLE t (v int)")
    broken = [
        Given(lambda: failing_reader(ValueError("out of tape")).__arrow_c_stream__()),
        Given(5),
        Given(lambda: many(1).schema.__arrow_c_schema__()),
        Given(many(1).__arrow_c_stream__()),
    ]
    # The last one is read before.
    pyarrow.table(broken[-1])
    for object_ in broken:
        with pytest.raises(cleave.DatabaseError):
            db.register("broken", object_)
            db.execute("SELECT count(*) FROM broken").fetchall()
        with pytest.raises(cleave.DatabaseError):
            db.append("t", object_)
    assert db.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_lengths_and_offsets_that_are_wrong_are_refused(db):
    # Children of different lengths, offsets beyond the text, and text that is not UTF-8.
    offsets = pyarrow.array([0, 2, 1], pyarrow.int32()).buffers()[1]
    text = pyarrow.py_buffer(b"ab")
    descending = pyarrow.Array.from_buffers(pyarrow.string(), 2, [None, offsets, text])
    no_text = pyarrow.Array.from_buffers(
        pyarrow.string(), 1, [None, pyarrow.array([0, 2], pyarrow.int32()).buffers()[1], pyarrow.py_buffer(b"\xff\xfe")]
    )
    for array in [descending, no_text]:
        db.register("wrong", Given(lambda: pyarrow.table({"v": array}).__arrow_c_stream__()))
        with pytest.raises(cleave.DatabaseError):
            db.execute("SELECT * FROM wrong").fetchall()


class Array(ctypes.Structure):
    """The struct ArrowArray."""

    _fields_ = [(name, ctypes.c_int64) for name in ["length", "null_count", "offset", "n_buffers", "n_children"]] + [
        (name, ctypes.c_void_p) for name in ["buffers", "children", "dictionary", "release", "private_data"]]


def lying_stream(table, lies, kept):
    """A stream of a table, whose first column says `lies` of itself. `kept` holds what must live as long."""
    get_next_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = table.__arrow_c_stream__()
    # The second pointer of ArrowArrayStream.
    place = ctypes.c_void_p.from_address(pointer_of(capsule, b"arrow_array_stream") + ctypes.sizeof(ctypes.c_void_p))
    told = get_next_type(place.value)

    def get_next(stream, out):
        code = told(stream, out)
        array = Array.from_address(out)
        if code == 0 and array.release:
            column = Array.from_address(ctypes.c_void_p.from_address(array.children).value)
            for name, value in lies.items():
                setattr(column, name, value)
        return code

    lie = get_next_type(get_next)
    kept += [lie, told]
    place.value = ctypes.cast(lie, ctypes.c_void_p).value
    return capsule


@pytest.mark.parametrize("lies", [{"length": -1}, {"length": 1}, {"offset": -1}, {"offset": 2**62}, {"n_buffers": -1},
                                  {"n_buffers": 1}])
@pytest.mark.parametrize("kind", ["int64", "string", "string_view"])
def test_counts_that_lie_are_refused(db, lies, kind):
    kept = []
    values = [1, 2, 3] if kind == "int64" else ["a", "b", "c"]
    table = pyarrow.table({"v": pyarrow.array(values, getattr(pyarrow, kind)())})
    db.register("lying", Given(lambda: lying_stream(table, lies, kept)))
    with pytest.raises(cleave.DatabaseError):
        db.execute("SELECT * FROM lying").fetchall()
    assert db.execute("SELECT 1").fetchone() == (1,)


def test_rows_of_many_kinds_are_appended(db):
    pandas = pytest.importorskip("pandas")
    db.execute("CREATE TABLE t (id bigint PRIMARY KEY, name text DEFAULT 'none', at timestamp)")
    assert db.append("t", pandas.DataFrame({"id": [1, 2], "name": ["a", "b"]})) == 2
    assert db.append("t", {"name": ["c"], "id": [3]}) == 1
    assert db.append("t", [{"id": 4}, {"id": 5}]) == 2
    table = many(50_000)
    table = pyarrow.table({"id": pyarrow.compute.add(table["id"], 100)})
    assert db.append("t", table) == 50_000
    assert db.append("t", db.execute("SELECT id + 1000000 AS id FROM t")) == 50_005
    assert db.execute("SELECT count(*), count(DISTINCT id), min(name) FROM t").fetchone() == (100_010, 100_010, "a")
    for rows, sqlstate in [({"id": [1]}, "23505"), ({"no": [1]}, "42703"), ({"id": ["x"]}, "22P02"), (5, "42804")]:
        with pytest.raises(cleave.DatabaseError) as failed:
            db.append("t", rows)
        assert failed.value.sqlstate == sqlstate
    with pytest.raises(cleave.ProgrammingError):
        db.append("nothing", {"id": [1]})
    assert db.execute("SELECT count(*) FROM t").fetchone() == (100_010,)


def test_appended_rows_belong_to_the_transaction(db):
    db.execute("CREATE TABLE t (id int)")
    db.begin()
    db.append("t", {"id": [1, 2]})
    assert db.execute("SELECT count(*) FROM t").fetchone() == (2,)
    db.rollback()
    assert db.execute("SELECT count(*) FROM t").fetchone() == (0,)
