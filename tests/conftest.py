"""Fixtures used by more than one folder of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.live_server import Server, running_server


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that `make` passes."""
    parser.addoption(
        "--long", action="store_true", dest="long_attacks", help="run tests/hostile at full length"
    )


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that all tests share; a test that changes its processes starts its own."""
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers with settings for one test; they stop when it ends."""
    with ExitStack() as stack:

        def start(**options: str) -> Server:
            folder = tmp_path / f"server{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            return stack.enter_context(running_server(folder, **options))

        yield start
