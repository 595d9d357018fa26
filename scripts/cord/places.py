"""Where the devices are, how they are started and attached, and what their links have carried.

    remote    processes of `cleaved` on this machine over TCP with TLS; each has a capped link of its own, and with a
              share of a core a control group of its own
    testbed   processes of `cleaved` in the namespaces of nodes, whose links are shaped (scripts/testbed.py)

The devices of a node are processes, or with `--engines` engines of one process. Beside them stands, where an experiment
compares with it, a process for each node's own processor, which has the shares of the node's devices unless it is given
another one. Limits are measured before anything else: shares of a core by loops, all at once; shaped links by
transfers; a capped link by what the device's profile says of it.
"""

import contextlib
import json
import os
import re
import signal
import time
from pathlib import Path

import bench
import servers
import testbed
from ndp import places as ndp_places
from update import counters
from update import places as update_places

from .topology import Topology

NAMES = ["remote", "testbed"]
# A cap refills in bursts.
CAP_TOLERANCE = 0.1
# Until a new thread is in its control groups.
SETTLING_SECONDS = 2


def of_options(options, has_processors):
    """The place that the options ask for."""
    if options.place == "testbed":
        return Testbed(options, has_processors)
    return Remote(options, has_processors)


def node_share(options):
    """What a node's own processor has of a core: as given, or that of its devices; None: no limit."""
    if options.node_cpu or not options.cpu:
        return testbed.cpu_share(options.node_cpu) if options.node_cpu else None
    return testbed.cpu_share(options.cpu) * -(-options.devices // options.nodes)


class Place:
    """What both places have in common; to `update`, this is one device that consists of several."""

    process, has_shares = None, False

    def __init__(self, options, has_processors):
        self.options = options
        self.topology = Topology(options.devices, options.nodes, has_processors)
        # Where new tables lie.
        self.device = ",".join(self.topology.devices)
        self.cpu, self.node_cpu = testbed.cpu_share(options.cpu) if options.cpu else None, node_share(options)

    def limits(self):
        """As the testbed's options say it."""
        options = self.options
        return testbed.options_of(devices=options.devices, nodes=options.nodes, cpu=self.cpu, engines=options.engines,
                                  node_cpu=self.node_cpu if self.topology.processors else None,
                                  device=ndp_places.device_program())

    def attach(self, database):
        for name, (address, token, certificate, cap) in self.addresses().items():
            servers.output([bench.CLEAVE, "device", "add", name, "--address", address, "--token-file", token, "--ca",
                            certificate, *(["--rate-cap", cap] if cap else []), "--db", database])
        if not self.options.quick:
            for name, (_, _, _, cap) in self.addresses().items():
                self.profile(database, name, cap)

    def profile(self, database, name, cap):
        """Has a device measured as it is limited here, for whoever chooses by cost, and its cap checked."""
        said = servers.output([bench.CLEAVE, "device", "profile", name, "--again", "--json", "--db", database])
        rate = next(one["value"] for one in json.loads(said) if (one["side"], one["figure"]) == ("link", "rate"))
        capped = f", capped at {cap / 1e6:g}" if cap else ""
        print(f"  {name}: {rate / 1e6:.1f} MB/s over its link{capped}", flush=True)
        if cap and rate > cap * (1 + CAP_TOLERANCE):
            raise testbed.Failed(f"the link of {name} carries {rate / 1e6:.1f} MB/s, more than its cap")

    def check_shares(self):
        """Fails if threads that run fragments are outside of all shares, or in those of another engine. Engines of a
        process have theirs by thread, and new threads are put there within a moment."""
        deadline = time.monotonic() + SETTLING_SECONDS
        while stray := [fault for process in self.processes() if self.cpu for fault in stray_threads(process)]:
            if time.monotonic() > deadline:
                raise testbed.Failed("; ".join(stray))
            time.sleep(0.1)

    def kill(self):
        raise AssertionError("no experiment kills all of these devices")

    def lose(self, name, is_hanging=False):
        """Kills the process of one device, or stops it, so that it hangs; where each device is a process."""
        os.kill(self.process_of(name), signal.SIGSTOP if is_hanging else signal.SIGKILL)


def stray_threads(process):
    """What is wrong with the control groups of a process's threads that run fragments."""
    groups_of = {}
    for place in Path(f"/proc/{process}/task").iterdir():
        # It may end at any moment.
        with contextlib.suppress(OSError):
            name, groups = ((place / file).read_text().strip() for file in ("comm", "cgroup"))
            if name.startswith(testbed.FRAGMENT_THREADS):
                groups_of.setdefault(name, set()).add(tuple(sorted(set(re.findall(testbed.NAME + r"\S+", groups)))))
    return ([f"a thread {name} of process {process} runs fragments without a limit"
             for name, groups in groups_of.items() if () in groups]
            + [f"the threads {name} of process {process} are in the control groups {sorted(groups)}"
               for name, groups in groups_of.items() if len(groups) > 1 and () not in groups])


class Remote(Place):
    """Processes of this machine."""

    name = "remote"

    def __init__(self, options, has_processors):
        super().__init__(options, has_processors)
        parts = [f"{options.rate} a device" if options.rate else "", f"{options.cpu} of a core a device"
                 if options.cpu else ""]
        self.timing = "capped at " + ", ".join(filter(None, parts)) if any(parts) else "unthrottled"
        self.timing += ", engines" if options.engines else ""
        self.running, self.members, self.lock = {}, {}, None
        testbed.check_possible(self.limits())

    def start(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        limits = self.limits()
        if limits.cpu or limits.node_cpu:
            testbed.check_permitted(limits)
            testbed.remove_leftovers()
            self.lock = testbed.lock_run(str(os.getpid()))
        try:
            for name in self.topology.devices:
                self.members[name] = self.member(name, folder, limits.cpu, self.options.cores)
            for name in self.topology.processors:
                self.members[name] = self.member(name, folder, limits.node_cpu,
                                                 len(self.topology.of_processor(name)) * self.options.cores)
            testbed.verify(self.checks(limits))
            self.credentials = testbed.make_credentials(folder, ["127.0.0.1"])
            for names, node in self.programs():
                members = [self.members[name] for name in names]
                self.running[names[0]] = testbed.start_cleaved(limits.device, members, self.credentials, node)
        except BaseException:
            self.stop()
            raise

    def member(self, name, folder, share, cores):
        """A device to start; its files and control groups have its name."""
        groups = testbed.Cgroups(f"{os.getpid()}-{name}", testbed.options_of(cpu=share), folder).make()
        return testbed.Device(folder, f"-{name}", "127.0.0.1:0", cores=cores, memory=self.options.fragment_memory,
                              cgroups=groups)

    def programs(self):
        """[(names, what the process is called as a node)]."""
        found = [([name], None) for name in [*self.topology.devices, *self.topology.processors]]
        if self.options.engines:
            found = [(names, f"node-{number}") if len(names) > 1 else (names, None)
                     for number, names in enumerate(self.topology.nodes, 1)]
            found += [([name], None) for name in self.topology.processors]
        return found

    def checks(self, limits):
        checks = []
        for what, names, share in (("devices", self.topology.devices, limits.cpu),
                                   ("nodes", self.topology.processors, limits.node_cpu)):
            if share and names:
                groups = [self.members[name].cgroups for name in names]
                checks.append((f"CPU of {len(names)} {what} at once",
                               lambda groups=groups, share=share: testbed.cpus_hold(groups, share)))
        return checks

    def addresses(self):
        """{name: (address, token, certificate, cap in bytes a second)}."""
        found = {}
        for name, member in self.members.items():
            # What stands for several devices has the links of all of them.
            links = len(self.topology.of_processor(name)) if name in self.topology.processors else 1
            cap = testbed.rate_bits(self.options.rate) // 8 * links if self.options.rate else None
            found[name] = (f"127.0.0.1:{self.port(member)}", self.credentials.token, self.credentials.certificate, cap)
        return found

    @staticmethod
    def port(member):
        return int(member.file("port").read_text())

    def processes(self):
        return [process.pid for process in self.running.values()]

    def process_of(self, name):
        return self.running[name].pid

    def bring_back(self, name):
        """Starts a device that was lost, with its media and at its port."""
        servers.stop(self.running[name], signal.SIGKILL)
        member = self.members[name]
        # It was given a port, and the database remembers it.
        member.listen = f"127.0.0.1:{self.port(member)}"
        self.running[name] = testbed.start_cleaved(self.limits().device, [member], self.credentials)

    def link_bytes(self):
        """(to the host, to the devices) since the connections were made, or None where no counter sees them."""
        found = [counters.connection_traffic(self.port(member)) for member in self.members.values()]
        return tuple(map(sum, zip(*found))) if all(found) else None

    def stop(self):
        for process in self.running.values():
            servers.stop(process)
        self.running = {}
        if self.lock:
            testbed.remove_run(str(os.getpid()))
            self.lock.close()
            self.lock = None


class Testbed(Place):
    """The devices of scripts/testbed.py, in whose host's side this process runs."""

    name = "testbed"

    def __init__(self, options, has_processors):
        # The testbed starts a processor for each node only with a share.
        super().__init__(options, has_processors and node_share(options) is not None)
        self.host_cpu = testbed.cpu_share(options.host_cpu) if options.host_cpu else None
        self.has_shares = bool(self.cpu and self.host_cpu)
        shares = f"{options.devices} devices {options.cpu or 'not limited'}"
        shares += f", host {options.host_cpu}" if options.host_cpu else ""
        self.timing = (f"testbed, {options.nodes} nodes, {options.rate or 'links not shaped'}, {shares}"
                       + (", engines" if options.engines else ""))

    def start(self, _folder):
        if "CLEAVE_TESTBED_DIR" not in os.environ:
            raise AssertionError("not in the testbed's namespace: start with `--place testbed`")
        self.folder, self.restarted = Path(os.environ["CLEAVE_TESTBED_DIR"]), {}
        media = {str(path) for path in self.folder.glob("pages*.media")}
        self.found = [int(place.name) for place in Path("/proc").glob("[0-9]*")
                      if media & set(update_places.command_line(place))]

    def addresses(self):
        addresses = [os.environ[name].split() for name in ("CLEAVE_TESTBED_ADDRESSES", "CLEAVE_TESTBED_NODE_ADDRESSES")]
        proof = os.environ["CLEAVE_TESTBED_TOKEN_FILE"], os.environ["CLEAVE_TESTBED_CA"], None
        names = [self.topology.devices, self.topology.processors]
        if list(map(len, addresses)) != list(map(len, names)):
            raise AssertionError(f"the testbed has {addresses}, and wanted are {names}")
        return {name: (address, *proof) for of, at in zip(names, addresses) for name, address in zip(of, at)}

    def processes(self):
        return self.found

    def process_of(self, name):
        media = str(self.member(name).file("pages", ".media"))
        [found] = [process for process in self.found
                   if media in update_places.command_line(Path("/proc") / str(process))]
        return found

    def member(self, name):
        """A device as the testbed has made it; its place among all gives its files."""
        number = self.topology.devices.index(name)
        return testbed.Device(self.folder, f"-{number + 1}" if number else "", self.addresses()[name][0],
                              cores=self.options.cores, memory=self.options.fragment_memory)

    def lose(self, name, is_hanging=False):
        process = self.process_of(name)
        member = self.member(name)
        # What goes with the process.
        member.cgroups = update_places.testbed_groups(process)
        namespace = testbed.tool("ip", "netns", "identify", process).strip()
        self.lost = process, member, namespace
        super().lose(name, is_hanging)

    def bring_back(self, _name):
        """Starts a device that was lost, with its media, at its port, and with its limits."""
        process, member, namespace = self.lost
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        credentials = testbed.make_credentials(self.folder, [])
        self.found.remove(process)
        if before := self.restarted.pop(process, None):
            before.wait(servers.PATIENCE_SECONDS)
        again = testbed.start_cleaved(bench.CLEAVE, [member], credentials, None,
                                      testbed.in_namespace(namespace, []))
        self.restarted[again.pid] = again
        self.found.append(again.pid)

    def link_bytes(self):
        # The only ways out of this namespace; clients and server talk over its loopback.
        return counters.interface_traffic("cleave")

    def give_host(self, has_both):
        """Gives the host's side, in which this process runs, its own share of the processor, or all devices' too."""
        share = self.host_cpu + (self.cpu * len(self.topology.devices) if has_both else 0)
        testbed.set_cpu(update_places.host_group(), share)

    def stop(self):
        for process in self.restarted.values():
            servers.stop(process)
