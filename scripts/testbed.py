#!/usr/bin/env python3
"""A testbed on one machine: a host and a device with a link, a processor and a disk of given speed between them.

    scripts/testbed.py --rate 1gbit --cpu 25% --read-mbps 200 -- COMMAND...
    scripts/testbed.py --self-test     everything at once, in under half a minute; exit code 77 if not permitted
    scripts/testbed.py --clean         removes what killed runs and --keep left behind

Two network namespaces are joined by a veth pair that token buckets shape at both ends. `cleaved` runs in the one called
device, inside a CPU quota and an I/O limit; COMMAND runs in the one called host. Each limit is measured before COMMAND
starts, and a limit that does not hold ends the run, because its figures would be worthless. Neither namespace has a
route to the outside. COMMAND finds the device through

    CLEAVE_TESTBED_ADDRESS      the device's address, for `cleave device add --address`
    CLEAVE_TESTBED_TOKEN_FILE   its token, for --token-file
    CLEAVE_TESTBED_CA           its certificate, for --ca
    CLEAVE_TESTBED_DIR          the folder of --state, which holds them and the media

Needs root, iproute2, openssl, and control groups (version 1 or 2) with the controllers of the requested limits. netem
is not available everywhere, so --delay-ms is a proxy in user space, on the device's side of the link.
"""

import argparse
import collections
import contextlib
import ctypes
import fcntl
import mmap
import os
import re
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
RUNS = Path("/run/cleave-testbed")
CGROUPS = Path("/sys/fs/cgroup")
NAME = "cleave-testbed-"

HOST_ADDRESS, DEVICE_ADDRESS = "10.99.0.1", "10.99.0.2"
PORT, PROXY_PORT, PROBE_PORT = 7700, 7701, 7702

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
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], epilog="After `--` comes the command to run, on the host's side.")
    parser.add_argument("--rate", type=rate_bits, help="what the link carries in each direction, as in 1gbit")
    parser.add_argument("--delay-ms", type=float, help="added to each direction, by a proxy in user space")
    parser.add_argument("--cpu", type=cpu_share, help="the device's share of a core, as in 25%% or 150%%")
    parser.add_argument("--host-cpu", type=cpu_share, help="the command's share of a core, with all that it starts")
    parser.add_argument("--read-mbps", type=float, help="million bytes a second that the device may read")
    parser.add_argument("--write-mbps", type=float, help="million bytes a second that the device may write")
    parser.add_argument("--cores", type=int, help="threads that run fragments (cleaved --cores)")
    parser.add_argument("--memory", help="memory for fragments (cleaved --memory)")
    parser.add_argument("--state", type=Path, help="folder of media, token and certificate; kept (default: a new "
                        "one, removed at the end)")
    parser.add_argument("--device", type=Path, help="the program: cleaved, or cleave (default: CLEAVE_BINARY, or "
                        "what cargo built last)")
    parser.add_argument("--no-device", action="store_true", help="start no device; the command gets a bare link")
    parser.add_argument("--keep", action="store_true", help="leave all standing after the command")
    parser.add_argument("--self-test", action="store_true", help="check the testbed itself")
    parser.add_argument("--clean", action="store_true", help="remove what killed runs and --keep left behind")
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


def ended_by_signal(number, _frame):
    sys.exit(128 + number)


def run_in_testbed(options, command):
    remove_leftovers()
    with Testbed(options) as testbed:
        testbed.verify()
        environment = dict(os.environ)
        if not options.no_device:
            environment |= testbed.start_device()
        done = subprocess.run(in_namespace(testbed.host, command), env=environment,
                              preexec_fn=lambda: enter_cgroups(testbed.host_cgroups, dies_with_parent=False))
        if options.keep:
            testbed.keep()
        return done.returncode if done.returncode >= 0 else 128 - done.returncode


# --- what a testbed is made of -------------------------------------------------------------------

class Testbed:
    """Namespaces, link, control groups and device of one run; removed at the end, whatever happens."""

    def __init__(self, options):
        self.options = options
        self.id = str(os.getpid())
        self.host, self.device = f"{NAME}{self.id}-host", f"{NAME}{self.id}-device"
        self.kept = False
        self.processes = []
        self.cgroups, self.host_cgroups = [], []

    def __enter__(self):
        RUNS.mkdir(parents=True, exist_ok=True)
        # Held while this process lives: a run whose lock can be taken is a leftover.
        self.lock = open(RUNS / self.id, "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            self.state = self.make_state()
            if self.options.state is None:
                # For whoever has to remove what this run leaves.
                print(self.state, file=self.lock, flush=True)
            self.make_network()
            self.cgroups = Cgroups(self.id, self.options, self.state).make()
            host = argparse.Namespace(cpu=self.options.host_cpu, read_mbps=None, write_mbps=None)
            self.host_cgroups = Cgroups(f"{self.id}-host", host, self.state).make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        if not self.kept:
            self.remove()

    def keep(self):
        """Leaves everything running, for --clean to remove."""
        self.kept = True
        (RUNS / f"{self.id}.kept").write_text("")
        print(f"testbed: kept; enter the host's side with `ip netns exec {self.host} COMMAND`; "
              f"the device listens on {self.address()}; its files are in {self.state}; "
              f"remove all with `{sys.argv[0]} --clean`", file=sys.stderr)

    def remove(self):
        for process in self.processes:
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
        ends = [(self.host, f"cleave{self.id}h", HOST_ADDRESS), (self.device, f"cleave{self.id}d", DEVICE_ADDRESS)]
        for namespace, _, _ in ends:
            ip("netns", "add", namespace)
        ip("link", "add", ends[0][1], "netns", self.host, "type", "veth", "peer", "name", ends[1][1],
           "netns", self.device)
        for namespace, interface, address in ends:
            ip("-n", namespace, "address", "add", f"{address}/30", "dev", interface)
            ip("-n", namespace, "link", "set", interface, "up")
            ip("-n", namespace, "link", "set", "lo", "up")
            if self.options.rate:
                shape(namespace, interface, self.options.rate)

    def verify(self):
        """Measures every requested limit, and fails if one does not hold."""
        for name, holds in self.checks():
            for attempt in range(ATTEMPTS):
                good, text = holds()
                last = attempt == ATTEMPTS - 1
                verdict = "" if good else (": this testbed does not hold" if last else ": off, measuring again")
                print(f"testbed: {name}: {text}{verdict}", file=sys.stderr)
                if good:
                    break
                if last:
                    raise Failed(f"{name} is not what was asked for; the machine may be too busy, or the limit "
                                 "may not reach what it should limit")

    def checks(self):
        checks = [("link, host to device", lambda: self.link_holds(self.host, self.device)),
                  ("link, device to host", lambda: self.link_holds(self.device, self.host))]
        if self.options.cpu:
            checks.append(("CPU", lambda: cpu_holds(self.cgroups, self.options.cpu)))
        if self.options.host_cpu:
            checks.append(("CPU of the host", lambda: cpu_holds(self.host_cgroups, self.options.host_cpu)))
        if self.options.read_mbps:
            checks.append(("reading", lambda: self.disk_holds("read", self.options.read_mbps)))
        if self.options.write_mbps:
            checks.append(("writing", lambda: self.disk_holds("write", self.options.write_mbps)))
        if self.options.delay_ms:
            checks.append(("delay", self.delay_holds))
        return checks

    def link_holds(self, source, sink):
        wanted = self.options.rate
        # Half a second of the rate asked for, within reason where none was.
        size = min(max((wanted or 8_000_000_000) // 16, 1 << 20), 512 << 20)
        address = DEVICE_ADDRESS if sink == self.device else HOST_ADDRESS
        bits, round_trip_ms = measure_link(source, sink, address, size)
        text = f"{bits / 1e6:.0f} Mbit/s, round trip {round_trip_ms:.2f} ms"
        if not wanted:
            return True, text + ", not limited"
        return within(bits, wanted, LINK_TOLERANCE), text + asked(wanted / 1e6, "Mbit/s", LINK_TOLERANCE)

    def disk_holds(self, direction, wanted_mbps):
        rate = measure_disk(self.cgroups, self.state, direction, wanted_mbps)
        return (within(rate, wanted_mbps, DISK_TOLERANCE),
                f"{rate:.1f} MB/s, direct" + asked(wanted_mbps, "MB/s", DISK_TOLERANCE))

    def delay_holds(self):
        with Spawned([], in_namespace(self.device, probe("echo", DEVICE_ADDRESS, PROBE_PORT))) as _:
            with Spawned([], in_namespace(self.device, self.proxy(PROBE_PORT))) as _:
                round_trip_ms = float(output(self.host, probe("ping", DEVICE_ADDRESS, PROXY_PORT)))
        wanted = 2 * self.options.delay_ms
        return (wanted <= round_trip_ms <= wanted + 2 * DELAY_TOLERANCE_MS,
                f"round trip {round_trip_ms:.2f} ms, {wanted:g} ms asked for (up to {2 * DELAY_TOLERANCE_MS:g} more)")

    def proxy(self, port):
        return probe("proxy", DEVICE_ADDRESS, PROXY_PORT, port, self.options.delay_ms)

    def address(self):
        return f"{DEVICE_ADDRESS}:{PROXY_PORT if self.options.delay_ms else PORT}"

    def start_device(self):
        """Starts the device; returns what COMMAND needs to know of it."""
        token, certificate, key = (self.state / name for name in ("token", "certificate.pem", "key.pem"))
        if not token.exists():
            make_credentials(token, certificate, key)
        port_file = self.state / "port"
        port_file.unlink(missing_ok=True)
        arguments = ["--media", self.state / "pages.media", "--listen", f"{DEVICE_ADDRESS}:{PORT}", "--token-file",
                     token, "--tls-cert", certificate, "--tls-key", key, "--port-file", port_file]
        for name, value in (("--cores", self.options.cores), ("--memory", self.options.memory)):
            if value is not None:
                arguments += [name, value]
        program = device_program(self.options.device)
        log = open(self.state / "device.log", "ab")
        device = subprocess.Popen(as_text(in_namespace(self.device, program + arguments)), stdin=subprocess.DEVNULL,
                                  stdout=log, stderr=log, start_new_session=True,
                                  preexec_fn=lambda: enter_cgroups(self.cgroups,
                                      dies_with_parent=not self.options.keep))
        self.processes.append(device)
        if self.options.delay_ms:
            self.processes.append(subprocess.Popen(as_text(in_namespace(self.device, self.proxy(PORT))),
                                                   stdin=subprocess.DEVNULL, start_new_session=True))
        deadline = time.monotonic() + 60
        while not port_file.exists():
            if device.poll() is not None or time.monotonic() > deadline:
                raise Failed("the device does not start: " + (self.state / "device.log").read_text()[-2000:])
            time.sleep(0.02)
        return {"CLEAVE_TESTBED_ADDRESS": self.address(), "CLEAVE_TESTBED_TOKEN_FILE": str(token),
                "CLEAVE_TESTBED_CA": str(certificate), "CLEAVE_TESTBED_DIR": str(self.state)}


def shape(namespace, interface, rate, verb="add"):
    # A segment of up to 64 KiB must fit in the bucket, and 2 ms of the rate keep it from running dry between ticks.
    burst = max(128 << 10, rate // 8 // 500)
    tool("tc", "-n", namespace, "qdisc", verb, "dev", interface, "root", "tbf", "rate", f"{rate}bit",
         "burst", burst, "latency", "50ms")


def cpu_holds(groups, wanted):
    share = measure_cpu(groups)
    period, _ = cpu_quota(wanted)
    text = f"{share:.1%} of a core in periods of {period / 1000:g} ms"
    if period > CPU_PERIOD_US:
        text += (f" (the kernel takes no quota below {CPU_QUOTA_MIN_US / 1000:g} ms, so a share this small "
                 "comes late as well as slow)")
    return within(share, wanted, CPU_TOLERANCE), text + asked(wanted * 100, "%", CPU_TOLERANCE)


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


def measure_cpu(groups):
    """The share of a core that loops get on all cores together, in the same second."""
    spinners = [Spawned(groups, probe("spin", 1.0)) for _ in range(os.cpu_count())]
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(spinner) for spinner in spinners]
        # Starting takes of the quota too, and a loop that runs before the others has all of it to itself.
        for process in running:
            process.stdout.readline()
        start = time.monotonic() + 0.1
        for process in running:
            print(start, file=process.stdin, flush=True)
        return sum(float(process.communicate(timeout=120)[0]) for process in running)


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
    """A process of this script, in control groups, ended with the block."""

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
    """Runs this script again, as one side of a measurement."""
    return [sys.executable, __file__, "--probe", *arguments]


def probe_main(kind, *arguments):
    {"receive": probe_receive, "send": probe_send, "spin": probe_spin, "disk": probe_disk, "echo": probe_echo,
     "ping": probe_ping, "proxy": probe_proxy}[kind](*arguments)


def probe_receive(address, port, size):
    """Answers pings until the transfer comes; prints its bits a second without the bucket's initial content."""
    connection = accept(address, port)
    size, received, buffer = int(size), 0, bytearray(1 << 20)
    for _ in range(PINGS):
        connection.sendall(connection.recv(1))
    head, start, counted = size // 5, None, 0
    while received < size:
        count = connection.recv_into(buffer)
        if count == 0:
            sys.exit("the transfer ended early")
        received += count
        if start is None and received >= head:
            start, counted = time.perf_counter(), received
    print((received - counted) * 8 / (time.perf_counter() - start))


def probe_send(address, port, size):
    connection = connect(address, port)
    print(round_trip_ms(connection))
    left, chunk = int(size), bytes(1 << 18)
    while left > 0:
        connection.sendall(chunk[:left])
        left -= len(chunk)
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)


def probe_echo(address, port):
    connection = accept(address, port)
    while data := connection.recv(1):
        connection.sendall(data)


def probe_ping(address, port):
    print(round_trip_ms(connect(address, port)))


PINGS = 20


def round_trip_ms(connection):
    times = []
    for _ in range(PINGS):
        start = time.perf_counter()
        connection.sendall(b"x")
        connection.recv(1)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def accept(address, port):
    listener = socket.create_server((address, int(port)))
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def connect(address, port):
    deadline = time.monotonic() + 20
    while True:
        try:
            connection = socket.create_connection((address, int(port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def probe_spin(seconds):
    """Reports that it is ready, reads when to start, and prints its share of a core over `seconds` from then."""
    print("ready", flush=True)
    start = float(sys.stdin.readline())
    end = start + float(seconds)
    time.sleep(max(0.0, start - time.monotonic()))
    used = time.process_time()
    while time.monotonic() < end:
        pass
    print((time.process_time() - used) / (time.monotonic() - start))


def probe_disk(direction, path, mebibytes):
    block = 1 << 20
    buffer = mmap.mmap(-1, block)
    flags = os.O_RDONLY if direction == "read" else os.O_WRONLY | os.O_CREAT
    file = os.open(path, flags | os.O_DIRECT, 0o600)
    start = time.perf_counter()
    for number in range(int(mebibytes)):
        transfer = os.preadv if direction == "read" else os.pwritev
        if transfer(file, [buffer], number * block) != block:
            sys.exit("a short transfer")
    print(int(mebibytes) * block / (time.perf_counter() - start) / 1e6)
    os.close(file)


# --- the proxy that adds delay -------------------------------------------------------------------

def probe_proxy(address, listen_port, port, delay_ms):
    """Forwards bytes after a delay, in both directions, connection by connection."""
    listener = socket.create_server((address, int(listen_port)))
    while True:
        near, _ = listener.accept()
        try:
            far = connect(address, port)
        except OSError:
            near.close()
            continue
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=hand_on, args=(source, sink, float(delay_ms) / 1e3), daemon=True).start()


PROXY_BYTES_MAX = 64 << 20


def hand_on(source, sink, delay):
    waiting, ready = collections.deque(), threading.Condition()

    def write():
        while True:
            with ready:
                ready.wait_for(lambda: waiting)
                due, data = waiting.popleft()
                ready.notify_all()
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            try:
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
            except OSError:
                # The far side is gone: so is this connection, in both directions.
                with contextlib.suppress(OSError):
                    source.shutdown(socket.SHUT_RDWR)
                return

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    data = b"-"
    while data:
        try:
            data = source.recv(1 << 18)
        except OSError:
            data = b""
        with ready:
            # Bounded by what a link of its rate holds on the way, and by this.
            while sum(len(chunk) for _, chunk in waiting) > PROXY_BYTES_MAX and writer.is_alive():
                ready.wait(0.1)
            waiting.append((time.monotonic() + delay, data))
            ready.notify_all()


# --- leaving nothing behind ----------------------------------------------------------------------

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
    namespaces = [f"{NAME}{run_id}-host", f"{NAME}{run_id}-device"]
    groups = [path / (NAME + run_id + side) for path in (CGROUPS, CGROUPS / "cpu", CGROUPS / "blkio")
              for side in ("", "-host")]
    standing = [name for name in namespaces if Path("/run/netns", name).exists()]
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
    for name, share in (("--cpu", options.cpu), ("--host-cpu", options.host_cpu)):
        if share and share >= os.cpu_count():
            raise Failed(f"{name} {share:.0%} is no limit: there are {os.cpu_count()} cores")


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


def make_credentials(token, certificate, key):
    token.write_text(secrets.token_hex(16))
    tool("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30,
         "-subj", "/CN=cleave-testbed", "-addext", f"subjectAltName=IP:{DEVICE_ADDRESS}", "-keyout", key,
         "-out", certificate)
    token.chmod(0o600)
    key.chmod(0o600)


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
    # 2. A limit that does not bite is found: the link is made faster behind the testbed's back.
    parsed = argparse.Namespace(rate=rate_bits("100mbit"), cpu=None, host_cpu=None, read_mbps=None, write_mbps=None,
                                delay_ms=None, state=None)
    with Testbed(parsed) as testbed:
        shape(testbed.host, f"cleave{testbed.id}h", 2 * parsed.rate, "change")
        try:
            testbed.verify()
            raise AssertionError("a link of twice the rate passed")
        except Failed:
            pass
    # 3. A run that is killed leaves its namespaces, and the next one removes them, with what runs inside.
    killed = again(["--rate", "100mbit", "--no-device", "--", "sh", "-c",
                    "sleep 1000 & kill -9 $(ps -o ppid= -p $$)"], stdout=subprocess.DEVNULL)
    expect(killed, -signal.SIGKILL, "a run that is killed")
    if standing() == before:
        raise AssertionError("the killed run left nothing: the test tests nothing")
    expect(again(["--no-device", "--", "true"]), 0, "a run after that")
    if standing() != before:
        raise AssertionError(f"left behind: {standing()}, before: {before}")
    print(f"testbed: self-test passed in {time.monotonic() - started:.0f} s")
    return 0


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
    if sys.argv[1:2] == ["--probe"]:
        probe_main(*sys.argv[2:])
    else:
        sys.exit(main())
