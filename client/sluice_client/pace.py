"""How much to send in one request, and on how many connections: learned from how sends go."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import Any

from sluice_client.connections import Connections
from sluice_client.errors import SluiceError
from sluice_client.spans import ChunkLadder
from sluice_client.transport import Transport, json_object

SMALLEST_CHUNK_BYTES = 64 * 1024
"""A dropped connection costs at most the chunk in flight; below this the requests cost more."""

LARGEST_CHUNK_BYTES = 90 * 1000 * 1000
"""Common proxies in the cloud refuse bodies of more than 100 MB."""

FAST_SECONDS = 1.0
GOOD_SECONDS = 1.5
SLOW_SECONDS = 4.0
"""A chunk has a checksum of its own, so the server keeps all of it or nothing, and a dropped
connection costs what is in flight. After a chunk faster than the first the size may grow; after one
slower than the last it is halved."""

SHORTEST_SECONDS = 0.5

FIRST_BYTES = 256 * 1024
"""The first chunks measure the bandwidth, and the next have the size that takes a second or two: at
1 Mbit/s, a first chunk of 20 MB would be minutes of work to lose."""

WORTH_SECONDS = 10.0
"""A piece smaller than the server wants is worth its cost where one of that size takes longer."""

LATE = 2.0
LATE_SECONDS = 1.0
"""A chunk is late once it has taken so many times as long, and so much longer, as the median of
those about its size. Losses alone make many take 1.5 times as long. To send those again brought
nothing on a line that loses 3 % (15.4 s instead of 14.8, means of five seeds)."""

REMEMBERED = 32
FEWEST_TO_COMPARE = 4
"""Chunks that were acknowledged last, and how many of about one size tell how long it takes."""

ADVICE_SECONDS = 60.0
"""How often the server is asked how many connections it can spare."""

CLEAN_SENDS_TO_GROW = 3
CLEAN_SENDS_TO_FORGET = 24
"""Successes in a row until a size that failed is tried again."""


class Pace:
    """`chunk_bytes` and `parallel` for the next request. Safe to use from several threads.

    `bytes_per_second` is what a connection brought last.
    """

    def __init__(
        self,
        ladder: ChunkLadder,
        *,
        chunk_bytes: int,
        least_bytes: int = 0,
        connections: Connections,
        ask_advice: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The server recommends `chunk_bytes`, and wants no chunks below `least_bytes`.

        `ask_advice` is called in a thread of its own, and ends with a call of `obey`.
        """
        self.ladder = ladder
        self._ask_advice, self._clock = ask_advice, clock
        self._asked_at = clock()
        self._recommended = ladder.at_most(chunk_bytes)
        self._least = min(ladder.at_least(least_bytes), self._recommended)
        self.chunk_bytes = ladder.at_most(max(self._least, min(FIRST_BYTES, chunk_bytes)))
        self._is_first = True
        self.bytes_per_second = 0.0
        self._limit = ladder.largest
        self._ceiling = ladder.largest
        self._clean = 0
        self._clean_since_failure = 0
        self._acknowledged = deque[tuple[int, float]](maxlen=REMEMBERED)
        self._connections = connections
        self._lock = threading.Lock()

    @property
    def parallel(self) -> int:
        """How many connections to send on."""
        with self._lock:
            if self._clock() - self._asked_at >= ADVICE_SECONDS:
                self._asked_at = self._clock()
                threading.Thread(target=self._ask_advice, name="advice", daemon=True).start()
            self._connections.look()
            return self._connections.wanted

    @property
    def parallel_at_end(self) -> int:
        """How many connections to send the last bytes on."""
        with self._lock:
            return self._connections.wanted_at_end

    @property
    def most(self) -> int:
        """The most connections, of those the user allows, that the server does not mind."""
        return self._connections.most

    def obey(self, most: int | None) -> None:
        """Send on at most so many connections; None for no wish of the server."""
        with self._lock:
            self._connections.obey(most)

    def sent(self, count: int, *, seconds: float, size: int) -> None:
        """A chunk of `count` bytes, cut with `size`, was acknowledged after `seconds`."""
        with self._lock:
            self.bytes_per_second = count / max(seconds, 1e-6)
            self._acknowledged.append((count, seconds))
            self._connections.has_brought(self.bytes_per_second)
            self._clean += 1
            self._clean_since_failure += 1
            if self._clean_since_failure >= CLEAN_SENDS_TO_FORGET:
                self._ceiling, self._clean_since_failure = self._limit, 0
            if self._is_first:
                self._is_first, self._clean = False, 0
                self.chunk_bytes = self._size_for(self.bytes_per_second)
            elif size == self.chunk_bytes:
                self._resize(seconds)
            elif self.chunk_bytes < self._wanted:
                self._move_to(self._wanted)

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
            self._connections.give_back()

    def was_refused_for_now(self) -> None:
        """The server is busy: fewer connections, the same size."""
        with self._lock:
            self._connections.give_back()

    @property
    def shortest(self) -> int:
        """What a connection sends in half a second: shorter ones would mostly wait for answers.

        At least what the server wants.
        """
        half_a_second = self.ladder.at_most(int(self.bytes_per_second * SHORTEST_SECONDS))
        return max(half_a_second, self._wanted)

    def is_late(self, count: int, seconds: float) -> bool:
        """Whether a chunk of `count` bytes that takes `seconds` so far takes longer than usual."""
        with self._lock:
            like = [
                taken
                for size, taken in self._acknowledged
                if count <= 2 * size and size <= 2 * count
            ]
        if len(like) < FEWEST_TO_COMPARE:
            return False
        usual = median(like)
        return seconds > max(LATE * usual, usual + LATE_SECONDS)

    def can_shrink_below(self, size: int) -> bool:
        """Whether there is a smaller size than that."""
        return size > self.ladder.unit

    @property
    def _wanted(self) -> int:
        """The least size that the server wants, unless that takes too long."""
        is_worth_it = not self.bytes_per_second or (
            self._least <= self.bytes_per_second * WORTH_SECONDS
        )
        return min(self._least, self._ceiling) if is_worth_it else self.ladder.unit

    def _size_for(self, bytes_per_second: float) -> int:
        wanted = max(int(bytes_per_second * GOOD_SECONDS), self._wanted)
        return self.ladder.at_most(min(self._recommended, self._ceiling, wanted))

    def _resize(self, seconds: float) -> None:
        if seconds > SLOW_SECONDS:
            self._move_to(max(self.chunk_bytes // 2, self._wanted))
        elif seconds < FAST_SECONDS and self._clean >= CLEAN_SENDS_TO_GROW:
            self._move_to(self.chunk_bytes * 2)
        elif self.chunk_bytes < self._wanted:
            self._move_to(self._wanted)

    def _move_to(self, size: int) -> None:
        self._clean = 0
        self.chunk_bytes = self.ladder.at_most(min(size, self._ceiling))


class SharedPace:
    """The pace of all uploads of a client; the server recommends a chunk size."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._pace: Pace | None = None
        self._is_asked = False
        self._lock = threading.Lock()

    def ask_ahead(self) -> None:
        """Ask the server now, in another thread; `get` asks again if that fails."""
        with self._lock:
            is_asked, self._is_asked = self._is_asked, True
        if not is_asked:
            threading.Thread(target=self._ask_once, name="question", daemon=True).start()

    def get(self) -> Pace:
        """The pace; raises any `SluiceError`."""
        return self._transport.patiently(self._ask)

    def _ask_once(self) -> None:
        with suppress(SluiceError):
            self._ask()

    def _ask(self) -> Pace:
        with self._lock:
            if self._pace is None:
                self._pace = self._new_pace()
            return self._pace

    def _facts(self) -> dict[str, Any]:
        return json_object(self._transport.request("GET", "/api/server"))

    def _ask_advice(self) -> None:
        """Ask how many connections the server can spare; without an answer the last one holds."""
        with suppress(SluiceError):
            facts = self._facts()
            if self._pace is not None:
                self._pace.obey(facts.get("connections"))

    def _new_pace(self) -> Pace:
        """By what the server recommends, unless a person has chosen a size."""
        options, facts = self._transport.options, self._facts()
        chunk_bytes = options.chunk_bytes or int(facts["chunk_bytes"])
        ladder = ChunkLadder.around(
            chunk_bytes, smallest=SMALLEST_CHUNK_BYTES, largest=LARGEST_CHUNK_BYTES
        )
        pace = Pace(
            ladder,
            chunk_bytes=chunk_bytes,
            least_bytes=0 if options.chunk_bytes else int(facts.get("least_chunk_bytes", 0)),
            connections=Connections(
                options.parallel, self._transport.sockets, bounds=self._transport.bounds
            ),
            ask_advice=self._ask_advice,
        )
        pace.obey(facts.get("connections"))
        return pace
