"""The servers that are compared: Cleave in one of its places, and PostgreSQL.

Both have buffers of the same size, a log that is synced at each commit, and are reached over TCP of this machine.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time

import bench
import bench_oltp
import bench_recovery
import servers

from . import counters, log_end

POLL_SECONDS = 0.005
# Of cleave.activity: updates made on the device, and how the shared state came to queries.
ACTIVITY = {"update fragments", "flushes", "shipped delta"}


class System:
    """What both servers have in common: sessions, and counters of their sides."""

    process, user, database = None, None, None

    def __init__(self, psycopg, folder, buffers):
        self.psycopg, self.folder, self.buffers = psycopg, folder, buffers
        self.known = {}
        folder.mkdir(parents=True)
        # PostgreSQL's own user must pass through.
        folder.parent.chmod(0o755)

    def address(self):
        return f"host=127.0.0.1 port={self.port} user={self.user} dbname={self.database}"

    def url(self):
        return f"postgres://{self.user}@127.0.0.1:{self.port}/{self.database}"

    def connect(self, settings=None):
        """A session in autocommit mode with settings, of which those that the server does not know are left out."""
        session = self.psycopg.connect(self.address(), autocommit=True)
        for name, value in (settings or {}).items():
            if self.knows(name):
                session.execute(f"SET {name} = '{value}'")
        return session

    def knows(self, setting):
        """Whether the server has a setting."""
        if setting not in self.known:
            with self.psycopg.connect(self.address(), autocommit=True) as session:
                try:
                    session.execute(f"SHOW {setting}")
                    self.known[setting] = True
                except self.psycopg.errors.UndefinedObject:
                    self.known[setting] = False
        return self.known[setting]

    def say(self, *statements):
        """Runs statements in a session of their own; the rows of the last one, if it has rows."""
        with self.connect() as session:
            for statement in statements:
                done = session.execute(statement)
            return done.fetchall() if done.description else None

    def usage(self):
        """What both sides have used since they were started."""
        host, device = self.host_processes(), self.device_processes()
        used = {"host_cpu_s": sum(map(bench_oltp.cpu_seconds, host)),
                "device_cpu_s": sum(map(bench_oltp.cpu_seconds, device)),
                "host_written_bytes": counters.written([one for process in host for one in counters.family(process)]),
                "device_written_bytes": counters.written(device)}
        link = self.link_bytes()
        used |= {"to_host_bytes": link[0], "to_device_bytes": link[1]} if link else {}
        return used | self.activity()

    def sides(self):
        return {"host": self.host_processes, "device": self.device_processes}

    def host_processes(self):
        return [self.process.pid]

    def device_processes(self):
        return []

    def link_bytes(self):
        return None

    def activity(self):
        """Counts that the server keeps of what it has done."""
        return {}

    def await_answer(self, query):
        """The rows of the first answer of a server that was just started."""
        end = time.monotonic() + servers.PATIENCE_SECONDS
        while True:
            try:
                return self.say(query)
            except self.psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(POLL_SECONDS)

    def give_buffers(self, buffers):
        """Starts the server anew with buffers of another size."""
        if buffers != self.buffers:
            self.end()
            self.buffers = buffers
            self.start_again()
            self.await_answer("SELECT 1")


class Cleave(System):
    """`cleave serve`."""

    name, user, database = "Cleave", "ada", "measured"

    def __init__(self, psycopg, folder, buffers, place):
        super().__init__(psycopg, folder, buffers)
        self.place, self.known_end = place, 0
        self.path = folder / self.database
        place.start(folder / "device")
        try:
            servers.output([bench.CLEAVE, "sql", "--create", "--db", self.path, "-c", "SELECT 1"])
            place.attach(self.path)
            self.start()
        except BaseException:
            place.stop()
            raise

    def start(self):
        self.process, self.port = servers.serve(bench.CLEAVE, self.path, "--buffer-pool", self.buffers,
                                                *self.arguments())

    def arguments(self):
        return ["--allow-files", *(["--set", f"default_device={self.place.device}"] if self.place.device else [])]

    def start_again(self):
        """Starts a server that has ended, on its port; it may not answer yet."""
        command = [bench.CLEAVE, "serve", "--db", self.path, "--listen", f"127.0.0.1:{self.port}", "--buffer-pool",
                   self.buffers, *self.arguments()]
        with (self.folder / "again.log").open("a") as log:
            self.process = subprocess.Popen([str(part) for part in command], stderr=log)

    def run_closed(self, *arguments):
        """Runs another command of the program over the database, which only one program has open, and goes on."""
        self.end()
        servers.output([bench.CLEAVE, *arguments, "--db", self.path])
        self.start_again()
        self.await_answer("SELECT 1")

    def start_device(self):
        self.place.start(self.folder / "device")

    def end(self):
        servers.stop(self.process)

    def stop(self):
        try:
            self.end()
        finally:
            self.place.stop()

    def kill(self, device_too=False):
        self.process.kill()
        self.process.wait(60)
        if device_too:
            self.place.kill()

    def device_processes(self):
        return self.place.processes()

    def link_bytes(self):
        return self.place.link_bytes()

    def activity(self):
        return {name.replace(" ", "_"): count for name, count in self.say("SELECT * FROM cleave.activity")
                if name in ACTIVITY}

    def log_bytes(self):
        """Where the log ends."""
        self.known_end = log_end.log_end(self.path / "log", self.known_end)
        return self.known_end


class PostgreSQL(System):
    """Debian's PostgreSQL with its defaults, except for the sizes of its buffers and of its log."""

    name, database = "PostgreSQL", "postgres"

    def __init__(self, psycopg, folder, buffers):
        super().__init__(psycopg, folder, buffers)
        self.process, self.port, self.user = servers.postgresql(folder, shared_buffers=buffers, max_wal_size="4GB")

    def end(self):
        servers.stop(self.process, signal=signal.SIGINT)

    stop = end

    def kill(self, device_too=False):
        for process in counters.family(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait(60)
        # All its processes are gone, and its memory too.
        time.sleep(0.5)

    def start_again(self):
        """Starts a server that has ended, on its port; it may not answer yet."""
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.write(f"shared_buffers = '{self.buffers}'\n")
        bench_recovery.start_again(self)

    def log_bytes(self):
        return int(self.say("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")[0][0])


class Measured:
    """The use of both sides within a block, and its duration: `with Measured(system) as measured`; then
    `measured.record`."""

    def __init__(self, system):
        self.system = system

    def __enter__(self):
        self.peak = counters.Peak(self.system.sides())
        self.peak.__enter__()
        self.before, self.begun = self.system.usage(), time.monotonic()
        return self

    def __exit__(self, fault, *_):
        if fault:
            self.peak.__exit__()
            return
        seconds, after = time.monotonic() - self.begun, self.system.usage()
        self.peak.__exit__()
        self.record = {"seconds": seconds} | {name: after[name] - self.before[name] for name in after
                                             if name in self.before}
        self.record |= {f"{side}_peak_bytes": most for side, most in self.peak.bytes.items()}


def cancel_after(session, seconds):
    """Has the statement that runs in a session cancelled after some time; the timer, whose `at` is when it was."""
    def cancel():
        timer.at = time.monotonic()
        session.cancel()

    timer = threading.Timer(seconds, cancel)
    timer.at = None
    timer.start()
    return timer
