"""dbt: seeds, models of each kind, a snapshot, tests, and the pages of its documentation."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

# dbt reads the arguments of the program too.
del sys.argv[1:]
from dbt.cli.main import dbtRunner

runner = dbtRunner()


def dbt(*command):
    done = runner.invoke([*command, "--quiet"])
    results = getattr(done.result, "results", None) or []
    wrong = [f"{result.node.name}: {result.message}" for result in results if result.status not in ("success", "pass")]
    assert done.success and not wrong, (command, wrong, done.exception)
    return len(results)


dbt("debug")
assert dbt("seed") == 1
assert dbt("snapshot") == 1
# The second one keeps the rows of incremental models, and replaces the others.
assert dbt("run") == 4
assert dbt("run") == 4
assert dbt("test") == 8
seed = Path("seeds/raw_orders.csv")
seed.write_text(seed.read_text().replace("20.00", "30.00") + "5,bob,1.00,2024-01-05,true\n")
assert dbt("seed") == 1
assert dbt("snapshot") == 1
assert dbt("run", "--vars", "{strategy: append}") == 4
assert dbt("build", "--full-refresh") == 14
dbt("source", "freshness")
dbt("docs", "generate")
catalog = json.loads(Path("target/catalog.json").read_text())
nodes = {node["metadata"]["name"]: node for node in catalog["nodes"].values()}
columns = nodes["stg_orders"]["columns"]
assert columns["order_id"]["comment"] == 'its "number", that\'s all', columns
assert nodes["daily"]["metadata"]["type"] == "BASE TABLE" and columns["placed_at"]["type"].startswith("timestamp")
print("dbt", version("dbt-core"), "with dbt-postgres", version("dbt-postgres"))
