"""pgAdmin 4: the queries of its tree, from the templates in its package (the argument), rendered for PostgreSQL 15."""

import collections
import re
import sys
import zipfile

import jinja2
import psycopg

# What is asked of each kind of node, by the names of the templates: of the server, the database and a schema,
ASKED = {
    "connect": "check_recovery",
    "servers": "stats",
    "dashboard": "config locks prepared",
    "databases": "nodes properties stats variables get_encodings get_ctypes get_variables",
    "tablespaces": "nodes properties variables",
    "roles": "nodes properties",
    "schemas": "nodes properties count",
    "catalog": "nodes properties",
    "catalog_object": "nodes properties",
    "extensions": "properties count extensions",
    "languages": "properties count functions",
    "casts": "nodes properties count",
    "event_triggers": "nodes properties count",
    "publications": "nodes properties count",
    "collations": "nodes properties count",
    "domains": "node properties count",
    "functions": "node properties count coll_stats get_types variables",
    "procedures": "node properties count",
    "trigger_functions": "node properties count",
    "sequences": "nodes properties count coll_stats",
    "tables": "nodes properties count coll_table_stats get_relations get_access_methods get_tables_for_constraints",
    "columns": "get_types get_collations",
    "indexes": "get_am coll_stats",
    "views": "nodes count",
    "sqlautocomplete": "databases keywords schema",
}
# and of a table.
OF_TABLE = {
    "tables": "nodes properties stats get_columns_for_table",
    "columns": "nodes count depend get_position",
    "indexes": "count stats get_oid_name",
    "index_constraint": "nodes properties stats get_indices",
    "check_constraint": "nodes properties",
    "foreign_key": "nodes properties get_constraints",
    "exclusion_constraint": "nodes properties",
    "partitions": "nodes properties",
    "rules": "nodes properties count",
    "row_security_policies": "nodes properties count",
    "triggers": "nodes count",
    "depends": "dependencies",
}

files = {}
with zipfile.ZipFile(sys.argv[1]) as package:
    for name in package.namelist():
        if found := re.search(r"/templates/(.+\.(sql|macros|macro))$", name):
            files.setdefault(found[1], package.read(name).decode())


def template(kind, name):
    """The newest template of PostgreSQL itself that is not newer than 15."""
    found = {}
    for path in files:
        folder, *rest = path.split("/")
        if folder == kind and rest[-1] == name + ".sql" and "ppas" not in rest:
            version = re.search(r"/(\d+)_plus/", path)
            found[int(version[1]) if version else 0] = path
    return found[max(version for version in found if version <= 15)]


def identifier(_, *parts):
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


environment = jinja2.Environment(loader=jinja2.DictLoader(files), extensions=["jinja2.ext.do"])
environment.globals["_"] = lambda text: text
environment.filters.update(
    qtIdent=identifier,
    qtTypeIdent=identifier,
    qtLiteral=lambda value, *_: "'" + str(value).replace("'", "''") + "'",
    hasAny=lambda given, keys: any(key in given for key in keys),
)

with psycopg.connect(autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
    one = lambda query: connection.execute(query).fetchone()[0]
    oid = lambda relation: one(f"SELECT '{relation}'::regclass::oid::int8")
    database = one("SELECT oid::int8 FROM pg_database WHERE datname = current_database()")
    public = one("SELECT oid::int8 FROM pg_namespace WHERE nspname = 'public'")
    given = {"did": database, "scid": public, "datlastsysoid": 16383, "schema": "public", "data": {}, "conn": None,
             "database": "shop", "rid": 10}
    of_table = {"tid": oid("orders"), "table": "orders", "table_name": "orders", "idx": oid("orders_customer"),
                "cid": oid("orders_pkey"), "constraint_type": "p", "object_id": oid("orders")}
    rows = {}
    for asked, values in [(ASKED, given), (OF_TABLE, {**given, **of_table})]:
        for kind, name in [(kind, name) for kind, names in asked.items() for name in names.split()]:
            sql = environment.get_template(template(kind, name)).render(**values)
            rows.setdefault((kind, name), []).extend(connection.execute(sql).fetchall())
    named = lambda *asked: {row[1] for row in rows[asked]}
    assert {"customers", "orders", "visits"} <= named("tables", "nodes"), named("tables", "nodes")
    assert "shop" in named("databases", "nodes") and "public" in named("schemas", "nodes")
    assert "id" in {row[0] for row in rows["columns", "nodes"]}, rows["columns", "nodes"]
print("pgAdmin 4,", len(rows), "of its queries")
