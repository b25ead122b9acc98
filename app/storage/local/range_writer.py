"""Writes bytes to one range of a file, and starts disk writes while more bytes arrive."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock

from app.core.errors import WriterSuperseded
from app.core.ranges import ByteRange
from app.ingest.copy import BodyLimits, FileCopy, discard
from app.ingest.source import BodySource
from app.ingest.stages import Stage
from app.storage.base import BytesLost, Checkpoint, Durability
from app.storage.local.folder import Folder, disk_errors
from app.storage.local.range_lock import is_takeover_requested

CHECKPOINT_BYTES = 64 * 1024 * 1024
CHECKPOINT_SECONDS = 1.0
"""A killed worker loses at most this many bytes, or seconds, of a request."""

CHECKPOINT_REST = 4
"""Timed checkpoints of a process run one at a time, each followed by a pause of this many times its
duration. A thousand slow uploads would otherwise ask for a thousand syncs a second; this way syncs
take at most a fifth of the time, and each upload is synced less often."""

LOOK_SECONDS = 0.02
"""How often, while bytes flow, a writer checks for a takeover request and a removed file. The two
calls take 5 us; a block of 1 MiB takes 300 us."""

WRITEBACK_BYTES = 4 * 1024 * 1024
"""Step size for starting writeback in the kernel. With it, chunks of 20 MiB, each followed by
fdatasync, arrive 1.4 times as fast as without; with steps of 1 MiB 1.5 times, with steps of 8 MiB
1.3 times, within the noise (`python -m bench write_path`)."""

_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h: start, and do not wait


class Checkpoints:
    """Decides when the bytes of a long request are made durable and recorded before its end.

    One per process, shared by all of its writers.
    """

    def __init__(
        self, *, every_bytes: int = CHECKPOINT_BYTES, every_seconds: float = CHECKPOINT_SECONDS
    ) -> None:
        self.every_bytes = every_bytes
        self.every_seconds = every_seconds
        self._running = Lock()
        self._rests_until = 0.0

    def run_timed(self, checkpoint: Callable[[], None]) -> None:
        """Run the checkpoint; skips it while another runs, and for a pause after one has run."""
        if not self._running.acquire(blocking=False):
            return
        try:
            started = time.monotonic()
            if started >= self._rests_until:
                checkpoint()
                ended = time.monotonic()
                self._rests_until = ended + CHECKPOINT_REST * (ended - started)
        finally:
            self._running.release()


class LocalRangeWriter:
    """Writes one range of a staged file whose lock it holds."""

    def __init__(
        self,
        descriptor: int,
        span: ByteRange,
        *,
        limits: BodyLimits,
        durability: Durability,
        checkpoints: Checkpoints,
        folder: Folder,
    ) -> None:
        self._descriptor = descriptor
        self._span = span
        self._limits = limits
        self._durability = durability
        self._checkpoints = checkpoints
        self._folder = folder
        self._check_room = folder.room_check(descriptor)
        self._may_have_lost_bytes = False

    def write(self, span: ByteRange, source: BodySource, checkpoint: Checkpoint) -> int:
        """As `RangeWriter.write`: syncs the bytes before each `checkpoint`, and at the end."""
        self._checkpoint, self._durable_to = checkpoint, span.start
        self._copy = FileCopy(self._descriptor, span, self._limits)
        is_synced = self._durability is not Durability.NONE
        self._writeback = Writeback(self._descriptor, span.start, is_wanted=is_synced)
        now = time.monotonic()
        self._look_at, self._due_at = now + LOOK_SECONDS, now + self._checkpoints.every_seconds
        with disk_errors():
            try:
                self._copy.run(source, self._watch)
            except BaseException:
                if not self._may_have_lost_bytes:
                    self._make_durable()
                raise
            self.sync()
        return self._copy.position

    def _watch(self) -> None:
        """Called by the copy after each block, and while it waits for bytes."""
        now, position = time.monotonic(), self._copy.position
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self.stop_if_superseded()
            self.stop_if_removed()
        self._check_room(position)
        fresh = position - self._durable_to
        if fresh >= self._checkpoints.every_bytes:
            self._make_durable()
        elif fresh and now >= self._due_at:
            self._checkpoints.run_timed(self._make_durable)
        else:
            self._writeback.follow(position)

    def _make_durable(self) -> None:
        """Sync the bytes that have arrived, and report them with `checkpoint`."""
        position = self._copy.position
        self.sync()
        if position > self._durable_to:
            self._checkpoint(ByteRange(self._durable_to, position))
        self._durable_to = position
        self._due_at = time.monotonic() + self._checkpoints.every_seconds

    def skip(self, count: int, source: BodySource) -> None:
        """Skip bytes that the file has already, unless a newer writer takes over."""
        if count:
            discard(source, count=count, limits=self._limits, watch=self.stop_if_superseded)

    def finish(self, source: BodySource) -> None:
        """Finish the source, unless a newer writer takes over."""
        source.finish(self.stop_if_superseded)

    def recording(self) -> AbstractContextManager[None]:
        """Yields None: a folder has no rows."""
        return nullcontext()

    def sync(self) -> None:
        """Sync the written bytes; raises `BytesLost` if the file was removed."""
        self._may_have_lost_bytes = True  # Until the sync has succeeded.
        if self._durability is Durability.CHUNK:
            with Stage.SYNC:
                # After a failed fdatasync, the next one may succeed although data was lost.
                os.fdatasync(self._descriptor)
                self._folder.require_writable()
        self.stop_if_removed()
        self._may_have_lost_bytes = False

    def stop_if_superseded(self) -> None:
        """Raise `WriterSuperseded` if a newer writer has requested the range."""
        if is_takeover_requested(self._descriptor, self._span):
            raise WriterSuperseded("A newer request writes the same bytes.")

    def stop_if_removed(self) -> None:
        """Raise `BytesLost` if the file was removed because its upload has ended."""
        if os.fstat(self._descriptor).st_nlink == 0:
            self._may_have_lost_bytes = True
            raise BytesLost("the file was removed while it was written")


class Writeback:
    """Makes the kernel start writing copied bytes to the disk, if `is_wanted`.

    The final sync then has little left to wait for.
    """

    def __init__(self, descriptor: int, start: int, *, is_wanted: bool) -> None:
        self._descriptor = descriptor
        self._begun_to = start
        self._is_wanted = is_wanted

    def follow(self, position: int) -> None:
        """Note that the copy has reached `position`."""
        if position - self._begun_to >= WRITEBACK_BYTES:
            self.catch_up(position)

    def catch_up(self, position: int) -> None:
        """Start writing everything up to `position`; called when no more bytes come for a while."""
        if self._is_wanted and position > self._begun_to:
            begin_writeback(self._descriptor, self._begun_to, position - self._begun_to)
        self._begun_to = position


def begin_writeback(descriptor: int, start: int, length: int) -> None:
    """Start writing `length` bytes from `start` to the disk, without waiting.

    This is a hint without guarantees; fdatasync reports any error again.
    """
    if _sync_file_range is not None:
        _sync_file_range(descriptor, start, length, _SYNC_FILE_RANGE_WRITE)


def _find_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        found = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):  # Not every C library has it: musl does not.
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return found


_sync_file_range = _find_sync_file_range()
