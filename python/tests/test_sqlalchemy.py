"""SQLAlchemy's dialect, and pandas over it."""

import datetime as dt
import decimal

import cleave
import pytest

sa = pytest.importorskip("sqlalchemy")
pytest.importorskip("sqlalchemy.orm")

from cleave.sqlalchemy import CleaveDialect  # noqa: E402
from sqlalchemy.dialects import registry  # noqa: E402

# As the entry point does where the package is installed.
registry.register("cleave", "cleave.sqlalchemy", "CleaveDialect")


@pytest.fixture
def engine():
    made = sa.create_engine("cleave://")
    yield made
    made.dispose()


def films(engine):
    metadata = sa.MetaData()
    table = sa.Table(
        "film",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("title", sa.String(40), nullable=False),
        sa.Column("price", sa.Numeric(8, 2)),
        sa.Column("shown", sa.DateTime),
    )
    metadata.create_all(engine)
    return table


def test_tables_are_made_filled_read_and_reflected(engine):
    table = films(engine)
    rows = [{"id": place, "title": f"t{place}", "price": decimal.Decimal(place) / 4, "shown": dt.datetime(2024, 1, 1)}
            for place in range(100)]
    with engine.begin() as connection:
        assert connection.execute(sa.insert(table), rows).rowcount == 100
    with engine.connect() as connection:
        found = connection.execute(sa.select(table).where(table.c.id.in_([3, 5])).order_by(table.c.id)).all()
        assert found == [(3, "t3", decimal.Decimal("0.75"), dt.datetime(2024, 1, 1)),
                         (5, "t5", decimal.Decimal("1.25"), dt.datetime(2024, 1, 1))]
        assert connection.scalar(sa.select(sa.func.count()).select_from(table)) == 100
        changed = connection.execute(sa.update(table).where(table.c.id < 2).values(title="x").returning(table.c.id))
        assert sorted(changed.scalars()) == [0, 1]
        connection.rollback()
        assert connection.scalar(sa.select(table.c.title).where(table.c.id == 1)) == "t1"
    inspector = sa.inspect(engine)
    assert inspector.get_table_names() == ["film"]
    assert inspector.get_pk_constraint("film")["constrained_columns"] == ["id"]
    assert [str(column["type"]) for column in inspector.get_columns("film")] == [
        "INTEGER", "VARCHAR(40)", "NUMERIC(8, 2)", "TIMESTAMP"]


def test_indexes_and_unique_constraints_are_reflected(engine):
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE s (id int PRIMARY KEY, a int UNIQUE, b text)"))
        connection.execute(sa.text("CREATE INDEX s_b_a ON s (b, a)"))
    table = sa.Table("s", sa.MetaData(), autoload_with=engine)
    assert {index.name: [column.name for column in index.columns] for index in table.indexes}["s_b_a"] == ["b", "a"]
    [unique] = sa.inspect(engine).get_unique_constraints("s")
    assert unique["column_names"] == ["a"]


def test_a_server_takes_rows_and_is_reflected(server):
    engine = sa.create_engine(server.replace("postgres://", "cleave://"))
    table = films(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(table).values(id=1, title="Alien", price=decimal.Decimal("0.75")))
        connection.execute(sa.insert(table), [{"id": 2, "title": "Brazil"}, {"id": 3, "title": "Cube"}])
        assert connection.scalar(sa.select(sa.func.sum(sa.literal(3)))) == 3
    reflected = sa.Table("film", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        found = connection.execute(sa.select(reflected.c.title).where(reflected.c.price < 1)).scalars().all()
        assert found == ["Alien"] and [column.name for column in reflected.primary_key] == ["id"]
    engine.dispose()


def test_what_fails_is_undone_with_its_definitions(engine):
    with pytest.raises(sa.exc.IntegrityError), engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (id int PRIMARY KEY)"))
        connection.execute(sa.text("INSERT INTO t VALUES (:id), (:id)"), {"id": 1})
    assert not sa.inspect(engine).has_table("t")
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    with alone.connect() as connection:
        connection.execute(sa.text("CREATE TABLE t (id int)"))
        connection.execute(sa.text("VACUUM t"))
    with engine.connect().execution_options(isolation_level="SERIALIZABLE") as connection:
        assert connection.scalar(sa.text("SHOW transaction_isolation")) == "serializable"


def test_a_folder_and_its_settings_are_in_the_url(tmp_path):
    engine = sa.create_engine(f"cleave:///{tmp_path / 'films'}?split=host")
    films(engine)
    with engine.connect() as one, engine.connect() as two:
        assert one.scalar(sa.text("SHOW split")) == "host"
        assert two.scalar(sa.text("SELECT count(*) FROM film")) == 0
    engine.dispose()
    assert (tmp_path / "films").is_dir()


def test_options_in_the_url_are_read_or_refused(tmp_path):
    arguments = CleaveDialect().create_connect_args
    url = f"cleave:///{tmp_path}?autocommit=false&read_only=on&create=0&buffer_pool_bytes=1000000&split=host"
    [target], options = arguments(sa.make_url(url))
    assert target == str(tmp_path)
    assert options == {"autocommit": False, "read_only": True, "create": False, "buffer_pool_bytes": 1_000_000,
                       "split": "host"}
    server, options = arguments(sa.make_url("cleave://ada@host/db?autocommit=true&sslmode=disable"))
    assert (server, options) == (["postgres://ada@host/db?sslmode=disable"], {"autocommit": True})
    for wrong in ["autocommit=no", "create=maybe", "buffer_pool_bytes=1GB"]:
        with pytest.raises(cleave.ProgrammingError, match=wrong.partition("=")[0]):
            arguments(sa.make_url(f"cleave:///films?{wrong}"))
    with pytest.raises(cleave.ProgrammingError, match="autocommit"):
        cleave.connect(autocommit="false")


def test_pandas_writes_and_reads_tables(engine):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({
        "id": range(2000),
        "name": [f"n{place}" if place % 3 else None for place in range(2000)],
        "at": pandas.date_range("2024-01-01", periods=2000, freq="h"),
        "share": [place / 8 for place in range(2000)],
    })
    frame.to_sql("frames", engine, index=False)
    again = pandas.read_sql("SELECT * FROM frames ORDER BY id", engine)
    assert again["id"].tolist() == frame["id"].tolist() and again["at"].tolist() == frame["at"].tolist()
    assert again["name"].isna().sum() == 667 and again["share"].sum() == frame["share"].sum()
    some = pandas.read_sql(sa.text("SELECT id FROM frames WHERE share < :most ORDER BY id"), engine, params={"most": 1})
    assert some["id"].tolist() == list(range(8))
    frame.to_sql("frames", engine, index=False, if_exists="replace")
    assert pandas.read_sql_table("frames", engine).shape == (2000, 4)


def test_objects_get_their_own_keys_and_identities_are_reflected(connect):
    url = connect()._target
    engine = sa.create_engine("cleave://" if "://" not in url else url.replace("postgres://", "cleave://ada@", 1))
    metadata = sa.MetaData()
    upward = sa.Identity(start=100, increment=5)
    downward = sa.Identity(always=True, start=-1, increment=-1)
    for name, column in [
        ("serial", sa.Column("id", sa.Integer, primary_key=True)),
        ("upward", sa.Column("id", sa.BigInteger, upward, primary_key=True)),
        ("downward", sa.Column("id", sa.Integer, downward, primary_key=True)),
    ]:
        sa.Table(name, metadata, column, sa.Column("note", sa.String, nullable=False))
    metadata.create_all(engine)
    for table in metadata.tables.values():
        made = sa.orm.registry().map_imperatively(type(table.name, (), {}), table).class_
        with sa.orm.Session(engine) as session:
            objects = []
            for number in range(300):
                one = made()
                one.note = f"n{number * 7919 % 300}"
                objects.append(one)
            session.add_all(objects)
            session.flush()
            given = {one.id: one.note for one in objects}
            assert given == dict(map(tuple, session.execute(sa.select(table.c.id, table.c.note))))
    reflected = sa.MetaData()
    reflected.reflect(engine)
    identity = reflected.tables["upward"].c.id.identity
    assert (identity.always, identity.start, identity.increment) == (False, 100, 5)
    identity = reflected.tables["downward"].c.id.identity
    assert (identity.always, identity.start, identity.increment) == (True, -1, -1)
    assert reflected.tables["serial"].c.id.identity is None
    engine.dispose()
