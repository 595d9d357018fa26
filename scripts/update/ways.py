"""The compared ways of running an update: a system, and the settings of the session that updates.

`device` lets the device make the update, `host` forbids it, over the same pages and links. A setting that the server
does not know is left out, and the record says so: a server without update fragments runs both ways on the host.
`equal` is `host` with the device's share of the processor added to the host's: the same silicon without a device that
computes. It takes part where both sides have shares, on the testbed.
"""

from dataclasses import dataclass, field

PLACEMENT, LOCKING = "update_placement", "update_locking"


@dataclass(frozen=True)
class Way:
    name: str
    system: str = "Cleave"
    settings: dict = field(default_factory=dict, hash=False)
    host_has_both: bool = False
    # What its records have besides the case of the round, where ways that alternate differ in more than settings.
    case: dict = field(default_factory=dict, hash=False)

    def missing(self, system):
        """The settings that the server does not know."""
        return [name for name in self.settings if not system.knows(name)]

    def with_settings(self, name, **more):
        return Way(name, self.system, self.settings | more)


DEVICE = Way("device", settings={PLACEMENT: "device"})
HOST = Way("host", settings={"split": "host", PLACEMENT: "host"})
EQUAL = Way("equal", settings=HOST.settings, host_has_both=True)
POSTGRESQL = Way("PostgreSQL", "PostgreSQL")
COMPARED = [DEVICE, HOST, EQUAL, POSTGRESQL]

# Experiment 5: how an update keeps others from its rows.
LOCKS = [DEVICE.with_settings(f"{method} lock" if method != "optimistic" else method, **{LOCKING: method})
         for method in ("shared", "table", "optimistic")]
# What is copied for an archive before a commit is acknowledged.
NOT_ARCHIVED = "no archive"
LOGGING = [DEVICE.with_settings(NOT_ARCHIVED),
           *(DEVICE.with_settings(name, update_logging=name) for name in ("basic", "extended"))]
# Experiment 6: where rows are found and where they are changed.
PLACES = [Way("S1 host", settings={"split": "host", PLACEMENT: "host"}),
          Way("S2 host scans, device updates", settings={PLACEMENT: "keys"}),
          Way("S3 device", settings={PLACEMENT: "device"}),
          Way("auto", settings={PLACEMENT: "auto"})]
# What EXPLAIN calls these ways.
EXPLAINED = {"host": "host, by rows", "keys": "host finds, device by pages", "device": "device, by pages"}

# Reading alone: a scan on the host, and one on the device with the host only taking its rows.
SCAN_DEVICE = Way("device", settings={"split": "h0", "stealing": "off"})
SCAN_HOST = Way("host", settings={"split": "host"})
SCAN_EQUAL = Way("equal", settings=SCAN_HOST.settings, host_has_both=True)
SCANS = [SCAN_DEVICE, SCAN_HOST, SCAN_EQUAL, POSTGRESQL]
