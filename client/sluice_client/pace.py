"""How much to send in one request, and on how many connections: learned from how sends go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sluice_client.spans import ChunkLadder

SMALLEST_CHUNK_BYTES = 64 * 1024
"""A dropped connection costs at most the chunk in flight; below this the requests cost more."""

LARGEST_CHUNK_BYTES = 90 * 1000 * 1000
"""Common proxies in the cloud refuse bodies of more than 100 MB."""

FAST_SECONDS = 1.5
GOOD_SECONDS = 3.0
SLOW_SECONDS = 8.0
"""A chunk has a checksum of its own, so the server keeps all of it or nothing, and a dropped
connection costs what is in flight. After a chunk faster than the first the size may grow; after one
slower than the last it is halved."""

FIRST_SHARE = 16
"""The first chunk is this much smaller than those the server recommends. It measures the bandwidth,
and the next has the size that takes a few seconds: at 1 Mbit/s, a first chunk of 20 MB would be
minutes of work to lose."""

CLEAN_SENDS_TO_GROW = 3
CLEAN_SENDS_TO_FORGET = 24
"""Successes in a row until a size that failed is tried again."""

WORTHWHILE_GAIN = 1.1
"""One more connection must bring a tenth more throughput, or it is dropped again."""

SETTLED_WINDOWS = 6
"""Measuring windows to wait after one more connection gained nothing."""


class Pace:
    """`chunk_bytes` and `parallel` for the next request. Safe to use from several threads."""

    def __init__(
        self,
        ladder: ChunkLadder,
        *,
        chunk_bytes: int,
        parallel: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ladder = ladder
        self._recommended = ladder.at_most(chunk_bytes)
        self.chunk_bytes = ladder.at_most(chunk_bytes // FIRST_SHARE)
        self._is_first = True
        self.parallel = min(2, parallel)
        self._limit = ladder.largest
        self._ceiling = ladder.largest
        self._clean = 0
        self._clean_since_failure = 0
        self._crew = _Connections(parallel, clock)
        self._lock = threading.Lock()

    def sent(self, count: int, *, seconds: float, size: int) -> None:
        """A chunk of `count` bytes, cut with `size`, was acknowledged after `seconds`."""
        with self._lock:
            self._clean += 1
            self._clean_since_failure += 1
            if self._clean_since_failure >= CLEAN_SENDS_TO_FORGET:
                self._ceiling, self._clean_since_failure = self._limit, 0
            if self._is_first:
                self._is_first, self._clean = False, 0
                self.chunk_bytes = self._size_for(count / max(seconds, 1e-6))
            elif size == self.chunk_bytes:
                self._resize(seconds)
            self.parallel = self._crew.after_send(self.parallel, count)

    def failed(self, size: int, *, is_too_large: bool = False) -> None:
        """A chunk cut with `size` failed, or was refused by a proxy in between."""
        with self._lock:
            self._clean = self._clean_since_failure = 0
            smaller = self.ladder.at_most(size // 2)
            if is_too_large:
                self._limit = min(self._limit, smaller)
            # The chunks in flight beside it fail together and count as one.
            self._ceiling = min(self._ceiling, max(smaller, self.chunk_bytes // 2), self._limit)
            if size == self.chunk_bytes or is_too_large:
                self.chunk_bytes = self.ladder.at_most(min(self.chunk_bytes, smaller))
            self.parallel = self._crew.after_failure(self.parallel)

    def was_refused_for_now(self) -> None:
        """The server is busy: fewer connections, the same size."""
        with self._lock:
            self.parallel = self._crew.after_failure(self.parallel)

    def can_shrink_below(self, size: int) -> bool:
        """Whether there is a smaller size than that."""
        return size > self.ladder.unit

    def _size_for(self, bytes_per_second: float) -> int:
        wanted = min(self._recommended, self._ceiling, int(bytes_per_second * GOOD_SECONDS))
        return self.ladder.at_most(wanted)

    def _resize(self, seconds: float) -> None:
        if seconds > SLOW_SECONDS:
            self._move_to(self.chunk_bytes // 2)
        elif seconds < FAST_SECONDS and self._clean >= CLEAN_SENDS_TO_GROW:
            self._move_to(self.chunk_bytes * 2)

    def _move_to(self, size: int) -> None:
        self._clean = 0
        self.chunk_bytes = self.ladder.at_most(min(size, self._ceiling))


class _Connections:
    """Climbs to the number of connections beyond which throughput no longer grows."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = max(1, most)
        self._clock = clock
        self._best_rate = 0.0
        self._is_trial = False
        self._settled = 0
        self._begin_window()

    def after_send(self, parallel: int, count: int) -> int:
        self._window_bytes += count
        self._window_sends += 1
        if self._window_sends < 2 * parallel:
            return parallel
        rate = self._window_bytes / max(1e-6, self._clock() - self._window_began)
        self._begin_window()
        return self._climb(parallel, rate)

    def after_failure(self, parallel: int) -> int:
        self._best_rate, self._is_trial, self._settled = 0.0, False, SETTLED_WINDOWS
        self._begin_window()
        return max(1, parallel - 1)

    def _begin_window(self) -> None:
        self._window_began = self._clock()
        self._window_bytes = 0
        self._window_sends = 0

    def _climb(self, parallel: int, rate: float) -> int:
        if self._is_trial and rate < self._best_rate * WORTHWHILE_GAIN:
            self._is_trial, self._settled = False, SETTLED_WINDOWS
            return max(1, parallel - 1)
        self._best_rate = rate
        self._settled = max(0, self._settled - 1)
        self._is_trial = self._settled == 0 and parallel < self._most
        return parallel + 1 if self._is_trial else parallel
