"""What tests of identity share: each runs with the records in a file, and on a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.records.engine import Database
from tests.identity.world import World
from tests.site import Site, new_site


@pytest.fixture
def world(database: Database) -> World:
    """People in a database of their own."""
    return World(database)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, database_url: str | None) -> Iterator[Site]:
    """A server with accounts in this process; each test of a module makes the people it needs."""
    with new_site(tmp_path_factory.mktemp("site"), database_url=database_url or "") as site:
        yield site
