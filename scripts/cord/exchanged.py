"""Experiment `exchange`: joins and groups of rows that have to meet, by way of the host and from device to device.

Two tables of as many rows as there are particles, each divided by its key. They are joined by another column, a
permutation of the numbers of rows, so that every row finds one; and one of them is grouped by a column with a quarter
as many values. A second pair of tables is divided by these columns, so that nothing has to be sent.
"""

from dataclasses import replace

from . import scans, tables, ways

# What is measured: a query over the tables {0} and {1}.
QUERIES = {"join": "SELECT count(*), sum(a.v), max(b.v) FROM {0} a JOIN {1} b ON a.k = b.k",
           "groups": "SELECT count(*), max(n) FROM (SELECT g, count(*) AS n, sum(v) AS s FROM {0} GROUP BY g) AS q"}
# The column by which the tables of the second pair are divided, and the split whose cut is above the join or the
# groups, for each query.
DIVIDED = {"join": ("k", "h1"), "groups": ("g", "g0")}
COLUMNS = "id bigint NOT NULL, k bigint NOT NULL, g bigint NOT NULL, v bigint NOT NULL"
# A prime above any number of rows, by which the others are multiplied to permute them.
PRIME = 2_147_483_647
FACTOR = 48_271


def table(run, system, name, key):
    """The name of a table of these rows that is divided by `key`."""
    name = f"{name}_by_{key}"
    if not tables.is_there(system, name):
        names = run.place.topology.devices
        tablets = max(tables.TABLETS_MIN, len(names))
        rows = run.options.rows
        tables.fill(system, name, COLUMNS, tables.placement(names, tablets, key),
                    f"SELECT i, i * {FACTOR} % {PRIME}, i * {FACTOR} % {PRIME} % {max(1, rows // 4)}, i % 1000 "
                    f"FROM generate_series(1, {rows}) AS s (i)")
    return name


def exchange(run):
    """A join and groups, over tables that are divided by other columns and by these."""
    for name, text in QUERIES.items():
        def measure(way, system, name=name, text=text):
            key = "id"
            if way.divided_by_key:
                key, split = DIVIDED[name]
                way = replace(way, settings=way.settings | {"split": split})
            query = text.format(*(table(run, system, side, key) for side in ("one", "two")))
            with system.connect(way.settings) as session:
                # All ways give the same rows.
                run.agree(name, session.execute(query).fetchall())
            return scans.timed(run, way, system, query)

        run.rounds("exchange", {"query": name}, ways.EXCHANGED, measure)
