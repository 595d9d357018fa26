"""Particles, and TPC-H's lineitem, over some of the devices: each made once from generated rows, with statistics.

All have the same number of tablets by hash of the key, so that they differ only in where these lie, and no index. For
uneven placements a copy of the particles has one column more, `part`, whose hash decides the tablet: rows get one of
two values, of which one lies on the first of two devices and the other on the second.
"""

COLUMNS = {
    "particles": ["id bigint", *(f"{name} real" for name in ("x", "y", "z", "ux", "uy", "uz", "ke"))],
    "lineitem": ["l_orderkey bigint", "l_partkey bigint", "l_suppkey bigint", "l_linenumber integer",
                 *(f"l_{name} decimal(15, 2)" for name in ("quantity", "extendedprice", "discount", "tax")),
                 "l_returnflag varchar(1)", "l_linestatus varchar(1)",
                 *(f"l_{name}date date" for name in ("ship", "commit", "receipt")),
                 "l_shipinstruct varchar(25)", "l_shipmode varchar(10)", "l_comment varchar(44)"]}
KEYS = {"particles": "id", "lineitem": "l_orderkey"}
# Shared by 1, 2 and 4 devices.
TABLETS_MIN = 4
# Values of `part` that are tried; one bit of a count of rows for each.
PARTS_TRIED = 8


def particles(run, system, devices):
    """The name of a table of all particles over these devices."""
    return table(run, system, "particles", devices)


def lineitem(run, system, devices):
    """The name of a table of TPC-H's line items over these devices."""
    return table(run, system, "lineitem", devices)


def table(run, system, source, devices):
    name = "_".join([source, *devices])
    if not is_there(system, name):
        generate(run, system, source)
        tablets = max(TABLETS_MIN, len(run.place.topology.devices))
        fill(system, name, columns(source), placement(devices, tablets, KEYS[source]), f"SELECT * FROM {source}")
    return name


def generate(run, system, source):
    """The rows, in the server's own device, from where all tables get them."""
    if not is_there(system, source):
        what = ["particles", "--rows", run.options.rows] if source == "particles" else ["tpch", "--scale",
                                                                                        run.options.scale]
        system.run_closed("generate", *what, "--set", "default_device=embedded")


def fill(system, name, columns, placement, rows):
    system.say(f"CREATE TABLE {name} ({columns}) {placement}", f"INSERT INTO {name} {rows}", f"ANALYZE {name}",
               "CHECKPOINT")


def is_there(system, name):
    return system.say(f"SELECT count(*) FROM pg_class WHERE relname = '{name}'")[0][0] > 0


def columns(source):
    """All of them without NULLs, as they are generated."""
    return ", ".join(f"{column} NOT NULL" for column in COLUMNS[source])


def placement(devices, tablets, key):
    return f"WITH (devices = ({', '.join(devices)}), tablets = {tablets}, tablet_by = hash ({key}))"


def uneven(run, system, devices, of_four):
    """The name of a table of all particles of which two devices have so many quarters; checks that they do."""
    name = f"particles_{'_'.join(map(str, of_four))}"
    if is_there(system, name):
        return name
    generate(run, system, "particles")
    values = parts(system, devices)
    fill(system, name, f"{columns('particles')}, part int NOT NULL", placement(devices, 2, "part"),
         f"SELECT *, CASE WHEN id % 4 < {of_four[0]} THEN {values[0]} ELSE {values[1]} END FROM particles")
    found = dict(system.say(f"SELECT device, sum(rows)::bigint FROM cleave.tablets WHERE table_name = '{name}' "
                            "GROUP BY device"))
    shares = [round(4 * found.get(device, 0) / run.options.rows) for device in devices]
    if shares != list(of_four):
        raise AssertionError(f"{name} has {shares} quarters on {devices}: {found}")
    return name


def parts(system, devices):
    """A value of `part` for each of two devices, whose rows lie there."""
    counts = ", ".join(f"({value}, {2 ** value})" for value in range(PARTS_TRIED))
    system.say("DROP TABLE IF EXISTS tried", f"CREATE TABLE tried (part int NOT NULL) {placement(devices, 2, 'part')}",
               f"INSERT INTO tried SELECT part FROM (VALUES {counts}) AS counts (part, copies), "
               f"generate_series(1, {2 ** (PARTS_TRIED - 1)}) AS g (i) WHERE i <= copies", "CHECKPOINT")
    rows = dict(system.say("SELECT device, rows FROM cleave.tablets WHERE table_name = 'tried'"))
    return values_of([rows[device] for device in devices])


def values_of(counts):
    """For each count of rows the least value that is in it, where value v has 2 ** v rows."""
    found = [next((value for value in range(PARTS_TRIED) if count >> value & 1), None) for count in counts]
    if None in found:
        raise AssertionError(f"{PARTS_TRIED} values do not lie on both devices: {counts}")
    return found
