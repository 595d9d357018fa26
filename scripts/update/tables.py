"""The YCSB table with ten fields, its rows, and the statements over it.

Rows of `wide` have ten fields of 100 letters (1 kB), as YCSB's; those of `narrow` ten integers (40 bytes). Keys are
1 to n, in order. Fields are slices of one random text, so rows do not compress away and both systems get the same.
"""

import random
import string

FIELDS = 10
WIDTHS = {"wide": 100, "narrow": 4}
# Rows of one chunk that is sent.
CHUNK_ROWS = 1000
POOL_CHARACTERS = 1 << 20
POOL = "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=POOL_CHARACTERS))
# What clients count up, of all rows.
SUM = "SELECT sum(field2) FROM usertable"
# An odd number, so that slices begin all over the text.
STRIDE = 769_213


def create(width):
    kind = "text" if width == "wide" else "int"
    fields = ", ".join(f"field{number} {kind} NOT NULL" for number in range(FIELDS))
    return f"CREATE TABLE usertable (ycsb_key bigint PRIMARY KEY, {fields})"


def line(width, key):
    """One row, as COPY reads it."""
    if width == "narrow":
        fields = (str((key * STRIDE + number * 104_729) % 2_000_000_011 // 2) for number in range(FIELDS))
    else:
        starts = (((key * FIELDS + number) * STRIDE) % (POOL_CHARACTERS - 100) for number in range(FIELDS))
        fields = (POOL[start:start + 100] for start in starts)
    return f"{key}\t" + "\t".join(fields) + "\n"


def load(system, width, rows):
    """Makes the table anew, with statistics and nothing left in memory."""
    with system.connect() as session:
        session.execute("DROP TABLE IF EXISTS usertable")
        session.execute(create(width))
        with session.cursor().copy("COPY usertable FROM STDIN") as copy:
            for start in range(1, rows + 1, CHUNK_ROWS):
                copy.write("".join(line(width, key) for key in range(start, min(start + CHUNK_ROWS, rows + 1))))
        # PostgreSQL marks what is visible to all by a vacuum; Cleave has nothing to do.
        session.execute("VACUUM usertable")
        session.execute("ANALYZE usertable")
        session.execute("CHECKPOINT")


def data_bytes(width, rows):
    """Bytes of the fields."""
    return WIDTHS[width] * FIELDS * rows


def new_value(width, number):
    """The value that update `number` gives to field1, as an expression: of the same size as the old one."""
    if width == "narrow":
        return f"field0 % 1000000 + {number}"
    return f"'{number:08d}' || substr(field0, 1, 92)"


def first(rows, share):
    """A condition that holds for a share of the rows, by the key: the rows lie together."""
    return f"ycsb_key <= {max(1, round(rows * share))}"


def spread(share):
    """The same for rows all over the table."""
    return f"ycsb_key % 1000 < {below(share)}"


def below(share):
    """The keys of `spread` are below this, modulo 1000."""
    return max(1, round(1000 * share))


def count(rows, share):
    """The rows for which `spread`, or `first` with all of them, holds."""
    whole, rest = divmod(rows, 1000)
    # Keys begin with 1: of each whole thousand as many as are asked for, and of the rest those after the multiple.
    return rows if share >= 1 else whole * below(share) + max(0, min(rest, below(share) - 1))


def update(width, condition, number=1):
    return f"UPDATE usertable SET field1 = {new_value(width, number)} WHERE {condition}"


def updated(width, condition, number=1):
    """Counts the rows under a condition, and those of them that update `number` has changed."""
    return (f"SELECT count(*), count(CASE WHEN field1 = {new_value(width, number)} THEN 1 END) FROM usertable "
            f"WHERE {condition}")


def check_updated(system, width, condition, wanted_rows, number=1):
    """Fails unless all rows under the condition have the update's value."""
    found = system.say(updated(width, condition, number))[0]
    if tuple(found) != (wanted_rows, wanted_rows):
        raise AssertionError(f"{system.name}: of {wanted_rows} rows that were updated, {found[0]} are there and "
                             f"{found[1]} have the new value")
