"""Bodies like those of clients on a bad network."""

from collections.abc import Iterable, Iterator
from itertools import cycle
from threading import Event
from time import sleep

from app.core.errors import BodyTruncated
from app.ingest.source import Watch, no_watch

SEED = bytes(range(251))
"""A prime number of different bytes: the pattern never lines up with a block or a chunk."""


def pattern(start: int, end: int) -> bytes:
    """The bytes from `start` to `end` of the tests' file."""
    first = start % len(SEED)
    repeated = SEED * ((end - start + first) // len(SEED) + 1)
    return repeated[first : first + end - start]


class PiecesSource:
    """A body that arrives in pieces of the given sizes (None: a tick without bytes), repeated.

    With `cut_at` the connection ends after that many bytes. Without `is_told` no one knows the
    length before the end.
    """

    def __init__(
        self,
        data: bytes,
        pieces: Iterable[int | None] = (1 << 30,),
        *,
        cut_at: int | None = None,
        is_told: bool = True,
        is_verified_at_end: bool = False,
    ) -> None:
        self._data = memoryview(data)
        self._pieces: Iterator[int | None] = cycle(pieces)
        self._cut_at = cut_at
        self._is_told = is_told
        self.is_verified_at_end = is_verified_at_end
        self.position = 0
        self.is_finished = False

    @property
    def remaining(self) -> int | None:
        return len(self._data) - self.position if self._is_told else None

    def readinto(self, buffer: memoryview, /) -> int | None:
        end = len(self._data) if self._cut_at is None else self._cut_at
        if self.position >= end and self._cut_at is not None:
            raise BodyTruncated("The connection was cut by the test.")
        piece = next(self._pieces)
        if piece is None:
            return None
        taken = self._data[self.position : min(end, self.position + min(piece, len(buffer)))]
        buffer[: len(taken)] = taken
        self.position += len(taken)
        return len(taken)

    def finish(self, _watch: Watch = no_watch, /) -> None:
        self.is_finished = True


def body(start: int, end: int, *pieces: int | None, cut_at: int | None = None) -> PiecesSource:
    """The bytes from `start` to `end` of a test's file."""
    return PiecesSource(pattern(start, end), pieces or (1 << 30,), cut_at=cut_at)


class StallingSource(PiecesSource):
    """A body that stalls after its first `before` bytes until the test lets it go on.

    It ticks while it stalls; `is_stalled` is set once it does.
    """

    def __init__(self, data: bytes, *, before: int) -> None:
        super().__init__(data)
        self._before = before
        self.is_stalled = Event()
        self.goes_on = Event()

    def readinto(self, buffer: memoryview, /) -> int | None:
        if self.goes_on.is_set():
            return super().readinto(buffer)
        if self.position < self._before:
            return super().readinto(buffer[: self._before - self.position])
        self.is_stalled.set()
        self.goes_on.wait(0.01)
        return None


class SteadySource:
    """A body that never pauses and never ends: ten bytes every millisecond.

    `is_flowing` is set once it has begun.
    """

    remaining = None
    is_verified_at_end = False

    def __init__(self) -> None:
        self.position = 0
        self.is_flowing = Event()

    def readinto(self, buffer: memoryview, /) -> int | None:
        sleep(0.001)
        taken = min(10, len(buffer))
        self.position += taken
        self.is_flowing.set()
        return taken

    def finish(self, _watch: Watch = no_watch, /) -> None:
        """Never reached."""
