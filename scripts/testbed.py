#!/usr/bin/env python3
"""A testbed on one machine: a host and devices with links, processors and disks of given speed.

    scripts/testbed.py --rate 1gbit --cpu 25% --read-mbps 200 -- COMMAND...
    scripts/testbed.py --devices 4 --nodes 2 --rate 1gbit --cpu 20% -- COMMAND...
    scripts/testbed.py --self-test     everything at once, in about half a minute; exit code 77 if not permitted
    scripts/testbed.py --clean         removes what killed runs and --keep left behind

COMMAND runs in a network namespace called host. Each storage node is a namespace too, joined with the host by a veth
pair that token buckets shape at both ends; there is one, called device, unless --nodes says otherwise. Each device is a
process of `cleaved` on its node, inside a CPU quota and an I/O limit of its own. Each limit is measured before COMMAND
starts, those of all devices at the same time, and a limit that does not hold ends the run, because its figures would be
worthless. Nodes reach each other by way of both their links. No namespace has a route to the outside. COMMAND finds
the devices through

    CLEAVE_TESTBED_ADDRESS        the first device's address, for `cleave device add --address`
    CLEAVE_TESTBED_ADDRESSES      those of all devices with spaces between, those of the first node first
    CLEAVE_TESTBED_NODE_ADDRESSES with --node-cpu: those of the nodes' own processors
    CLEAVE_TESTBED_TOKEN_FILE     the token of all of them, for --token-file
    CLEAVE_TESTBED_CA             their certificate, for --ca
    CLEAVE_TESTBED_DIR            the folder of --state, which holds them and the media

Needs root, iproute2, openssl, and control groups (version 1 or 2) with the controllers of the requested limits. netem
is not available everywhere, so --delay-ms is a proxy in user space, on the devices' side of the link.
"""

import argparse
import contextlib
import ctypes
import fcntl
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from probes import FRAGMENT_THREADS

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
RUNS = Path("/run/cleave-testbed")
CGROUPS = Path("/sys/fs/cgroup")
NAME = "cleave-testbed-"

# The last parts of the host's and the first node's address; the next node has those four further on.
ADDRESS, HOST_PART, NODE_PART = "10.99.0.{}", 1, 2
# Of a node's first device, of the proxy in front of it, of measurements; the next device has those ten further on.
PORT, PROXY_PORT, PROBE_PORT = 7700, 7701, 7702
PORTS_APART = 10
# One digit of the links' names.
NODES_MAX = 9
DEVICES_MAX = 64

# How far a measured limit may lie from the one asked for, as shares of it. A link carries headers
# and an I/O limit is refilled in bursts.
LINK_TOLERANCE = (0.10, 0.03)   # below, above
CPU_TOLERANCE = (0.15, 0.10)
DISK_TOLERANCE = (0.15, 0.15)
DELAY_TOLERANCE_MS = 1.0        # above; never below
ATTEMPTS = 6                    # other work on the machine can spoil a measurement, not six

CPU_PERIOD_US = 5000            # a quota is slow, not late
CPU_QUOTA_MIN_US = 1000         # what the kernel takes

NOT_PERMITTED = 77


class Failed(Exception):
    """Why the testbed failed, as a message for users."""


class NotPermitted(Failed):
    """This machine, or this user, may not do what a testbed needs."""


def main():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = arguments()
    options = parser.parse_args(sys.argv[1:split])
    command = sys.argv[split + 1:]
    # A signal becomes an exception, so that whatever ends a run, it cleans up.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended_by_signal)
    try:
        check_permitted(options)
        if options.clean:
            remove_leftovers(kept_too=True)
            return 0
        if options.self_test:
            return self_test(options)
        if not command:
            parser.error("there is no command; give one after `--`")
        return run_in_testbed(options, command)
    except NotPermitted as error:
        print(f"testbed: not permitted here: {error}", file=sys.stderr)
        return NOT_PERMITTED
    except Failed as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 2


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], epilog="After `--` comes the command to run, on the host's side.")
    parser.add_argument("--devices", type=int, default=1, help="how many devices (default: 1)")
    parser.add_argument("--nodes", type=int, default=1, help="on how many storage nodes, each with a link (default: 1)")
    parser.add_argument("--rate", type=rate_bits, help="what a node's link carries in each direction, as in 1gbit")
    parser.add_argument("--delay-ms", type=float, help="added to each direction, by a proxy in user space")
    parser.add_argument("--cpu", type=cpu_share, help="each device's share of a core, as in 25%% or 150%%")
    parser.add_argument("--node-cpu", type=cpu_share, help="starts one more device on each node, its own processor, "
                        "with this share of a core")
    parser.add_argument("--host-cpu", type=cpu_share, help="the command's share of a core, with all that it starts")
    parser.add_argument("--engines", action="store_true", help="the devices of a node are engines of one process, "
                        "which take work from each other (cleaved --node)")
    parser.add_argument("--read-mbps", type=float, help="million bytes a second that each device may read")
    parser.add_argument("--write-mbps", type=float, help="million bytes a second that each device may write")
    parser.add_argument("--cores", type=int, help="threads of a device that run fragments (cleaved --cores)")
    parser.add_argument("--memory", help="memory of a device for fragments (cleaved --memory)")
    parser.add_argument("--state", type=Path, help="folder of media, token and certificate; kept (default: a new "
                        "one, removed at the end)")
    parser.add_argument("--device", type=Path, help="the program: cleaved, or cleave (default: CLEAVE_BINARY, or "
                        "what cargo built last)")
    parser.add_argument("--no-device", action="store_true", help="start no device; the command gets a bare link")
    parser.add_argument("--keep", action="store_true", help="leave all standing after the command")
    parser.add_argument("--self-test", action="store_true", help="check the testbed itself")
    parser.add_argument("--clean", action="store_true", help="remove what killed runs and --keep left behind")
    return parser


def options_of(**given):
    """Options for scripts that use this one: as on the command line, parsed, those that are not given by default."""
    options = arguments().parse_args([])
    vars(options).update(given)
    return options


def ended_by_signal(number, _frame):
    sys.exit(128 + number)


def run_in_testbed(options, command):
    remove_leftovers()
    with Testbed(options) as testbed:
        testbed.verify()
        environment = dict(os.environ)
        if not options.no_device:
            environment |= testbed.start_devices()
        done = subprocess.run(in_namespace(testbed.host, command), env=environment,
                              preexec_fn=lambda: enter_cgroups(testbed.host_cgroups, dies_with_parent=False))
        if options.keep:
            testbed.keep()
        return done.returncode if done.returncode >= 0 else 128 - done.returncode


# --- what a testbed is made of -------------------------------------------------------------------

class Node(NamedTuple):
    """A storage node: its namespace, and both ends of its link (interface, address)."""

    number: int
    namespace: str
    host_end: tuple
    end: tuple

    @property
    def address(self):
        return self.end[1]


@dataclass
class Device:
    """A device of a node, or (with the suffix `-node-1`) that node's own processor."""

    folder: Path
    suffix: str
    listen: str
    node: Node | None = None
    cores: int | None = None
    memory: str | None = None
    cgroups: list = field(default_factory=list)

    def file(self, name, ending=""):
        return self.folder / f"{name}{self.suffix}{ending}"


class Credentials(NamedTuple):
    """What devices and hosts prove to each other with, in a folder."""

    token: Path
    certificate: Path
    key: Path


class Testbed:
    """Namespaces, links, control groups and devices of one run; removed at the end, whatever happens."""

    def __init__(self, options):
        self.options = options
        self.id = str(os.getpid())
        self.host = f"{NAME}{self.id}-host"
        self.nodes = [self.node(number) for number in range(1, options.nodes + 1)]
        self.kept = False
        self.processes, self.proxies = [], []
        self.devices, self.processors, self.host_cgroups = [], [], []

    def node(self, number):
        mark = "" if number == 1 else str(number)
        host, near = (ADDRESS.format(part + 4 * (number - 1)) for part in (HOST_PART, NODE_PART))
        return Node(number, f"{NAME}{self.id}-device" + (mark and f"-{mark}"), (f"cleave{self.id}h{mark}", host),
                    (f"cleave{self.id}d{mark}", near))

    def __enter__(self):
        self.lock = lock_run(self.id)
        try:
            self.state = self.make_state()
            if self.options.state is None:
                # For whoever has to remove what this run leaves.
                print(self.state, file=self.lock, flush=True)
            self.make_network()
            self.make_devices()
            self.host_cgroups = Cgroups(f"{self.id}-host", options_of(cpu=self.options.host_cpu), self.state).make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        if not self.kept:
            self.remove()

    @property
    def cgroups(self):
        """Those of the first device."""
        return self.devices[0].cgroups

    def keep(self):
        """Leaves everything running, for --clean to remove."""
        self.kept = True
        (RUNS / f"{self.id}.kept").write_text("")
        print(f"testbed: kept; enter the host's side with `ip netns exec {self.host} COMMAND`; "
              f"devices listen on {' '.join(map(self.address, self.devices))}; the files are in {self.state}; "
              f"remove all with `{sys.argv[0]} --clean`", file=sys.stderr)

    def remove(self):
        for process in [*self.processes, *self.proxies]:
            process.kill()
            process.wait()
        remove_run(self.id)
        if self.options.state is None and hasattr(self, "state"):
            shutil.rmtree(self.state, ignore_errors=True)

    def make_state(self):
        if self.options.state is None:
            return Path(tempfile.mkdtemp(prefix=NAME))
        self.options.state.mkdir(parents=True, exist_ok=True)
        return self.options.state.resolve()

    def make_network(self):
        ip("netns", "add", self.host)
        ip("-n", self.host, "link", "set", "lo", "up")
        for node in self.nodes:
            ip("netns", "add", node.namespace)
            ip("-n", node.namespace, "link", "set", "lo", "up")
            ip("link", "add", node.host_end[0], "netns", self.host, "type", "veth", "peer", "name", node.end[0],
               "netns", node.namespace)
            for namespace, (interface, address) in ((self.host, node.host_end), (node.namespace, node.end)):
                ip("-n", namespace, "address", "add", f"{address}/30", "dev", interface)
                ip("-n", namespace, "link", "set", interface, "up")
                if self.options.rate:
                    shape(namespace, interface, self.options.rate)
        if len(self.nodes) > 1:
            self.join_nodes()

    def join_nodes(self):
        """Lets nodes reach each other by both their links: the host's side forwards packets, as a switch would."""
        tool("ip", "netns", "exec", self.host, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    ip("-n", node.namespace, "route", "add", other.address, "via", node.host_end[1])

    def make_devices(self):
        options, count = self.options, self.options.devices
        for number in range(count):
            node = self.nodes[node_of(number, count, len(self.nodes))]
            before = sum(device.node is node for device in self.devices)
            self.devices.append(self.make_device("" if number == 0 else f"-{number + 1}", node, before, options))
        for node in self.nodes if options.node_cpu else []:
            before = sum(device.node is node for device in self.devices)
            limits = options_of(cpu=options.node_cpu, read_mbps=options.read_mbps, write_mbps=options.write_mbps)
            self.processors.append(self.make_device(f"-node-{node.number}", node, before, limits))

    def make_device(self, suffix, node, before, limits):
        """A device of a node that has some `before` it."""
        groups = Cgroups(self.id + suffix, limits, self.state).make()
        cores = self.options.cores if limits is self.options else None
        return Device(self.state, suffix, f"{node.address}:{PORT + PORTS_APART * before}", node, cores,
                      self.options.memory, groups)

    def verify(self, attempts=ATTEMPTS):
        """Measures every requested limit, and fails if one does not hold."""
        verify(self.checks(), attempts)

    def checks(self):
        options, checks = self.options, []
        for node in self.nodes:
            of = f" of node {node.number}" if len(self.nodes) > 1 else ""
            checks += [(f"link{of}, host to device",
                        lambda node=node: self.link_holds(self.host, node.namespace, node.end)),
                       (f"link{of}, device to host",
                        lambda node=node: self.link_holds(node.namespace, self.host, node.host_end))]
        if options.cpu:
            name = "CPU" if len(self.devices) == 1 else f"CPU of {len(self.devices)} devices at once"
            checks.append((name, lambda: cpus_hold([device.cgroups for device in self.devices], options.cpu)))
        if options.node_cpu:
            groups = [processor.cgroups for processor in self.processors]
            checks.append(("CPU of the nodes", lambda: cpus_hold(groups, options.node_cpu)))
        if options.host_cpu:
            checks.append(("CPU of the host", lambda: cpus_hold([self.host_cgroups], options.host_cpu)))
        for device in [*self.devices, *self.processors]:
            of = device.suffix.replace("-", " ")
            for direction, wanted in (("read", options.read_mbps), ("write", options.write_mbps)):
                if wanted:
                    name = f"{'reading' if direction == 'read' else 'writing'}{of}"
                    checks.append((name, lambda device=device, direction=direction, wanted=wanted:
                                   self.disk_holds(device.cgroups, direction, wanted)))
        if options.delay_ms:
            checks += [("delay" + (f" of node {node.number}" if len(self.nodes) > 1 else ""),
                        lambda node=node: self.delay_holds(node)) for node in self.nodes]
        return checks

    def link_holds(self, source, sink, end):
        wanted = self.options.rate
        # Half a second of the rate asked for, within reason where none was.
        size = min(max((wanted or 8_000_000_000) // 16, 1 << 20), 512 << 20)
        bits, round_trip_ms = measure_link(source, sink, end[1], size)
        text = f"{bits / 1e6:.0f} Mbit/s, round trip {round_trip_ms:.2f} ms"
        if not wanted:
            return True, text + ", not limited"
        return within(bits, wanted, LINK_TOLERANCE), text + asked(wanted / 1e6, "Mbit/s", LINK_TOLERANCE)

    def disk_holds(self, groups, direction, wanted_mbps):
        rate = measure_disk(groups, self.state, direction, wanted_mbps)
        return (within(rate, wanted_mbps, DISK_TOLERANCE),
                f"{rate:.1f} MB/s, direct" + asked(wanted_mbps, "MB/s", DISK_TOLERANCE))

    def delay_holds(self, node):
        with Spawned([], in_namespace(node.namespace, probe("echo", node.address, PROBE_PORT))) as _:
            with Spawned([], in_namespace(node.namespace, self.proxy(node.address, PROXY_PORT, PROBE_PORT))) as _:
                round_trip_ms = float(output(self.host, probe("ping", node.address, PROXY_PORT)))
        wanted = 2 * self.options.delay_ms
        return (wanted <= round_trip_ms <= wanted + 2 * DELAY_TOLERANCE_MS,
                f"round trip {round_trip_ms:.2f} ms, {wanted:g} ms asked for (up to {2 * DELAY_TOLERANCE_MS:g} more)")

    def proxy(self, address, listen_port, port):
        return probe("proxy", address, listen_port, port, self.options.delay_ms)

    def address(self, device):
        """Where the host reaches a device."""
        address, port = device.listen.split(":")
        return f"{address}:{int(port) + (PROXY_PORT - PORT if self.options.delay_ms else 0)}"

    def start_devices(self):
        """Starts the devices; returns what COMMAND needs to know of them."""
        addresses = [ADDRESS.format(NODE_PART + 4 * number) for number in range(NODES_MAX)]
        credentials = make_credentials(self.state, addresses)
        # Of a node in one process, or each in its own; a node's own processor is apart.
        together = [[device for device in self.devices if device.node is node] for node in self.nodes]
        processes = together if self.options.engines else [[device] for device in self.devices]
        for devices in [*processes, *([one] for one in self.processors)]:
            node = devices[0].node
            if self.options.delay_ms:
                for device in devices:
                    port = int(device.listen.split(":")[1])
                    command = in_namespace(node.namespace, self.proxy(node.address, port + PROXY_PORT - PORT, port))
                    self.proxies.append(subprocess.Popen(as_text(command), stdin=subprocess.DEVNULL,
                                                         start_new_session=True))
            name = f"node-{node.number}" if len(devices) > 1 else None
            self.processes.append(start_cleaved(self.options.device, devices, credentials, name,
                                                in_namespace(node.namespace, []), not self.options.keep))
        return {"CLEAVE_TESTBED_ADDRESS": self.address(self.devices[0]),
                "CLEAVE_TESTBED_ADDRESSES": " ".join(map(self.address, self.devices)),
                "CLEAVE_TESTBED_NODE_ADDRESSES": " ".join(map(self.address, self.processors)),
                "CLEAVE_TESTBED_TOKEN_FILE": str(credentials.token),
                "CLEAVE_TESTBED_CA": str(credentials.certificate), "CLEAVE_TESTBED_DIR": str(self.state)}


def verify(checks, attempts=ATTEMPTS):
    """Makes checks, which are names with functions that tell whether a limit holds; fails if one does not."""
    for name, holds in checks:
        for attempt in range(attempts):
            good, text = holds()
            last = attempt == attempts - 1
            verdict = "" if good else (": this testbed does not hold" if last else ": off, measuring again")
            print(f"testbed: {name}: {text}{verdict}", file=sys.stderr)
            if good:
                break
            if last:
                raise Failed(f"{name} is not what was asked for; the machine may be too busy, or the limit "
                             "may not reach what it should limit")


def node_of(device, devices, nodes):
    """The node, from 0, of a device, from 0: those of the first node come first."""
    return device * nodes // devices


def shape(namespace, interface, rate, verb="add"):
    # A segment of up to 64 KiB must fit in the bucket, and 2 ms of the rate keep it from running dry between ticks.
    burst = max(128 << 10, rate // 8 // 500)
    tool("tc", "-n", namespace, "qdisc", verb, "dev", interface, "root", "tbf", "rate", f"{rate}bit",
         "burst", burst, "latency", "50ms")


def cpus_hold(sides, wanted):
    """Whether each of some sides, which are lists of control groups, gets its share while all of them compute."""
    shares = measure_cpus(sides)
    period, _ = cpu_quota(wanted)
    text = f"{', '.join(f'{share:.1%}' for share in shares)} of a core in periods of {period / 1000:g} ms"
    if period > CPU_PERIOD_US:
        text += (f" (the kernel takes no quota below {CPU_QUOTA_MIN_US / 1000:g} ms, so a share this small "
                 "comes late as well as slow)")
    return all(within(share, wanted, CPU_TOLERANCE) for share in shares), text + asked(wanted * 100, "%", CPU_TOLERANCE)


def within(measured, wanted, tolerance):
    below, above = tolerance
    return wanted * (1 - below) <= measured <= wanted * (1 + above)


def asked(wanted, unit, tolerance):
    below, above = tolerance
    return f", {wanted:g} {unit} asked for (-{below:.0%}, +{above:.0%})"


# --- control groups ------------------------------------------------------------------------------

class Cgroups:
    """The groups that hold one side: one for each controller in version 1, one for all in version 2."""

    def __init__(self, run_id, options, state):
        self.name, self.options, self.state = NAME + run_id, options, state
        self.unified = (CGROUPS / "cgroup.controllers").exists()

    def make(self):
        groups = []
        if self.options.cpu:
            group = self.group("cpu", {})
            try:
                set_cpu(group, self.options.cpu)
            except OSError as error:
                raise NotPermitted(f"the control group for cpu: {error}") from error
            groups.append(group)
        limits = [("r", "read", self.options.read_mbps), ("w", "write", self.options.write_mbps)]
        for letter, word, mbps in limits:
            if not mbps:
                continue
            disk, limit = disk_of(self.state), round(mbps * 1e6)
            if self.unified:
                groups.append(self.group("io", {"io.max": f"{disk} {letter}bps={limit}"}))
            else:
                groups.append(self.group("blkio", {f"blkio.throttle.{word}_bps_device": f"{disk} {limit}"}))
        return list(dict.fromkeys(groups))

    def group(self, controller, settings):
        parent = CGROUPS if self.unified else CGROUPS / controller
        try:
            if self.unified and controller not in (parent / "cgroup.subtree_control").read_text().split():
                (parent / "cgroup.subtree_control").write_text(f"+{controller}")
            group = parent / self.name
            group.mkdir(exist_ok=True)
            for file, value in settings.items():
                (group / file).write_text(str(value))
        except OSError as error:
            raise NotPermitted(f"the control group for {controller}: {error}") from error
        return group


def set_cpu(group, share):
    """Limits a group to a share of a core from now on; None removes the limit."""
    period, quota = cpu_quota(share) if share else (CPU_PERIOD_US, None)
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota or 'max'} {period}")
        return
    # Without a quota any period is taken.
    (group / "cpu.cfs_quota_us").write_text("-1")
    (group / "cpu.cfs_period_us").write_text(str(period))
    if quota:
        (group / "cpu.cfs_quota_us").write_text(str(quota))


def cpu_quota(share):
    """(period, quota) in microseconds. The kernel's least quota requires a longer period for small shares."""
    period = max(CPU_PERIOD_US, round(CPU_QUOTA_MIN_US / share))
    return period, max(CPU_QUOTA_MIN_US, round(period * share))


def disk_of(folder):
    """The disk, not the partition, under `folder`, as major:minor."""
    number = os.stat(folder).st_dev
    place = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not place.exists():
        raise Failed(f"{folder} does not lie on a disk of its own number (an overlay, or memory), so its reading "
                     "cannot be limited; give a --state on a disk")
    if (place / "partition").exists():
        place = place.resolve().parent
    return (place / "dev").read_text().strip()


def enter_cgroups(groups, dies_with_parent=True):
    """Called between fork and exec of a limited process."""
    for group in groups:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    if dies_with_parent:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


# --- measurements --------------------------------------------------------------------------------

def measure_link(source, sink, address, size):
    """(bits a second of a transfer of `size` bytes, round trip in ms)."""
    with Spawned([], in_namespace(sink, probe("receive", address, PROBE_PORT, size))) as receiver:
        round_trip_ms = float(output(source, probe("send", address, PROBE_PORT, size)))
        return float(receiver.communicate(timeout=60)[0]), round_trip_ms


def measure_cpus(sides):
    """The share of a core that loops of each side get on all cores together, all in the same second."""
    spinners = [[Spawned(groups, probe("spin", 1.0)) for _ in range(os.cpu_count())] for groups in sides]
    with contextlib.ExitStack() as stack:
        running = [[stack.enter_context(spinner) for spinner in side] for side in spinners]
        # Starting takes of the quota too, and a loop that runs before the others has all of it to itself.
        for process in [one for side in running for one in side]:
            process.stdout.readline()
        start = time.monotonic() + 0.1
        for process in [one for side in running for one in side]:
            print(start, file=process.stdin, flush=True)
        return [sum(float(process.communicate(timeout=120)[0]) for process in side) for side in running]


def measure_disk(groups, folder, direction, wanted_mbps):
    """Million bytes a second of direct I/O, over about two seconds of the requested rate."""
    scratch = folder / "testbed-scratch"
    size = min(max(int(wanted_mbps * 2e6) >> 20, 8), 4096)
    try:
        if direction == "read":
            output(None, probe("disk", "write", scratch, size))
        with Spawned(groups, probe("disk", direction, scratch, size)) as process:
            return float(process.communicate(timeout=120)[0])
    finally:
        scratch.unlink(missing_ok=True)


class Spawned:
    """A process of probes.py, in control groups, ended with the block."""

    def __init__(self, groups, command):
        self.groups, self.command = groups, command

    def __enter__(self):
        self.process = subprocess.Popen(as_text(self.command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        preexec_fn=lambda: enter_cgroups(self.groups))
        return self.process

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def probe(*arguments):
    """The command of one side of a measurement."""
    return [sys.executable, Path(__file__).with_name("probes.py"), *arguments]


# --- leaving nothing behind ----------------------------------------------------------------------

def lock_run(run_id):
    """The lock that a run holds while its process lives: a run whose lock can be taken is a leftover."""
    RUNS.mkdir(parents=True, exist_ok=True)
    lock = open(RUNS / run_id, "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def remove_leftovers(kept_too=False):
    """Removes what killed runs have left: their locks can be taken."""
    for lock_file in sorted(RUNS.glob("*")) if RUNS.exists() else []:
        run_id = lock_file.name
        if not run_id.isdigit():
            continue
        if (RUNS / f"{run_id}.kept").exists() and not kept_too:
            continue
        with open(lock_file) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            print(f"testbed: removing what run {run_id} left behind", file=sys.stderr)
            folder = lock.read().strip()
            remove_run(run_id)
            if Path(folder).name.startswith(NAME):
                shutil.rmtree(folder, ignore_errors=True)


def remove_run(run_id):
    """Ends the processes inside a run's namespaces and groups, which only that run made, and removes both."""
    standing = [path.name for path in Path("/run/netns").glob(f"{NAME}{run_id}-*")]
    groups = [group for parent in (CGROUPS, CGROUPS / "cpu", CGROUPS / "blkio")
              for pattern in ("", "-*") for group in parent.glob(NAME + run_id + pattern)]
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = [pid for name in standing for pid in tool("ip", "netns", "pids", name).split()]
        for group in groups:
            with contextlib.suppress(OSError):
                left += (group / "cgroup.procs").read_text().split()
        if not left:
            break
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.02)
    for name in standing:
        ip("netns", "delete", name)
    for group in groups:
        with contextlib.suppress(FileNotFoundError):
            group.rmdir()
    (RUNS / f"{run_id}.kept").unlink(missing_ok=True)
    (RUNS / run_id).unlink(missing_ok=True)


# --- the world around ----------------------------------------------------------------------------

def check_permitted(options):
    if os.geteuid() != 0:
        raise NotPermitted("network namespaces and control groups need root")
    missing = [name for name in ("ip", "tc", "openssl") if shutil.which(name) is None]
    if missing:
        raise NotPermitted(f"{', '.join(missing)} is missing; install iproute2 and openssl")
    if options.clean:
        return
    trial = f"{NAME}{os.getpid()}-trial"
    try:
        ip("netns", "add", trial)
        ip("netns", "delete", trial)
    except Failed as error:
        raise NotPermitted(str(error)) from error
    check_possible(options)


def check_possible(options):
    """Fails for numbers and limits that are none."""
    if not 1 <= options.nodes <= min(options.devices, NODES_MAX) or options.devices > DEVICES_MAX:
        raise Failed(f"{options.devices} devices on {options.nodes} nodes: up to {DEVICES_MAX} on up to {NODES_MAX}, "
                     "and a node has one")
    for name, share, count in (("--cpu", options.cpu, options.devices), ("--host-cpu", options.host_cpu, 1),
                               ("--node-cpu", options.node_cpu, options.nodes)):
        if share and share * count >= os.cpu_count():
            raise Failed(f"{name} {share:.0%}, {count} times, is no limit: there are {os.cpu_count()} cores"
                         if count > 1 else f"{name} {share:.0%} is no limit: there are {os.cpu_count()} cores")
    if options.devices > 1 and (options.cpu or 0) * options.devices + (options.host_cpu or 0) > os.cpu_count():
        raise Failed(f"{options.devices} devices and the host cannot have their shares at once: there are "
                     f"{os.cpu_count()} cores")
    if options.engines and not knows_nodes(options.device):
        raise Failed("--engines: this `cleaved` has no --node")
    if options.engines and options.cpu and (CGROUPS / "cgroup.controllers").exists():
        raise NotPermitted("shares of the engines of one process need control groups of version 1")


def device_program(given):
    """The command that starts a device, without its arguments."""
    candidates = [given] if given else [os.environ.get("CLEAVE_BINARY")]
    if not given:
        built = [TARGET / profile / name for profile in ("release", "debug") for name in ("cleaved", "cleave")]
        candidates += sorted((path for path in built if path.exists()), key=lambda path: -path.stat().st_mtime)
    for path in filter(None, candidates):
        if not Path(path).exists():
            raise Failed(f"{path} is not there")
        path = Path(path).resolve()
        return [path] if path.name == "cleaved" else [path, "device-process"]
    raise Failed("there is no device program: run `cargo build --release`, or give --device")


def knows_nodes(given):
    """Whether the device program can have several engines in a process."""
    program = device_program(given)
    # `cleave` has a help of its own.
    asked = ["--help"] if len(program) == 1 else ["--", "--help"]
    return "--node" in tool(*program, *asked)


def make_credentials(folder, addresses):
    """Token, certificate and key in a folder, as they are there or new ones, for devices at these addresses."""
    made = Credentials(*(folder / name for name in ("token", "certificate.pem", "key.pem")))
    if not made.token.exists():
        tool("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30,
             "-subj", "/CN=cleave-testbed", "-addext",
             "subjectAltName=" + ",".join(f"IP:{address}" for address in addresses), "-keyout", made.key,
             "-out", made.certificate)
        made.token.write_text(secrets.token_hex(16))
        made.token.chmod(0o600)
        made.key.chmod(0o600)
    return made


def start_cleaved(program, devices, credentials, node=None, before=(), dies_with_parent=True):
    """Starts a process with one device, or with the engines of a node; returns it once hosts can connect.

    Ports are in the devices' files called `port`. `before` are words in front of the command.
    """
    command = [*before, *device_program(program), *(["--node", node] if node else []), "--token-file",
               credentials.token, "--tls-cert", credentials.certificate, "--tls-key", credentials.key]
    for device in devices:
        device.file("port").unlink(missing_ok=True)
        command += ["--media", device.file("pages", ".media"), "--listen", device.listen, "--port-file",
                    device.file("port")]
        for name, value in (("--cores", device.cores), ("--memory", device.memory)):
            if value is not None:
                command += [name, value]
    # A share of one engine is that of its threads.
    groups = devices[0].cgroups if len(devices) == 1 else []
    log = devices[0].file("device", ".log")
    with open(log, "ab") as complaints:
        process = subprocess.Popen(as_text(command), stdin=subprocess.DEVNULL, stdout=complaints, stderr=complaints,
                                   start_new_session=True, preexec_fn=lambda: enter_cgroups(groups, dies_with_parent))
    try:
        deadline = time.monotonic() + 60
        while not all(device.file("port").exists() and device.file("port").read_text().strip() for device in devices):
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failed("the device does not start: " + log.read_text()[-2000:])
            time.sleep(0.02)
        if len(devices) > 1 and devices[0].cgroups:
            process.limiting = limit_engines(process.pid, [device.cgroups for device in devices])
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def limit_engines(process, groups_of):
    """Puts the threads of each engine that run fragments into its control groups, and starts a process that does so
    with later ones: those that a thread without a limit begins have none."""
    threads = {}
    for place in Path(f"/proc/{process}/task").iterdir():
        if found := re.fullmatch(FRAGMENT_THREADS + r"(\d+)", (place / "comm").read_text().strip()):
            threads.setdefault(int(found[1]), []).append(place.name)
    if len(threads) != len(groups_of):
        raise Failed(f"the threads of {len(groups_of)} engines cannot be told apart: those of {len(threads)} are found")
    engines = dict(zip(sorted(threads), groups_of))
    for number, groups in engines.items():
        for group in groups:
            for thread in threads[number]:
                (group / "tasks").write_text(thread)
    limits = [f"{number}={':'.join(map(str, groups))}" for number, groups in engines.items() if groups]
    return subprocess.Popen(as_text(probe("limit", process, *limits)), stdin=subprocess.DEVNULL,
                            start_new_session=True)


def in_namespace(namespace, command):
    return ["ip", "netns", "exec", namespace, *command]


def output(namespace, command):
    return tool(*(in_namespace(namespace, command) if namespace else command))


def ip(*arguments):
    return tool("ip", *arguments)


def tool(*command):
    done = subprocess.run(as_text(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failed(f"{' '.join(as_text(command))}: {done.stderr.strip()}")
    return done.stdout


def as_text(command):
    return [str(part) for part in command]


def rate_bits(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", text.lower())
    if not match:
        raise argparse.ArgumentTypeError(f"`{text}` is not a rate; write 100mbit or 1gbit")
    return int(float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[match[2]])


def cpu_share(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    if not match or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"`{text}` is not a share of a core; write 25% or 150%")
    return float(match[1]) / 100


# --- the testbed's own test ----------------------------------------------------------------------

SELF_TEST = ["--rate", "200mbit", "--cpu", "25%", "--host-cpu", "20%", "--read-mbps", "50", "--write-mbps", "40"]
SELF_TEST_NODES = ["--devices", "3", "--nodes", "2", "--rate", "200mbit", "--cpu", "25%", "--node-cpu", "50%"]


def self_test(options):
    started = time.monotonic()
    remove_leftovers()
    before = standing()
    device = ["--device", options.device] if options.device else []
    cleave = device_program(options.device)[0].with_name("cleave")
    if not cleave.exists():
        raise Failed(f"{cleave} is not there: run `cargo build`")
    with tempfile.TemporaryDirectory(prefix="cleave-selftest-") as folder:
        # 1. The limits hold, a statement crosses the link, and the command's exit code comes back.
        place = Path(folder) / "db"
        script = (f"'{cleave}' sql --create --db '{place}' -c 'SELECT 1' >/dev/null && "
                  f"'{cleave}' device add far --db '{place}' --address $CLEAVE_TESTBED_ADDRESS "
                  "--token-file $CLEAVE_TESTBED_TOKEN_FILE --ca $CLEAVE_TESTBED_CA && "
                  f"'{cleave}' sql --db '{place}' --set default_device=far -c 'CREATE TABLE t (a bigint)' "
                  "-c 'INSERT INTO t VALUES (1), (2), (40)' && "
                  f"'{cleave}' sql --db '{place}' --format csv --set split=h0 -c 'SELECT sum(a) FROM t' | grep -qx 43 "
                  "&& exit 7")
        expect(again(SELF_TEST + device + ["--delay-ms", "5", "--", "sh", "-c", script]), 7, "a run with a device")
        # 2. The same with a table over three devices on two nodes, beside the processors of both.
        place = Path(folder) / "many"
        script = (f"'{cleave}' sql --create --db '{place}' -c 'SELECT 1' >/dev/null && number=0 && "
                  "for address in $CLEAVE_TESTBED_ADDRESSES $CLEAVE_TESTBED_NODE_ADDRESSES; do "
                  f"number=$((number + 1)); '{cleave}' device add d$number --db '{place}' --address $address "
                  "--token-file $CLEAVE_TESTBED_TOKEN_FILE --ca $CLEAVE_TESTBED_CA || exit 1; done; "
                  f"'{cleave}' sql --db '{place}' --set default_device=d1,d2,d3,d4,d5 -c 'CREATE TABLE t (a bigint)' "
                  "-c 'INSERT INTO t SELECT i FROM generate_series(1, 100000) AS g (i)' && "
                  f"'{cleave}' sql --db '{place}' --format csv --set split=h0 -c 'SELECT sum(a) FROM t' | "
                  "grep -qx 5000050000 && exit $number")
        expect(again(SELF_TEST_NODES + device + ["--", "sh", "-c", script]), 5, "a run with three devices")
    # 3. Limits that do not bite are found: a link, and one of two devices, are made faster behind the testbed's back.
    parsed = options_of(rate=rate_bits("100mbit"))
    with Testbed(parsed) as testbed:
        shape(testbed.host, testbed.nodes[0].host_end[0], 2 * parsed.rate, "change")
        expect_off(testbed, "a link of twice the rate")
    with Testbed(options_of(devices=2, cpu=0.4)) as testbed:
        set_cpu(testbed.devices[1].cgroups[0], 0.8)
        expect_off(testbed, "a device with twice its share")
    # 4. A thread of an engine that comes later, and at first has another name, is in its engine's group too.
    with Testbed(options_of(devices=2, cpu=0.4, no_device=True)) as testbed:
        expect_limited(testbed)
    # 5. A run that is killed leaves its namespaces, and the next one removes them, with what runs inside.
    killed = again(["--rate", "100mbit", "--no-device", "--devices", "2", "--nodes", "2", "--cpu", "40%", "--", "sh",
                    "-c", "sleep 1000 & kill -9 $(ps -o ppid= -p $$)"], stdout=subprocess.DEVNULL)
    expect(killed, -signal.SIGKILL, "a run that is killed")
    if standing() == before:
        raise AssertionError("the killed run left nothing: the test tests nothing")
    expect(again(["--no-device", "--", "true"]), 0, "a run after that")
    if standing() != before:
        raise AssertionError(f"left behind: {standing()}, before: {before}")
    print(f"testbed: self-test passed in {time.monotonic() - started:.0f} s")
    return 0


def expect_off(testbed, what):
    try:
        testbed.verify(attempts=2)
    except Failed:
        return
    raise AssertionError(f"{what} passed")


ENGINES = """
import ctypes, threading, time
def engine(number, later=()):
    ctypes.CDLL(None).prctl(15, f"fragment-{number}".encode())
    time.sleep(0.5)
    [threading.Thread(target=engine, args=[one]).start() for one in later]
    time.sleep(60)
[threading.Thread(target=engine, args=[number, [5]]).start() for number in (3, 5)]
"""


def expect_limited(testbed):
    groups = [device.cgroups for device in testbed.devices]
    with Spawned([], [sys.executable, "-c", ENGINES]) as process:
        deadline, limiting, found = time.monotonic() + 45, None, []
        while found != [1, 3] and time.monotonic() < deadline:
            time.sleep(0.02)
            # The interpreter starts, and then the engines get their names.
            with contextlib.suppress(Failed):
                limiting = limiting or limit_engines(process.pid, groups)
            found = [len((group / "tasks").read_text().split()) for [group] in groups]
    expect((found, limiting and limiting.wait(60)), ([1, 3], 0), "the threads of two engines")


def again(arguments, **others):
    return subprocess.run(as_text([sys.executable, __file__, *arguments]), stdin=subprocess.DEVNULL,
                          **others).returncode


def expect(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what} ended with {found}, not {wanted}")


def standing():
    groups = [path.name for parent in (CGROUPS, CGROUPS / "cpu", CGROUPS / "blkio") for path in parent.glob(NAME + "*")]
    folders = [path.name for path in Path(tempfile.gettempdir()).glob(NAME + "*")]
    return sorted(tool("ip", "netns", "list").split()), sorted(groups), sorted(folders)


if __name__ == "__main__":
    sys.exit(main())
