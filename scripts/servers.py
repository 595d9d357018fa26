"""Servers that scripts start on this machine: `cleave serve`, and Debian's PostgreSQL."""

import contextlib
import os
import pwd
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# How long a server may take to listen.
PATIENCE_SECONDS = 180
# Below the ports that Linux gives to connections and to listeners without a port of their own.
PORTS = range(20000, 32768)


def cleave():
    """The program: CLEAVE_BINARY, or a release or debug build; None if there is none."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    found = [os.environ.get("CLEAVE_BINARY"), target / "release" / "cleave", target / "debug" / "cleave"]
    return next((Path(path) for path in found if path and Path(path).exists()), None)


def serve(binary, database, *arguments, log=None, before=()):
    """Starts `cleave serve` on a port of its own choice; the process and the port, once it listens.

    A database that is not there is made. Further listeners (--console) have ports that `arguments` say. What the server
    says goes to `log`, by default a file beside the database. `before` are words in front of the command (taskset).
    """
    database = Path(database)
    port_file = database.parent / f"{database.name}.port"
    port_file.unlink(missing_ok=True)
    if not database.exists() or not any(database.iterdir()):
        output([binary, "sql", "--create", "--db", database, "-c", "SELECT 1"])
    log = log or database.parent / f"{database.name}.log"
    command = [*before, binary, "serve", "--db", database, "--listen", "127.0.0.1:0", "--port-file", port_file,
               *arguments]
    with log.open("a") as file:
        process = subprocess.Popen([str(part) for part in command], stderr=file)
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and process.poll() is None:
        # The file is there before what is in it.
        text = port_file.read_text().strip() if port_file.exists() else ""
        if text:
            return process, int(text.split()[0])
        time.sleep(0.05)
    stop(process)
    raise AssertionError(f"the server does not listen: {log.read_text()}")


def postgresql(folder, **settings):
    """Starts PostgreSQL with a new cluster in `folder`, without a password; returns the process, the port and its
    owner."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not binaries:
        sys.exit("PostgreSQL is not there: run `scripts/install_peers.sh postgresql`")
    # The server refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        account = pwd.getpwnam(user)
        os.chown(folder, account.pw_uid, account.pw_gid)
        # Lets others pass through the temporary folder that `folder` lies in.
        os.chmod(folder.parent, 0o755)
    data, port = folder / "data", free_port()
    options = {"user": user, "cwd": "/", "env": {**os.environ, "LC_ALL": "C"}}
    output([binaries[-1], "-D", data, "-A", "trust", "-E", "UTF8", "--locale=C", "--lc-ctype=C.UTF-8"],
           **options)
    settings = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", **settings}
    with (data / "postgresql.conf").open("a") as file:
        file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([binaries[-1].with_name("postgres"), "-D", data], stderr=log, **options)
    ready = binaries[-1].with_name("pg_isready")
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if subprocess.run([ready, "-q", "-h", "127.0.0.1", "-p", str(port)]).returncode == 0:
            return process, port, user or pwd.getpwuid(os.getuid()).pw_name
        time.sleep(0.05)
    stop(process)
    raise AssertionError(f"PostgreSQL does not listen: {(folder / 'log').read_text()}")


def stop(process, signal=15):
    """Ends a server, if it runs; returns its exit code."""
    if process.poll() is None:
        process.send_signal(signal)
    try:
        return process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def output(command, **options):
    """The output of a command; if it fails, an error with all of its output."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} failed ({done.returncode}):\n{done.stdout}\n{done.stderr}")
    return done.stdout


def free_port():
    """A port that nobody listens on. What runs beside this and looks for one gets another: it is random, and none
    that the system gives by itself."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("100 ports are in use")


def psycopg():
    """psycopg; if this Python lacks it, the script is run again by one that has it. None if it cannot be installed."""
    try:
        import psycopg as found

        return found
    except ImportError:
        python = python_with(["psycopg[binary]"], "import psycopg")
        if python is None:
            return None
        sys.exit(subprocess.run([python, *sys.argv]).returncode)


def python_with(packages, check, place=ROOT / "target" / "clients" / "python"):
    """A Python that has `packages`, installed into `place` if they are missing; None if they cannot be."""
    interpreter = place / "bin" / "python"
    commands = [] if interpreter.exists() else [[sys.executable, "-m", "venv", place]]
    if commands or subprocess.run([interpreter, "-c", check], capture_output=True).returncode != 0:
        commands.append([interpreter, "-m", "pip", "install", "--quiet", *packages])
    try:
        for command in commands:
            output(command, timeout=600)
    except (OSError, AssertionError, subprocess.SubprocessError):
        return None
    return str(interpreter)
