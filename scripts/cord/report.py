"""How the experiments are shown: what `update.report` makes tables and pictures of."""

import bench
from update.report import SECONDS, STATEMENT, Ratio, Spec, Study, figure

from . import ways

PEERS = tuple(Ratio("seconds", (way.name,), heading, True) for way, heading in (
    (ways.BASELINE, "over baseline"), (ways.BLOCKS, "over blk"), (ways.HOST, "over host"),
    (ways.EQUAL, "at equal silicon"), (ways.PROCESSOR, "over processor")))
ONE_DEVICE = (("devices", 1), ("nodes", 1))

SPECS = {
    "selectivity": Spec("Queries that leave more and more rows", (SECONDS, *STATEMENT), PEERS,
                        ("curves", "seconds", "s", "selected")),
    "devices": Spec("One query over more and more devices", (SECONDS, *STATEMENT),
                    (PEERS[0], Ratio("seconds", (), "speed-up", True, ONE_DEVICE),
                     Ratio("seconds", (), "efficiency", True, ONE_DEVICE, "devices")), ("bars", "seconds", "s")),
    "uneven": Spec("Uneven placements over two devices", (SECONDS, *STATEMENT),
                   (Ratio("seconds", (ways.NOT_STOLEN,), "over stealing off", True),), ("bars", "seconds", "s")),
    "history": Spec("A query after one with conditions in common",
                    (SECONDS, figure("first_seconds", "first query", "s"), figure("again_seconds", "first again", "s"),
                     figure("pair_seconds", "first and second", "s"),
                     figure("statement_media_bytes", "from media", "bytes"),
                     figure("statement_device_cpu_ms", "CPU device", "ms")),
                    (Ratio("seconds", (ways.NOT_KEPT,), "over history off", True),
                     Ratio("pair_seconds", (ways.NOT_KEPT,), "both queries over history off", True)),
                    ("bars", "seconds", "s")),
    "batches": Spec("Four queries at once",
                    (SECONDS, figure("to_host_bytes", "to the host", "bytes"), figure("host_cpu_s", "CPU host", "s"),
                     figure("device_cpu_s", "CPU device", "s")),
                    (Ratio("seconds", (ways.IN_TURN,), "over one by one", True),), ("bars", "seconds", "s")),
    "exchange": Spec("A join and groups of rows that have to meet", (SECONDS, *STATEMENT),
                     (Ratio("seconds", (ways.BY_HOST,), "over by way of the host", True),), ("bars", "seconds", "s")),
    "q6": Spec("TPC-H's query 6", (SECONDS, *STATEMENT), PEERS, ("bars", "seconds", "s")),
    "loss": Spec("A lost device of mirrors",
                 (figure("seconds", "back after", "s"), figure("is_back", "rounds in which it is back", "share of all"),
                  figure("per_second_before", "a second before", "number"), figure("kept", "kept after", "share"),
                  figure("longest_s", "longest pause", "s"), figure("failed", "failed, all rounds", "sum"),
                  figure("retried", "to be retried, all rounds", "sum"),
                  figure("rows_missing", "rows missing, all rounds", "sum")), (),
                 ("lines", "operations a second", "when the device was lost")),
}
CORD = Study(SPECS, "cord", {"rows": "rows", "TPC-H scale": "scale", "host's buffers": "buffers",
                             "devices": "devices", "nodes": "nodes", "threads a device": "cores"}, bench.WORK / "cord")
