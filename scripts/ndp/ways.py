"""The compared ways of running a statement: settings, and shares of the processor for both sides.

The two baselines at equal silicon run host-only. The device's share of a core is added to the host's:

    host         the host has its share H, the device its share D
    equal        host H + D, device D, with which it serves pages: H + 2 D in all, so the baseline has more than the
                 split
    free-disk    host H + D, device without a limit: a disk that serves pages at the link's rate and costs nothing

A forced split is static: the host takes no morsels of its fragments. `auto` is the default, and takes them; `paper` is
the same with hybridNDP's equations in place of our cost model.

A device with a small share serves pages slowly too, and then even `equal` flatters a split; `free-disk` does not.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Way:
    name: str
    settings: dict = field(default_factory=dict, hash=False)
    host_has_both: bool = False
    device_is_free: bool = False

    def arguments(self):
        """The settings as options of `cleave sql`."""
        return [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]

    def with_settings(self, **more):
        return Way(self.name, self.settings | more, self.host_has_both, self.device_is_free)


HOST = Way("host", {"split": "host"})
EQUAL = Way("equal", {"split": "host"}, host_has_both=True)
FREE_DISK = Way("free-disk", {"split": "host"}, host_has_both=True, device_is_free=True)
AUTO = Way("auto", {"split": "auto"})
PAPER = Way("paper", {"split": "auto", "cost_strategy": "paper"})
APART = Way("apart", {"split": "auto", "join_order_with_split": "off"})
TOGETHER = Way("together", {"split": "auto", "join_order_with_split": "on"})
BLK = Way("blk", {"stack": "blk"})
NATIVE = Way("native", {"stack": "native"})
NDP = Way("ndp", {"split": "ndp", "stealing": "off"})
BASELINES = [HOST, EQUAL, FREE_DISK]


def forced(split):
    return Way(split, {"split": split, "stealing": "off"})


def shared(split):
    return Way(split, {"split": split})


def split_order(name):
    """A key that sorts splits as the paper draws them: host, h0, h1, h1+, ..., ndp, then all else."""
    if name == "host":
        return (0, 0, "")
    if name[:1] == "h" and name[1:].rstrip("+").isdigit():
        return (1, int(name[1:].rstrip("+")), name)
    return (2, 0, "") if name == "ndp" else (3, 0, name)
