"""What tests of pages share."""

from collections.abc import Iterator

import pytest

from tests.pages.house import House, new_house


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One for all tests of a module: each makes the people it needs."""
    with new_house(tmp_path_factory.mktemp("house")) as house:
        yield house
