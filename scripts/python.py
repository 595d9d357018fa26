#!/usr/bin/env python3
"""Tests the Python package as `cargo build` has compiled it, without a wheel.

    scripts/python.py [ARGUMENTS OF PYTEST]

Puts the compiled part beside a copy of python/cleave in target/python, makes a virtual environment there with what the
tests need, and runs them: over databases of their own process, and over a server (CLEAVE_BINARY, by default the debug
build). Without arguments it runs the notebook of the docs too. Where the packages cannot be installed, all is skipped.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import servers

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
WORK = ROOT / "target" / "python"
# Pinned: a new release of one of them is no reason for a failure here.
PACKAGES = ["pytest==9.2.0", "pyarrow==26.0.1", "pandas==3.1.1", "polars==2.1.0", "SQLAlchemy==2.1.9"]


def main(arguments):
    library = TARGET / "debug" / "libcleave_python.so"
    # As the whole workspace: alone, its dependencies would be compiled with other features.
    subprocess.run(["cargo", "build", "--workspace", "--quiet"], cwd=ROOT, check=True)
    package = WORK / "package" / "cleave"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(ROOT / "python" / "cleave", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(library, package / "_cleave.abi3.so")
    python = environment()
    if python is None:
        print("SKIPPED: the packages that the tests need cannot be installed")
        return 0
    paths = {"PYTHONPATH": str(package.parent), "CLEAVE_BINARY": str(servers.cleave() or "")}
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "python" / "tests", *arguments]
    command = [str(part) for part in command]
    # A test that hangs is a failure, and not the end of all time.
    environ = {**os.environ, **paths}
    code = subprocess.run(command, cwd=ROOT, env=environ, timeout=900).returncode
    if code == 0 and not arguments:
        notebook = [str(python), str(ROOT / "scripts" / "notebook.py")]
        code = subprocess.run(notebook, cwd=ROOT, env=environ, timeout=300).returncode
    return code


def environment():
    """An interpreter with the packages; None: they cannot be installed."""
    folder = WORK / "environment"
    python, mark = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join([sys.version, *PACKAGES])
    if mark.exists() and mark.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True, timeout=300)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(install, check=True, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        print(getattr(error, "stderr", None) or error, file=sys.stderr)
        return None
    mark.write_text(wanted)
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
