"""What all tests use: a database in memory, and connections to whatever runs statements."""

import os
import subprocess
import time

import cleave
import pytest


@pytest.fixture
def db():
    """A connection to a new database in this process."""
    with cleave.connect(":memory:", autocommit=True) as connection:
        yield connection


@pytest.fixture(params=["embedded", "server"])
def connect(request):
    """A function that connects to one new database, as often as it is called."""
    connections = []

    def connected(**options):
        target = request.getfixturevalue(request.param)
        connections.append(cleave.connect(target, **options))
        return connections[-1]

    yield connected
    for connection in connections:
        connection.close()


@pytest.fixture
def embedded(tmp_path):
    """The folder of a database of this process."""
    return tmp_path / "database"


@pytest.fixture
def server(served):
    """The URL of a server, whose database is empty."""
    with cleave.connect(served, autocommit=True) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for [table] in tables:
            connection.execute(f'DROP TABLE "{table}" CASCADE')
    return served


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """The URL of a server that all tests share."""
    binary = os.environ.get("CLEAVE_BINARY")
    if not binary:
        pytest.skip("CLEAVE_BINARY does not name the program")
    folder = tmp_path_factory.mktemp("served")
    database, port_file = folder / "db", folder / "port"
    subprocess.run([binary, "sql", "--create", "--db", database, "-c", "SELECT 1"], check=True, capture_output=True)
    command = [binary, "serve", "--db", database, "--listen", "127.0.0.1:0", "--port-file", port_file, "--allow-files"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        end = time.monotonic() + 60
        while not (port_file.exists() and port_file.read_text().strip()):
            assert process.poll() is None and time.monotonic() < end, (folder / "log").read_text()
            time.sleep(0.05)
        yield f"postgres://ada@127.0.0.1:{port_file.read_text().strip()}/db?sslmode=disable"
    finally:
        process.terminate()
        process.wait(60)
