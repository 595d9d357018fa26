#!/usr/bin/env python3
"""YCSB, LinkBench, TPC-C and CH-benCHmark: `cleave serve` against PostgreSQL, both durable, driven by `cleave bench`.

    scripts/bench_workloads.py [--workloads ycsb-a,...] [--scale S] [--clients 1,8] [--seconds S] [--rounds R]
    scripts/bench_workloads.py analytics   transactions of TPC-C with and without analytic queries at the same time
    scripts/bench_workloads.py self-test   each workload for a moment, its rows checked; no figures

The servers are those of bench_oltp.py, with the same rows and settings. Runs alternate; a ratio is the median of the
rounds' ratios. `embedded` is the same workload in one process, without a wire.

Needs `cargo build --release` (or CLEAVE_BINARY), and PostgreSQL: `scripts/install_peers.sh postgresql`.
"""

import argparse
import json
import statistics
import subprocess
import sys

import bench
import bench_oltp
import servers

WORKLOADS = ["ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f", "linkbench", "tpcc"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="?", choices=["run", "analytics", "self-test"], default="run")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--scale", type=float, default=1.0, help="100,000 records or nodes, or warehouses, each")
    parser.add_argument("--clients", default="1,8")
    parser.add_argument("--seconds", type=float, default=5, help="of one run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["cleave", "postgresql"])
    options = parser.parse_args()
    if not bench.CLEAVE.exists():
        sys.exit(f"{bench.CLEAVE} is not there: run `cargo build --release`, or set CLEAVE_BINARY")
    {"run": measure, "analytics": analytics, "self-test": self_test}[options.command](options)


def url(server):
    environment = server.environment
    return f"postgres://{environment['PGUSER']}@127.0.0.1:{server.port}/{environment['PGDATABASE']}"


def run(workload, where, *options, before=()):
    """The figures of one `cleave bench`. `before` are words in front of the command (taskset)."""
    command = [*before, bench.CLEAVE, "bench", workload, *where, *options, "--json"]
    return json.loads(servers.output(command).splitlines()[-1])


def operation(figures, name):
    return next((one for one in figures["operations"] if one["name"] == name), None)


def one_run(server, workload, scale, clients, seconds):
    """Operations a second, p99 in ms, CPU us an operation of the server."""
    before = server.cpu_seconds()
    figures = run(workload, ["--url", url(server)], "--no-load", "--scale", scale, "--clients", clients,
                  "--seconds", seconds, "--warmup", 0)
    spent = server.cpu_seconds() - before
    total = operation(figures, "all")
    return total["per_second"], total["p99_ms"], spent * 1e6 / max(total["count"], 1)


def measure(options):
    for workload in options.workloads.split(","):
        # In folders of their own, so that none has to do with what another has left.
        folder, running = bench_oltp.started(0, options.only)
        try:
            for server in running:
                servers.output([bench.CLEAVE, "bench", workload, "--url", url(server), "--scale", options.scale,
                                "--load-only"])
            if workload == options.workloads.split(",")[0]:
                head = "".join(f"{server.name + ' a second':>19}{'p99':>8}{'CPU':>7}" for server in running)
                print(f"scale {options.scale:g}, {options.seconds:g} s a run, {options.rounds} rounds; CPU us an "
                      f"operation of the "
                      f"server, p99 in ms\n{'workload':11}{'clients':>7}{head}{'ratio':>8}{'p99':>7}{'CPU':>7}")
            for clients in map(int, options.clients.split(",")):
                runs = {server.name: [] for server in running}
                for place in range(options.rounds):
                    for server in running if place % 2 == 0 else running[::-1]:
                        runs[server.name].append(one_run(server, workload, options.scale, clients, options.seconds))
                bench_oltp.print_row(f"{workload:11}{clients:7}  ", list(runs.values()))
        finally:
            bench_oltp.stop(folder, running)


def analytics(options):
    """Transactions while an analyst runs the queries of CH-benCHmark, against the same without an analyst."""
    folder, running = bench_oltp.started(0, options.only)
    try:
        clients = int(options.clients.split(",")[-1])
        common = ["--no-load", "--scale", options.scale, "--clients", clients, "--seconds", options.seconds]
        for server in running:
            where = ["--url", url(server)]
            servers.output([bench.CLEAVE, "bench", "ch", *where, "--scale", options.scale, "--load-only"])
            ratios, slower, queries = [], [], []
            for _ in range(options.rounds):
                alone = operation(run("tpcc", where, *common), "all")
                figures = run("ch", where, *common, "--analysts", 1)
                names = {f"Q{number}" for number in range(1, 23)}
                asked = [one for one in figures["operations"] if one["name"] in names]
                beside = [one for one in figures["operations"] if one["name"] not in names | {"all"}]
                ratios.append(sum(one["per_second"] for one in beside) / alone["per_second"])
                order = next(one for one in beside if one["name"] == "new order")
                slower.append(order["p99_ms"] / operation(run("tpcc", where, *common), "new order")["p99_ms"])
                queries.append(sum(one["per_second"] for one in asked))
            print(f"{server.name}: with an analyst {statistics.median(ratios):.2f}x of the transactions without, p99 "
                  f"of new orders "
                  f"{statistics.median(slower):.2f}x, {statistics.median(queries):.2f} queries a second", flush=True)
    finally:
        bench_oltp.stop(folder, running)


def self_test(_):
    folder, [server] = bench_oltp.started(1, "cleave")
    try:
        for workload in [*WORKLOADS, "ch"]:
            figures = run(workload, ["--url", url(server)], "--scale", 0.01, "--clients", 2, "--seconds", 1,
                          "--warmup", 0)
            assert operation(figures, "all")["count"] > 0 and not figures["faults"], (workload, figures)
    finally:
        bench_oltp.stop(folder, [server])
    print("self-test: passed")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}")
