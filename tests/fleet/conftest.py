"""How long each attack runs, as in tests/hostile, and what it is drawn from."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.hostile.conftest import Scaled, scaled
from tests.s3_servers import find_garage, find_versitygw

__all__ = ["scaled"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Shake a fleet on each store at full length, and on versitygw in the short form."""
    if "find_store" in metafunc.fixturenames:
        stores = {"versitygw": find_versitygw}
        if metafunc.config.getoption("full_length"):
            stores["garage"] = find_garage
        metafunc.parametrize("find_store", stores.values(), ids=stores)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What all that happens is drawn from."""
    return int(request.config.getoption("seed"))


@pytest.fixture
def disturbances(request: pytest.FixtureRequest, scaled: Scaled) -> int:
    """How many there are."""
    return request.config.getoption("disturbances") or scaled(short=4, long=1000)


@pytest.fixture
def pooled_nodes(request: pytest.FixtureRequest) -> int:
    """How many nodes reach PostgreSQL through PgBouncer."""
    return int(request.config.getoption("pooled_nodes"))


@pytest.fixture
def tell(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], None]:
    """Prints: at once in the long form, for whoever waits, otherwise if the test fails."""

    def print_at_once(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)

    return print_at_once if request.config.getoption("full_length") else print
