"""A process of its own for each measurement: imports and opens, then runs a statement for the first time, and again.

    process.py TASK '{"system": …}'      prints the figures as JSON

It runs under the Python that has the wheel and its peers, and imports nothing else of the scripts. Both systems get the
same number of threads. Neither imports nor opening count: `import` and `wheel` measure them.
"""

import datetime
import decimal
import importlib
import json
import os
import resource
import statistics
import sys
import time

# Runs after the first one.
AGAIN = 3
SEED = 7
CHUNK_ROWS = 1 << 20


def main():
    tasks = {"fill": fill, "rows": rows, "frames": frames, "files": files, "parquet": parquet}
    name, arguments = sys.argv[1:]
    print(json.dumps(tasks[name](**json.loads(arguments))))


def measured(run, summary):
    """Seconds of the first run and of those after it, what each has found, and the memory after the first one."""
    times, answers, peak = [], [], None
    for _ in range(1 + AGAIN):
        begin = time.perf_counter()
        found = run()
        times.append(time.perf_counter() - begin)
        peak = peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        answers.append(summary(found))
        # Not while the next run is timed.
        del found
    return {"first_s": times[0], "again_s": statistics.median(times[1:]), "answers": answers, "peak_bytes": peak}


# --- rows: to a client ----------------------------------------------------------------------------

def fill(system, place, sql):
    """Runs statements in a database of this process, or at a server."""
    if system == "Cleave":
        import cleave

        database = cleave.connect(place, autocommit=True)
    else:
        import psycopg

        database = psycopg.connect(place, autocommit=True)
    for statement in sql:
        database.execute(statement)
    database.close()
    return {}


def rows(system, way, place, sql, threads):
    """All rows of a query, as `way` fetches them."""
    if system == "Cleave":
        import cleave

        # Otherwise the first run would.
        importlib.import_module("pyarrow.compute")
        database = cleave.connect(place, threads=threads)
        fetch = {"arrow": lambda: database.execute(sql).arrow(),
                 "fetchall": lambda: database.execute(sql).fetchall()}[way]
    else:
        import psycopg

        database = psycopg.connect(place, autocommit=True)
        is_binary = way == "binary"

        def fetch():
            with database.cursor(binary=is_binary) as cursor:
                return cursor.execute(sql).fetchall()

    return measured(fetch, of_table if way == "arrow" else of_rows)


def of_table(table):
    """What `of_rows` finds, of a table of pyarrow."""
    import pyarrow.compute as compute

    number, amount, note, day = table.columns
    days = compute.min_max(day).as_py()
    return [[table.num_rows, compute.sum(number).as_py(), float(compute.sum(amount).as_py()),
             sum(map(len, note.to_pylist())), str(days["min"]), str(days["max"])]]


def of_rows(found):
    numbers, amounts, notes, days = zip(*found)
    return [[len(found), sum(numbers), float(sum(amounts)), sum(map(len, notes)), str(min(days)), str(max(days))]]


# --- frames: an object of the program --------------------------------------------------------------

def frames(system, kind, count, sql, threads):
    """An aggregate over a data frame or an Arrow table of this program."""
    frame = frame_of(kind, count)
    database = opened(system, threads)

    def run(frame=frame):
        # Either system looks for the name among the variables of this function.
        return database.execute(sql).fetchall()

    return measured(run, values)


def frame_of(kind, count):
    """The same rows in either kind: `k` of 1,000, `a` of a million and `b` are numbers, `s` are 20 texts."""
    import numpy
    import pandas
    import pyarrow

    random = numpy.random.default_rng(SEED)
    texts = numpy.array([f"kind no. {number}" for number in range(20)], dtype=object)
    columns = {"k": random.integers(0, 1000, count, dtype=numpy.int32), "a": random.integers(0, 1_000_000, count),
               "b": random.random(count), "s": texts[random.integers(0, len(texts), count)]}
    if kind == "pandas":
        return pandas.DataFrame(columns)
    # In parts, as readers of files make them.
    return pyarrow.Table.from_batches(pyarrow.table(columns).to_batches(max_chunksize=CHUNK_ROWS))


# --- files ------------------------------------------------------------------------------------------

def files(system, file, sql, threads):
    """An aggregate over a file, of which nothing is in memory when it runs first."""
    database = opened(system, threads)
    with open(file, "rb") as found:
        os.posix_fadvise(found.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return measured(lambda: database.execute(sql).fetchall(), values)


def parquet(schema, table, source, target):
    """Writes a text file's rows, with the types of a schema, as Parquet."""
    import duckdb

    database = duckdb.connect()
    with open(schema) as statements:
        database.execute(statements.read())
    database.execute(f"COPY {table} FROM '{source}' (FORMAT csv, HEADER true)")
    database.execute(f"COPY {table} TO '{target}' (FORMAT parquet)")
    with open(target, "rb") as written:
        os.fsync(written.fileno())
    return {}


def opened(system, threads):
    """An empty database in this process."""
    if system == "Cleave":
        import cleave

        return cleave.connect(":memory:", threads=threads)
    import duckdb

    return duckdb.connect(config={"threads": threads})


def values(found):
    """Rows as JSON has them. Numbers are numbers, of whatever type."""
    return [[plain(value) for value in row] for row in found]


def plain(value):
    if isinstance(value, (int, float, decimal.Decimal)):
        return float(value)
    return str(value) if isinstance(value, datetime.date) else value


if __name__ == "__main__":
    main()
