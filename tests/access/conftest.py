"""What tests of identity share: each runs with the records in a file, and on a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.access.second_factor import SecondFactors
from app.db.engine import Database
from tests.access.world import World
from tests.site import Site, new_site


@pytest.fixture
def world(database: Database, tmp_path: Path) -> World:
    """People in a database of their own."""
    return World(database, tmp_path)


@pytest.fixture
def factors(world: World) -> SecondFactors:
    """The one-time codes of these people."""
    return world.identity.second_factors


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, database_url: str | None) -> Iterator[Site]:
    """A server with accounts in this process; each test of a module makes the people it needs."""
    with new_site(tmp_path_factory.mktemp("site"), database_url=database_url or "") as site:
        yield site
