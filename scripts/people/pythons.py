"""The Python with the wheel and its peers, in target/people; runs processes of it."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import servers

PLACE = servers.ROOT / "target" / "people" / "python"
PROCESS = Path(__file__).with_name("process.py")
PEERS = ["duckdb", "pandas", "psycopg", "pyarrow"]
PATIENCE_SECONDS = 1800


class Python:
    """An interpreter that has the wheel and its peers."""

    def __init__(self, interpreter, wheel):
        self.interpreter, self.wheel = interpreter, wheel

    def versions(self):
        """What the figures depend on, as text."""
        code = ("import platform, importlib.metadata as m; print('Python', platform.python_version() + ',', "
                f"', '.join(f'{{n}} {{m.version(n)}}' for n in {PEERS}))")
        return f"{self.output('-c', code).strip()}, wheel {digest(self.wheel)[:12]}"

    def output(self, *arguments):
        """What it prints. Nothing of the user's own settings is read, and the folder is none with modules."""
        return servers.output([self.interpreter, *arguments], cwd="/", timeout=PATIENCE_SECONDS)

    def task(self, name, **arguments):
        """Runs a function of `process` in a new process; its figures."""
        return json.loads(self.output(PROCESS, name, json.dumps(arguments)).splitlines()[-1])


def found(wheel=None):
    """The Python with `wheel`, or the newest one of dist/; None if there is no wheel."""
    wheels = [wheel] if wheel else sorted((servers.ROOT / "dist").glob("cleave-*.whl"), key=os.path.getmtime)
    if not wheels:
        return None
    wheel = wheels[-1].resolve()
    interpreter = servers.python_with([*PEERS[:2], "psycopg[binary]", "pyarrow"],
                                      f"import {', '.join(PEERS)}", PLACE)
    if interpreter is None:
        raise SystemExit(f"{', '.join(PEERS)} cannot be installed")
    installed = PLACE / "cleave.sha256"
    if not installed.exists() or installed.read_text() != digest(wheel):
        install(interpreter, wheel)
        installed.write_text(digest(wheel))
    python = Python(interpreter, wheel)
    # So that the first process that is measured finds all of them in memory, as the others do.
    python.output("-c", f"import cleave, {', '.join(PEERS)}")
    return python


def install(interpreter, wheel):
    """Installs a wheel, which needs no other package, from its file."""
    servers.output([interpreter, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-cache-dir",
                    "--force-reinstall", wheel], cwd="/", timeout=PATIENCE_SECONDS)


def digest(file):
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def forget(files):
    """Takes files out of the system's page cache. Pages of a file that a process has mapped stay."""
    for file in files:
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def package_files(interpreter, name):
    """The files of an installed package."""
    code = f"import importlib.metadata as m; print('\\n'.join(str(f.locate()) for f in m.files({name!r}) or []))"
    listed = servers.output([interpreter, "-c", code], cwd="/").splitlines()
    return [Path(file) for file in listed if Path(file).is_file()]


def run_seconds(clock, command):
    """Seconds of a process that must succeed."""
    begin = clock()
    subprocess.run([str(part) for part in command], check=True, cwd="/", stdout=subprocess.DEVNULL)
    return clock() - begin
