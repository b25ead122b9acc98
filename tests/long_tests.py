"""Parameters with which a test takes part only in `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["long"]


def long(values: Iterable[Any]) -> list[Any]:
    """For `parametrize`: these values have the marker `long`. A tuple has the values of several."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long)
        for value in values
    ]
