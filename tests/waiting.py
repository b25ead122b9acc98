"""Waiting for something in another process, or a moment later."""

from __future__ import annotations

import time
from collections.abc import Callable

TICK_SECONDS = 0.02


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Poll until the condition holds; `what` describes it in the error."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(TICK_SECONDS)
