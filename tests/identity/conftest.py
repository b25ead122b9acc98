"""What tests of identity share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.identity.world import World, new_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """People in a database of their own."""
    with new_world(tmp_path) as world:
        yield world
