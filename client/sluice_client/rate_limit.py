"""A limit on the bytes per second of all connections together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

PIECE_BYTES = 16 * 1024
"""What is sent at once: at 50 KB/s three times a second."""


class RateLimit:
    """Spreads bytes over time; `bytes_per_second` 0 for no limit. Safe to use from several threads.

    `wait` sleeps for so many seconds, or returns early once nothing is wanted any more.
    """

    def __init__(
        self,
        bytes_per_second: int,
        wait: Callable[[float], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._wait = wait
        self._clock = clock
        self._free_at = clock()
        self._lock = threading.Lock()

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return bool(self._bytes_per_second)

    def take(self, count: int) -> None:
        """Wait until so many bytes may pass."""
        if not self._bytes_per_second:
            return
        with self._lock:
            now = self._clock()
            begins_at = max(now, self._free_at)
            self._free_at = begins_at + count / self._bytes_per_second
        if begins_at > now:
            self._wait(begins_at - now)

    def pieces(self, data: bytes) -> Iterator[bytes | memoryview]:
        """The data, in pieces that come when each may pass."""
        if not self._bytes_per_second:
            yield data
            return
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            piece = view[start : start + PIECE_BYTES]
            self.take(len(piece))
            yield piece
