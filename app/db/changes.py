"""Makes polling cheap: skips the query while no transaction has been committed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def after_changes(
    look: Callable[[], T], mark: Callable[[], object], *, longest_seconds: float
) -> Callable[[], T | None]:
    """A function that calls `look`, or returns None if nothing was committed since the last call.

    `mark` is what `Database.change_mark` returns. Work may also become due with time, so `look` is
    called at least every `longest_seconds`. If it raises, or returns something true since there may
    be more, the next call runs it again.
    """
    seen: object = None
    again_at = 0.0

    def look_if_changed() -> T | None:
        nonlocal seen, again_at
        found = mark()  # Before the look: it misses what is committed meanwhile.
        if found == seen and time.monotonic() < again_at:
            return None
        result = look()
        seen, again_at = None if result else found, time.monotonic() + longest_seconds
        return result

    return look_if_changed
