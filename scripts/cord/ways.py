"""The compared ways of running a query: where the table lies, and the settings of the session.

    baseline   the paper's: the host fetches all rows of the query's columns, and then filters them
    blk        the same, but the host reads whole pages (`stack = blk`), and so all columns
    host       the host's own scan: zone maps exclude pages, and columns are read where a row is left (`native`)
    equal      `host` with the shares of all devices added to the host's; where both sides have shares
    processor  as Skyhook: the query's scan on the nodes' own processors, over the same rows on media of their own
    devices    the same on the devices (`split = h0`), and the host takes nothing
    auto       as Cleave chooses

What earlier conditions were true for is not used, except where that is what is measured.
"""

from dataclasses import dataclass

from update.ways import Way

WITHOUT_HISTORY = {"filter_history": "off"}
ON_DEVICES = {"split": "h0", "stealing": "off"}
NATIVE = {"stack": "native", "stages": "off"}


@dataclass(frozen=True)
class Scan(Way):
    """A way of running one query."""

    # The host fetches the columns of all rows before it filters any.
    fetches: bool = False
    # Over the table that lies with the nodes' own processors.
    on_processors: bool = False
    # Over tables that are divided by the columns by which rows have to meet.
    divided_by_key: bool = False


BASELINE = Scan("baseline", settings=NATIVE | WITHOUT_HISTORY, fetches=True)
BLOCKS = Scan("blk", settings={"stack": "blk", "stages": "off"} | WITHOUT_HISTORY, fetches=True)
HOST = Scan("host", settings=NATIVE | WITHOUT_HISTORY)
EQUAL = Scan("equal", settings=HOST.settings, host_has_both=True)
PROCESSOR = Scan("processor", settings=ON_DEVICES | WITHOUT_HISTORY, on_processors=True)
DEVICES = Scan("devices", settings=ON_DEVICES | WITHOUT_HISTORY)
AUTO = Scan("auto", settings=dict(WITHOUT_HISTORY))
COMPARED = [BASELINE, BLOCKS, HOST, EQUAL, PROCESSOR, DEVICES, AUTO]

# Experiment `uneven`.
NOT_STOLEN = "stealing off"
STEALING = [Scan(f"stealing {value}", settings={"split": "h0", "stealing": value} | WITHOUT_HISTORY)
            for value in ("off", "on")]
# Experiment `history`.
NOT_KEPT = "history off"
HISTORY = [Way(f"history {value}", settings=ON_DEVICES | {"filter_history": value})
           for value in ("off", "on", "always")]
# Experiment `batches`.
IN_TURN, TOGETHER, BATCH = "one by one", "concurrently", "batch"
BATCHES = [Way(name, settings=ON_DEVICES) for name in (IN_TURN, TOGETHER, BATCH)]
# Experiment `loss`, where what a device does not do others may.
LOSS = [Way("devices", settings={"split": "h0"} | WITHOUT_HISTORY), Way("auto", settings=dict(WITHOUT_HISTORY))]
# Experiment `exchange`. A device's memory for a fragment is a half of what it has for all of them.
BY_HOST = "by way of the host"
MEETING = {"stealing": "off", "device_memory": "128MB"} | WITHOUT_HISTORY
EXCHANGED = [Scan("host alone", settings=NATIVE | WITHOUT_HISTORY),
             Scan(BY_HOST, settings=MEETING | {"split": "h0", "exchange": "off"}),
             Scan("device to device", settings=MEETING | {"split": "h0", "exchange": "always"}),
             Scan("divided by key", settings=MEETING, divided_by_key=True)]
