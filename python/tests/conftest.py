"""What all tests use: a database in memory, and connections to whatever runs statements."""

import cleave
import pytest


@pytest.fixture
def db():
    """A connection to a new database in this process."""
    with cleave.connect(":memory:", autocommit=True) as connection:
        yield connection


@pytest.fixture(params=["embedded"])
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
