"""Shared by the tests of other projects' clients: a line to the server, and a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.bad_line import BadLine, bad_line
from tests.dropzone_client import random_bytes
from tests.live_server import Server

FILM_BYTES = 10_000_000


@pytest.fixture
def line(server: Server) -> Iterator[BadLine]:
    """The line to the shared server, good until told otherwise."""
    with bad_line(server.port) as running:
        yield running


@pytest.fixture(scope="session")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of several chunks."""
    path = tmp_path_factory.mktemp("films") / "film.mp4"
    path.write_bytes(random_bytes(FILM_BYTES, 96))
    return path
