"""What tests of identity share: each runs with the records in a file, and on a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.access.attempts import AttemptRecords, PasswordChecks
from app.access.passwords import Passwords
from app.access.second_factor import SecondFactors
from app.access.sessions import Sessions
from app.access.signing import Signing, SingleUse
from app.db.engine import Database
from app.db.nodes import SharedValues
from tests.access.world import CHEAP, World
from tests.site import Site, new_site


@pytest.fixture
def world(database: Database) -> World:
    """People in a database of their own."""
    return World(database)


@pytest.fixture
def factors(world: World) -> SecondFactors:
    """The one-time codes of these people."""
    signing = Signing(SharedValues(world.database))
    tokens = SingleUse(world.context, signing)
    checks = PasswordChecks(Passwords(CHEAP), AttemptRecords(world.database), clock=world.clock)
    return SecondFactors(world.context, tokens, checks, Sessions(world.context))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, database_url: str | None) -> Iterator[Site]:
    """A server with accounts in this process; each test of a module makes the people it needs."""
    with new_site(tmp_path_factory.mktemp("site"), database_url=database_url or "") as site:
        yield site
