"""asyncpg: binary values, cursors, COPY, a cancelled statement, a pool."""

import asyncio
import datetime
import decimal
import ssl
import uuid

import asyncpg

ROW = (
    2**40, 1.25, "hé", decimal.Decimal("12.345"), datetime.date(2024, 2, 29),
    datetime.datetime(2024, 1, 2, 3, 4, 5, 600000),
    datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc), True, b"\x00\xff", uuid.uuid4(),
    datetime.timedelta(days=1, seconds=5), 3, datetime.time(1, 2, 3),
)
COLUMNS = ("i int8, f float8, s text, n numeric(12,3), d date, ts timestamp, tz timestamptz, b bool, y bytea, g uuid, "
           "iv interval, sm int2, tm time")
ENDLESS = "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b WHERE a + b = 1"


async def main():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = await asyncpg.connect(ssl=context)
    await connection.execute("DROP TABLE IF EXISTS by_asyncpg")
    await connection.execute(f"CREATE TABLE by_asyncpg ({COLUMNS})")
    places = ", ".join(f"${number}" for number in range(1, len(ROW) + 1))
    await connection.execute(f"INSERT INTO by_asyncpg VALUES ({places})", *ROW)
    assert tuple(await connection.fetchrow("SELECT * FROM by_asyncpg")) == ROW
    async with connection.transaction():
        rows = [row async for row in connection.cursor("SELECT id FROM orders ORDER BY id", prefetch=7)]
    assert len(rows) == 1000
    assert await connection.copy_from_query("SELECT 1, 2", output=lambda data: asyncio.sleep(0)) == "COPY 1"
    rows = [(2**40 + number, 0.5, f"row\t{number}") for number in range(1000)]
    await connection.copy_records_to_table("by_asyncpg", records=rows, columns=["i", "f", "s"])
    assert await connection.fetchval("SELECT count(*) FROM by_asyncpg WHERE f = 0.5") == 1000
    found = await connection.fetch("SELECT id FROM orders WHERE id = ANY($1) ORDER BY id", [3, 5, 7])
    assert [row["id"] for row in found] == [3, 5, 7]
    found = await connection.fetch("SELECT id FROM customers WHERE email = ANY($1)", ["c7@example.org"])
    assert [row["id"] for row in found] == [7]
    try:
        await asyncio.wait_for(connection.fetch(ENDLESS), 0.5)
    except asyncio.TimeoutError:
        pass
    assert await connection.fetchval("SELECT 5") == 5
    await connection.close()
    pool = await asyncpg.create_pool(ssl=context, min_size=2, max_size=4)
    for _ in range(2):
        async with pool.acquire() as connection:
            assert await connection.fetchval("SELECT count(*) FROM orders") == 1000
    await pool.close()
    print("asyncpg", asyncpg.__version__)


asyncio.run(main())
