"""Fixtures for tests of the media package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.video.confined import Target


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    """What a program in the sandbox tries to reach."""
    target = Target(tmp_path)
    yield target
    target.listener.close()
