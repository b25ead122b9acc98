"""Fixtures for the client: a bad line, a command line, files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from sluice_client import Client
from sluice_client.options import Options
from tests.client.bad_line import BadLine, bad_line
from tests.client.running import CommandLine
from tests.dropzone_client import random_bytes
from tests.live_server import Server

MakeFile = Callable[..., Path]


@pytest.fixture
def line(server: Server) -> Iterator[BadLine]:
    """The line to the shared server, good until told otherwise."""
    with bad_line(server.port) as running:
        yield running


@pytest.fixture
def has_ended(line: BadLine) -> Iterator[Event]:
    """For a test to set once a command has ended whose work the line holds up until then."""
    event = Event()
    yield event
    event.set()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A person's home folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def command(home: Path, server: Server) -> Iterator[CommandLine]:
    """The command line, straight to the shared server."""
    with closing(CommandLine(home, server.url)) as running:
        yield running


@pytest.fixture
def slow_command(command: CommandLine, line: BadLine) -> CommandLine:
    """The command line, over the bad line."""
    command.url = line.url
    return command


@pytest.fixture
def make_file(home: Path) -> MakeFile:
    """Writes files of random bytes, all different."""
    seed = hash(home)

    def make(name: str = "film.mp4", size: int = 3_000_000) -> Path:
        nonlocal seed
        seed += 1
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random_bytes(size, seed))
        return path

    return make


@pytest.fixture
def make_client(home: Path) -> Iterator[Callable[..., Client]]:
    """Makes clients with given settings."""
    made = []

    def make(url: str, **settings: object) -> Client:
        options = Options(server=url, **settings)  # type: ignore[arg-type]
        client = Client(options=options, state=home / "state")
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()
