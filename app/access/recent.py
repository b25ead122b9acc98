"""Answers that are remembered for a moment, so that a client's next request costs no look-up."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")

RECENT_SECONDS = 2.0
"""Every process refuses what was revoked after this time."""

RECENT_ENTRIES = 4096


class Recent(Generic[T]):
    """A bounded memory of what `look_up` returned, for `seconds`.

    A look-up that returns None or raises is not remembered: guesses cannot fill the memory.
    """

    def __init__(
        self,
        look_up: Callable[[str], T | None],
        *,
        seconds: float = RECENT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look_up = look_up
        self._seconds = seconds
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, T]] = OrderedDict()
        self._changing = Lock()

    def get(self, key: str, *, fresh: bool = False) -> T | None:
        """The result of `look_up(key)`, from the cache unless `fresh`."""
        now = self._clock()
        known = None if fresh else self._known.get(key)
        if known is not None and now - known[0] < self._seconds:
            return known[1]
        found = self._look_up(key)
        with self._changing:
            if found is None:
                self._known.pop(key, None)
            else:
                self._known[key] = (now, found)
                self._known.move_to_end(key)
                while len(self._known) > RECENT_ENTRIES:
                    self._known.popitem(last=False)
        return found

    def forget(self) -> None:
        """Look everything up again: something was revoked in this process."""
        with self._changing:
            self._known.clear()
