"""Spares looks at records that nobody has changed: whoever polls costs next to nothing then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def after_changes(
    look: Callable[[], T], mark: Callable[[], object], *, longest_seconds: float
) -> Callable[[], T | None]:
    """`look`, but None instead while nothing was committed since it last returned.

    `mark` is what `Database.change_mark` returns. Something may also become due by itself, so that
    no more than `longest_seconds` pass without a look. After one that raises, or that returns
    something true as there may be more, the next one comes at once.
    """
    seen: object = None
    again_at = 0.0

    def look_if_changed() -> T | None:
        nonlocal seen, again_at
        found = mark()  # Before the look: what is committed meanwhile is looked at next time.
        if found == seen and time.monotonic() < again_at:
            return None
        result = look()
        seen, again_at = None if result else found, time.monotonic() + longest_seconds
        return result

    return look_if_changed
