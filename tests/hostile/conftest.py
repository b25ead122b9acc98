"""How long each attack runs."""

from __future__ import annotations

from typing import Protocol

import pytest


class Scaled(Protocol):
    """A number of rounds, clients or seconds, by how long the run may take."""

    def __call__(self, *, short: int, long: int) -> int:
        """`short` in `make test`, `long` in `make attack`."""
        ...


@pytest.fixture(scope="session")
def scaled(request: pytest.FixtureRequest) -> Scaled:
    """The size of each attack."""
    is_long = bool(request.config.getoption("full_length"))

    def choose(*, short: int, long: int) -> int:
        return long if is_long else short

    return choose
