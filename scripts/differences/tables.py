"""Random small tables: a source of chance in, statements that make and fill them out.

Each table has a column of each type; `id` is unique. One is empty, one has a row, the others a few or some hundred,
so that partitions, pages and hash tables matter. Values repeat, so that joins and groups find something; edges of the
types and NULL are frequent.
"""

TYPES = ["smallint", "integer", "bigint", "real", "double precision", "numeric(12,3)", "boolean", "text",
         "varchar(9)", "date", "timestamp", "interval", "time", "timestamptz"]
NAMES = {"smallint": "s", "integer": "i", "bigint": "b", "real": "r", "double precision": "d", "numeric(12,3)": "n",
         "boolean": "t", "text": "x", "varchar(9)": "v", "date": "y", "timestamp": "m", "interval": "l",
         "time": "h", "timestamptz": "z"}
# Literals of each type, without their quotes and casts.
VALUES = {
    "smallint": ["0", "1", "-1", "2", "7", "32767", "-32768", "100"],
    "integer": ["0", "1", "-1", "2", "3", "10", "2147483647", "-2147483648", "1000"],
    "bigint": ["0", "1", "-1", "5", "4294967296", "9223372036854775807", "-9223372036854775808"],
    "real": ["0", "1", "-1.5", "0.1", "16777216", "1e10", "-0.25"],
    "double precision": ["0", "-0", "1", "-1.5", "0.1", "1e15", "-1e-3", "2.5", "3.5"],
    "numeric(12,3)": ["0", "1", "-1.5", "0.125", "999999999.999", "-0.001", "2.500", "10"],
    "boolean": ["true", "false"],
    "text": ["", "a", "b", "ab", "A", "abc", "1", " ", "%", "a\nb", "a_c", "ä", "2000-02-29", "zz"],
    "varchar(9)": ["", "a", "b", "ab", "Abc", "12", "true"],
    "date": ["2000-02-29", "1999-12-31", "2024-01-01", "1970-01-01", "0001-01-01"],
    "timestamp": ["2000-02-29 12:34:56.789", "1999-12-31 23:59:59", "1970-01-01 00:00:00", "2024-01-01 00:00:00"],
    "interval": ["1 day", "0", "-1 day", "1 mon", "25:00:00", "1 year 2 mons", "00:00:01.5", "-00:00:00.25"],
    "time": ["00:00:00", "12:34:56.789", "23:59:59.999999", "04:05:06", "24:00:00"],
    "timestamptz": ["2000-02-29 12:34:56.789+00", "2024-03-31 01:30:00+00", "1970-01-01 00:00:00+00",
                    "2024-07-01 12:00:00+05:30", "1900-01-01 00:00:00+00"],
}
# What volatile functions count with, and the number that it is at before a statement.
SEQUENCE, SEQUENCE_START = "numbers", 6
ROWS = {"t0": 0, "t1": 1, "t2": 7, "t3": 12, "t4": 300}


def literal(type_name, value):
    """A value as SQL of its type."""
    plain = type_name in ("integer", "boolean") or type_name == "bigint" and len(value) > 10
    if plain and not value.startswith("-2147483648") and not value.startswith("-9"):
        return value if not value.startswith("-") else f"({value})"
    return f"'{value}'::{type_name}"


def statements(chance):
    """What makes and fills the tables."""
    columns = ", ".join(f"{NAMES[name]} {name}" for name in TYPES)
    for table, row_count in ROWS.items():
        yield f"CREATE TABLE {table} (id integer NOT NULL PRIMARY KEY, {columns})"
        rows = [row(chance, number) for number in range(row_count)]
        for start in range(0, row_count, 100):
            yield f"INSERT INTO {table} VALUES {', '.join(rows[start:start + 100])}"
    yield f"CREATE SEQUENCE {SEQUENCE}"
    yield "CREATE INDEX t4_i ON t4 (i)"
    yield "CREATE INDEX t3_x ON t3 (x, b)"
    yield "ANALYZE"


def row(chance, number):
    values = [str(number)]
    for name in TYPES:
        values.append("NULL" if chance.random() < 0.2 else literal(name, chance.choice(VALUES[name])))
    return f"({', '.join(values)})"
