"""Where Cleave's device is, how it is started and attached, and what its link has carried.

    embedded   in the server's process; bytes are handed over in memory
    local      `cleaved` on this machine, through shared memory
    remote     `cleaved` on this machine, over TCP with TLS; with a rate it is capped
    testbed    `cleaved` behind a shaped link, in a network namespace of its own (scripts/testbed.py)

A place keeps its media and its port, so a device that was killed is there again for the same database.
"""

import os
import subprocess
import time
from pathlib import Path

import bench
import servers
import testbed

from . import counters

NAMES = ["embedded", "local", "remote", "testbed"]
# The name of the attached device in the database.
DEVICE = "beside"


class Embedded:
    """The server's own device."""

    name, timing, process = "embedded", "unthrottled", None
    # The device that new tables go to; None: the default.
    device = None
    # Whether the host can be given the device's share of the processor, for the baseline at equal silicon.
    has_shares = False

    def start(self, folder):
        pass

    def attach(self, database):
        pass

    def processes(self):
        return []

    def link_bytes(self):
        """(to the host, to the device) since the start, or None where no counter sees them."""
        return None

    def kill(self):
        pass

    def stop(self):
        pass


class Local(Embedded):
    """`cleaved` through shared memory."""

    name, device = "local", DEVICE

    def __init__(self, arguments=()):
        self.arguments = list(arguments)

    def start(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "device.sock"
        self.socket.unlink(missing_ok=True)
        self.run(["--local", self.socket], self.socket)

    def run(self, where, sign):
        """Starts the device and waits until `sign`, a file, shows that it is there."""
        command = [*device_program(), "--media", self.folder / "pages.media", *where, *self.arguments]
        with (self.folder / "device.log").open("a") as log:
            self.process = subprocess.Popen([str(part) for part in command], stderr=log, stdout=log)
        end = time.monotonic() + servers.PATIENCE_SECONDS
        while not sign.exists() or (sign.is_file() and not sign.read_text().strip()):
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the device does not start: {(self.folder / 'device.log').read_text()[-2000:]}")
            time.sleep(0.02)

    def attach(self, database):
        servers.output([bench.CLEAVE, "device", "add", DEVICE, "--local", self.socket, "--db", database])

    def processes(self):
        return [self.process.pid]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process:
            servers.stop(self.process)


class Remote(Local):
    """`cleaved` over TCP of this machine."""

    name = "remote"

    def __init__(self, arguments=(), rate=None):
        super().__init__(arguments)
        self.rate = rate
        self.timing = f"capped at {rate}" if rate else "unthrottled"

    def start(self, folder):
        self.folder = folder
        credentials = bench.Device(folder)
        self.token, self.certificate = credentials.token, credentials.certificate
        port_file = folder / "port"
        # The address is part of what the database remembers: the same port again.
        self.port = int(port_file.read_text()) if port_file.exists() else 0
        port_file.unlink(missing_ok=True)
        self.run(["--listen", f"127.0.0.1:{self.port}", "--token-file", self.token, "--tls-cert", self.certificate,
                  "--tls-key", credentials.key, "--port-file", port_file], port_file)
        self.port = int(port_file.read_text())

    def attach(self, database):
        capped = ["--rate-cap", self.rate] if self.rate else []
        servers.output([bench.CLEAVE, "device", "add", DEVICE, "--address", f"127.0.0.1:{self.port}", "--token-file",
                        self.token, "--ca", self.certificate, *capped, "--db", database])

    def link_bytes(self):
        return counters.connection_traffic(self.port)


class Testbed(Embedded):
    """The device of scripts/testbed.py, in whose host's side this process runs."""

    name, device = "testbed", DEVICE

    def __init__(self, rate, cpu, host_cpu):
        self.cpu, self.host_cpu = (testbed.cpu_share(share) if share else None for share in (cpu, host_cpu))
        self.has_shares = bool(self.cpu and self.host_cpu)
        shares = f"device {cpu or 'not limited'}" + (f", host {host_cpu}" if host_cpu else "")
        self.timing = f"testbed, {rate or 'link not shaped'}, {shares}"

    def start(self, folder):
        if "CLEAVE_TESTBED_DIR" not in os.environ:
            raise AssertionError("not in the testbed's namespace: start with `--place testbed`")
        media = str(Path(os.environ["CLEAVE_TESTBED_DIR"]) / "pages.media")
        self.found = [int(place.name) for place in Path("/proc").glob("[0-9]*") if media in command_line(place)]

    def attach(self, database):
        servers.output([bench.CLEAVE, "device", "add", DEVICE, "--address", os.environ["CLEAVE_TESTBED_ADDRESS"],
                        "--token-file", os.environ["CLEAVE_TESTBED_TOKEN_FILE"], "--ca",
                        os.environ["CLEAVE_TESTBED_CA"], "--db", database])

    def processes(self):
        return self.found

    def link_bytes(self):
        # The only way out of this namespace; clients and server talk over its loopback.
        return counters.interface_traffic("cleave")


    def give_host(self, has_both):
        """Gives the host's side, in which this process runs, its own share of the processor or both."""
        testbed.set_cpu(host_group(), self.host_cpu + self.cpu if has_both else self.host_cpu)


def host_group():
    """The control group of this process that holds its quota."""
    if found := testbed_groups("self"):
        return found[0]
    raise AssertionError("this process has no quota")


def testbed_groups(process):
    """The control groups of the testbed that a process is in."""
    found = []
    for line in Path(f"/proc/{process}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if path.startswith(f"/{testbed.NAME}"):
            # The namespace has a /sys of its own, without the groups; the process that made the testbed sees them.
            maker = path.removeprefix(f"/{testbed.NAME}").partition("-")[0]
            found.append(Path(f"/proc/{maker}/root{testbed.CGROUPS}") / controllers / path[1:])
    return found


def command_line(place):
    try:
        return (place / "cmdline").read_text().split("\0")
    except OSError:
        return []


def device_program():
    """`cleaved` from beside the program, or the same part of the program itself."""
    cleaved = bench.CLEAVE.with_name("cleaved")
    return [cleaved] if cleaved.exists() else [bench.CLEAVE, "device-process"]


def of_options(options):
    """The place that the options ask for."""
    arguments = ["--memory", options.fragment_memory] if options.fragment_memory else []
    if options.place == "embedded":
        return Embedded()
    if options.place == "local":
        return Local(arguments)
    if options.place == "remote":
        return Remote(arguments, options.rate)
    return Testbed(options.rate, options.cpu, options.host_cpu)
