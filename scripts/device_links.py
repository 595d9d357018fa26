"""Devices of scripts that let links fail: processes of one or several devices, and a proxy before each device."""

import socket
import struct
import subprocess
import threading
import time

import servers


class Proxy:
    """Forwards messages between the host and the device, one by one."""

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.guard = threading.Condition()
        self.pairs = []
        self.counts = {"up": 0, "down": 0}
        # Ways on which nothing passes, and what each message waits.
        self.is_open, self.silent, self.delay = True, (), 0
        # What is done at which message of which direction, and whether it is being done.
        self.trap, self.is_acting = None, False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            one, _ = self.listener.accept()
            try:
                assert self.is_open
                other = socket.create_connection(("127.0.0.1", self.target), 5)
                other.settimeout(None)
            except (OSError, AssertionError):
                reset(one)
                continue
            for stream in (one, other):
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.guard:
                self.pairs.append((one, other))
            for source, sink, way in ((one, other, "up"), (other, one, "down")):
                threading.Thread(target=self.pump, args=(source, sink, way, (one, other)), daemon=True).start()

    def pump(self, source, sink, way, pair):
        try:
            while True:
                head = receive(source, 5)
                record = head + receive(source, struct.unpack("!H", head[3:])[0])
                if not self.passes(way):
                    raise OSError("cut")
                sink.sendall(record)
        except OSError:
            for stream in pair:
                reset(stream)
            with self.guard:
                self.pairs = [other for other in self.pairs if other is not pair]

    def passes(self, way):
        """Counts a message, fires the armed action at its number, and waits if the link is silent."""
        with self.guard:
            self.counts[way] += 1
            trap = self.trap
            is_due = trap and trap[0] == way and self.counts[way] > trap[1]
            if is_due:
                self.trap, self.is_acting = None, True
        if is_due:
            try:
                does_pass = trap[2]()
            finally:
                with self.guard:
                    self.is_acting = False
                    self.guard.notify_all()
            if not does_pass:
                return False
        with self.guard:
            while way in self.silent:
                self.guard.wait()
            delay = self.delay
        time.sleep(delay)
        return True

    def arm(self, way, number, action):
        """Calls `action` at the message with this number from now on; it returns whether the message passes."""
        with self.guard:
            self.trap = (way, self.counts[way] + number, action)

    def disarm(self):
        """Whether the action was called; it is over."""
        with self.guard:
            was, self.trap = self.trap, None
            # The statement may not need the answer, and end before a device is dead.
            while self.is_acting:
                self.guard.wait()
            return was is None

    def cut(self):
        with self.guard:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for stream in pair:
                reset(stream)

    def hush(self, ways=("up", "down")):
        """Lets nothing pass on these ways, and messages on all others again."""
        with self.guard:
            self.silent = ways
            self.guard.notify_all()

    def mend(self):
        self.is_open, self.delay = True, 0
        self.hush(())


def receive(stream, count):
    data = b""
    while len(data) < count:
        part = stream.recv(count - len(data))
        if not part:
            raise OSError("closed")
        data += part
    return data


def reset(stream):
    try:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Wakes whoever reads from it.
        stream.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    stream.close()


class Node:
    """A process with the media of one or several devices, which can be killed."""

    def __init__(self, binary, folder, name, devices):
        self.binary, self.folder, self.name = binary, folder, name
        # The proxy of each device, by its name.
        self.ports = {device: servers.free_port() for device in devices}
        self.process = None
        self.start()
        self.proxies = {device: Proxy(port) for device, port in self.ports.items()}

    def start(self):
        command = [self.binary, "device-process"] + (["--node", self.name] if len(self.ports) > 1 else [])
        ready = []
        for device, port in self.ports.items():
            ready.append(self.folder / f"{device}.port")
            ready[-1].unlink(missing_ok=True)
            command += ["--media", self.folder / self.name / "disk" / f"{device}.media", "--listen",
                        f"127.0.0.1:{port}", "--port-file", ready[-1]]
        command += ["--token-file", self.folder / "token", "--tls-cert", self.folder / "device.crt",
                    "--tls-key", self.folder / "device.key"]
        with (self.folder / f"{self.name}.log").open("a") as log:
            self.process = subprocess.Popen([str(part) for part in command], stderr=log)
        wait_until(lambda: all(file.exists() and file.read_text().strip() for file in ready), 60,
                   f"{self.name} does not listen")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def mend(self):
        if self.process.poll() is not None:
            self.start()
        for proxy in self.proxies.values():
            proxy.mend()


def wait_until(check, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(what() if callable(what) else what)
