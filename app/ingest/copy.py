"""Moves request bodies: into a file, into memory, or nowhere.

Into a file they go in blocks large enough for the disk or, from a socket, through a pipe, without a
copy in user space.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from app.core.errors import BodyStalled
from app.core.ranges import ByteRange
from app.ingest.source import BodySource, SpliceSource, Watch
from app.ingest.stages import Stage
from app.settings import Settings

# ---- blocks of memory ----------------------------------------------------------------------------

# Memory for the bytes between a socket and a file, shared by the requests of a process.


BLOCK_BYTES = 1024 * 1024
"""Size of one write. Smaller ones cost CPU (64 KiB: 0.95 s/GB, 1 MiB: 0.43, 4 MiB: 0.41), larger
ones memory."""

SMALL_BLOCK_BYTES = 64 * 1024

MOST_BLOCKS = 16
"""At most this many requests of a process hold a block at once; others get a small block."""

KEPT_BLOCKS = 4
KEPT_SMALL_BLOCKS = 16
"""Free blocks of each size that a process keeps for later requests: 5 MiB."""


class BlockPool:
    """A pool of blocks of one size. Reuses a few: fresh memory costs a page fault every 4 KiB.

    A fresh map takes only as much memory as is filled, whereas a bytearray takes all of it at
    once. A spliced body fills only what came with the headers.
    """

    def __init__(self, size: int, *, kept: int) -> None:
        self._size = size
        self._most_kept = kept
        self._kept = deque[memoryview]()

    def take(self) -> memoryview:
        """Returns a free block, preferably the most recently used one."""
        try:
            return self._kept.pop()
        except IndexError:
            # Private: by default, forked processes would share the memory of the map.
            return memoryview(mmap.mmap(-1, self._size, flags=mmap.MAP_PRIVATE))

    def give_back(self, block: memoryview) -> None:
        """Return a block to the pool, or free it if the pool is full."""
        if len(self._kept) < self._most_kept:
            self._kept.append(block)


_free_blocks = deque(range(MOST_BLOCKS))
"""One item for each block that may still be taken."""

_blocks = BlockPool(BLOCK_BYTES, kept=KEPT_BLOCKS)
_small_blocks = BlockPool(SMALL_BLOCK_BYTES, kept=KEPT_SMALL_BLOCKS)


class borrowed_block:  # noqa: N801 - reads as the statement it is used in
    """Context manager that borrows a block of at most `wanted` bytes.

    It has at most `BLOCK_BYTES`, or `SMALL_BLOCK_BYTES` while many requests hold one; with None it
    is as large as possible.
    """

    __slots__ = ("_block", "_is_small", "_pool", "_wanted")

    def __init__(self, wanted: int | None, pool: BlockPool = _blocks) -> None:
        self._wanted = wanted
        self._pool = pool

    def __enter__(self) -> memoryview:
        self._is_small = self._wanted is not None and self._wanted <= SMALL_BLOCK_BYTES
        if not self._is_small:
            try:
                _free_blocks.pop()
            except IndexError:
                self._is_small = True
        try:
            self._block = (_small_blocks if self._is_small else self._pool).take()
        except BaseException:
            self._let_next()
            raise
        return self._block[: self._wanted]

    def __exit__(self, *_error: object) -> None:
        (_small_blocks if self._is_small else self._pool).give_back(self._block)
        self._let_next()

    def _let_next(self) -> None:
        if not self._is_small:
            _free_blocks.append(0)


# ---- pipes ---------------------------------------------------------------------------------------

# splice() needs a pipe between a socket and a file. On loopback with two shared cores it costs 0.31
# CPU seconds per GB; recv_into() and pwrite() cost 0.51 (medians of seven interleaved runs of
# 840 MB).


PIPE_BYTES = 1024 * 1024
"""Requested pipe size: the default maximum for an unprivileged user."""

USEFUL_PIPE_BYTES = 256 * 1024
"""A user over the quota of pipe memory gets pipes of a page or two: slower than copying."""


@dataclass(frozen=True, slots=True)
class Pipe:
    """Both ends of a pipe, and how many bytes it holds."""

    reader: int
    writer: int
    size: int

    def empty_into(self, descriptor: int, position: int, count: int) -> None:
        """Write the `count` bytes in the pipe to a file, at a position."""
        with Stage.WRITE:
            while count:
                moved = os.splice(self.reader, descriptor, count, offset_dst=position)
                count -= moved
                position += moved

    def close(self) -> None:
        """Close both ends; bytes in the pipe are lost."""
        os.close(self.reader)
        os.close(self.writer)


KEPT_PIPES = 16
"""How many idle pipes a process keeps: more threads seldom move bytes at once. Linux gives the
processes of an ordinary user 64 of this size together."""

_idle: deque[Pipe] = deque()
"""Empty, useful pipes of this process."""


class empty_pipe:  # noqa: N801 - reads as the statement it is used in
    """Borrows an empty pipe. After an error it is closed: another body would get its leftovers."""

    __slots__ = ("_idle", "_pipe", "_size")

    def __init__(self, idle: deque[Pipe] = _idle, *, size: int = PIPE_BYTES) -> None:
        self._idle = idle
        self._size = size

    def __enter__(self) -> Pipe:
        try:
            self._pipe = self._idle.pop()
        except IndexError:
            reader, writer = os.pipe()
            with suppress(OSError):
                fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, self._size)
            self._pipe = Pipe(reader, writer, fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
        return self._pipe

    def __exit__(self, kind: object, *_error: object) -> None:
        # A small pipe is not kept: the next body would get it, even if others are free.
        is_useful = kind is None and self._pipe.size >= USEFUL_PIPE_BYTES
        if is_useful and len(self._idle) < KEPT_PIPES:
            self._idle.append(self._pipe)
        else:
            self._pipe.close()


# ---- copies --------------------------------------------------------------------------------------

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

    @classmethod
    def of(cls, settings: Settings) -> BodyLimits:
        """The limits of request bodies in the settings."""
        return cls(settings.body_idle_seconds, settings.min_bytes_per_second)


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
    """Writes the next bytes of a source to a range of an open file.

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

    def run(self, source: BodySource, watch: Watch) -> None:
        """Copy until the range is full or the source ends; raises what either argument raises."""
        pace = Pace(self._limits)
        self._splicing = source if isinstance(source, SpliceSource) else None
        has_ended = False
        with Stage.RECEIVE:
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
        """Copy a block, or what arrives of it in its time; returns whether the source ended."""
        clock = self._limits.clock
        filled, deadline = 0, clock() + BLOCK_SECONDS
        with borrowed_block(self._end - self.position) as block:
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
                write_all(self._descriptor, block[:filled], self.position)
                self.position += filled
        return False


def discard(
    source: BodySource, *, limits: BodyLimits, watch: Watch, count: int | None = None
) -> int:
    """Read and discard the next `count` bytes of `source`, or all; returns the number discarded."""
    pace = Pace(limits)
    dropped = 0
    with Stage.RECEIVE, borrowed_block(count) as buffer:
        while count is None or dropped < count:
            taken = source.readinto(buffer if count is None else buffer[: count - dropped])
            if taken == 0:
                break
            pace.saw(taken or 0)
            dropped += taken or 0
            watch()
    return dropped


def write_all(descriptor: int, data: memoryview, position: int) -> None:
    """Write to a file; a nearly full disk may take the bytes in several steps."""
    with Stage.WRITE:
        while data:
            written = os.pwrite(descriptor, data, position)
            data = data[written:]
            position += written
