"""The loop that copies a body into a file, in blocks large enough for the disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from app.core.errors import BodyStalled
from app.core.ranges import ByteRange
from app.ingest.blocks import borrowed_block
from app.ingest.source import BodySource, SpliceSource, Watch
from app.ingest.splice import USEFUL_PIPE_BYTES, empty_pipe
from app.ingest.stages import Stage, stage

BLOCK_SECONDS = 1.0
"""A block that a slow client has not filled after this time is written partially filled."""

GRACE_SECONDS = 10.0
"""The minimum rate does not apply to the first seconds: a slow start is normal."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How long a thread waits for a client. Beyond either limit the copy raises `BodyStalled`.

    `clock` returns seconds and never goes back.
    """

    idle_seconds: float
    minimum_bytes_per_second: float
    clock: Callable[[], float] = time.monotonic


class Pace:
    """Measures one transfer against its limits."""

    __slots__ = ("_arrived", "_last_arrival", "_limits", "_started")

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._started = self._last_arrival = limits.clock()
        self._arrived = 0

    def saw(self, count: int) -> None:
        """Count bytes received since the last call; raises `BodyStalled` beyond a limit."""
        limits = self._limits
        now = limits.clock()
        if count:
            self._last_arrival = now
            self._arrived += count
        elif now - self._last_arrival > limits.idle_seconds:
            raise BodyStalled(f"No byte arrived for {limits.idle_seconds:g} seconds.")
        elapsed = now - self._started - GRACE_SECONDS
        if elapsed > 0 and self._arrived < elapsed * limits.minimum_bytes_per_second:
            raise BodyStalled(
                f"The body came at less than {limits.minimum_bytes_per_second:g} bytes per second."
            )


class FileCopy:
    """Writes the next bytes of a source to a range of an open file; `watch` may move it to another.

    If the copy ends early (a network error, a limit, `watch` raising), the bytes that had arrived
    are written to the file first, and `position` is exactly where they end.
    """

    def __init__(self, descriptor: int, span: ByteRange, limits: BodyLimits) -> None:
        self.position = span.start
        self._end = span.end
        self._descriptor = descriptor
        self._limits = limits
        self._splicing: SpliceSource | None = None

    @property
    def is_full(self) -> bool:
        """Whether the range is completely written."""
        return self.position >= self._end

    def move_to(self, span: ByteRange) -> None:
        """Write the following bytes to another range."""
        self.position, self._end = span.start, span.end

    def run(self, source: BodySource, watch: Watch) -> None:
        """Copy until the range is full or the source ends; raises what either argument raises."""
        pace = Pace(self._limits)
        self._splicing = source if isinstance(source, SpliceSource) else None
        has_ended = False
        while self.position < self._end and not has_ended:
            if self._splicing is not None and self._splicing.can_splice:
                has_ended = self._splice_some(self._splicing, pace)
            else:
                has_ended = self._copy_block(source, pace, watch)
            watch()

    def _splice_some(self, source: SpliceSource, pace: Pace) -> bool:
        """Move bytes that arrive within a tick, at most a pipeful; returns whether it ended.

        Without a useful pipe nothing is moved, and from then on bytes are copied.
        """
        if not source.wait(self._end - self.position):
            pace.saw(0)
            return False
        with empty_pipe() as pipe:
            if pipe.size < USEFUL_PIPE_BYTES:
                self._splicing = None
                return False
            count = source.splice_into(pipe.writer, min(pipe.size, self._end - self.position))
            pipe.empty_into(self._descriptor, self.position, count)
            self.position += count
        if count:
            pace.saw(count)
        return count == 0

    def _copy_block(self, source: BodySource, pace: Pace, watch: Watch) -> bool:
        with borrowed_block(self._end - self.position) as block:
            return self._fill_and_write(block, source, pace, watch)

    def _fill_and_write(
        self, block: memoryview, source: BodySource, pace: Pace, watch: Watch
    ) -> bool:
        clock = self._limits.clock
        filled, deadline = 0, clock() + BLOCK_SECONDS
        try:
            while filled < len(block) and clock() < deadline:
                count = source.readinto(block[filled:])
                if count == 0:
                    return True
                filled += count or 0
                pace.saw(count or 0)
                if count is None:
                    watch()
                if self._splicing is not None and self._splicing.can_splice:
                    break
        finally:
            _write_all(self._descriptor, block[:filled], self.position)
            self.position += filled
        return False


def discard(
    source: BodySource, *, limits: BodyLimits, watch: Watch, count: int | None = None
) -> int:
    """Read and discard the next `count` bytes of `source`, or all; returns the number discarded."""
    pace = Pace(limits)
    dropped = 0
    with borrowed_block(count) as buffer:
        while count is None or dropped < count:
            taken = source.readinto(buffer if count is None else buffer[: count - dropped])
            if taken == 0:
                break
            pace.saw(taken or 0)
            dropped += taken or 0
            watch()
    return dropped


def _write_all(descriptor: int, data: memoryview, position: int) -> None:
    with stage(Stage.WRITE):
        while data:
            written = os.pwrite(descriptor, data, position)
            data = data[written:]
            position += written
