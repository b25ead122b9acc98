"""Unnamed files that buffer bytes between a client and the bucket, within a limit per node.

A spool that waits for its client has room for little more than the received bytes. When no more
room is free, a spool stores its bytes and reuses its room, so no request waits for a stuck one.
"""

from __future__ import annotations

import errno
import os
import random
import secrets
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from types import TracebackType

from app.core.errors import NoRoom, ServerBusy, UploadError
from app.core.ranges import ByteRange, RangeSet
from app.ingest.copy import BodyLimits, FileCopy
from app.ingest.slots import without_slot
from app.ingest.source import BodySource, Watch
from app.storage.local.folder import Folder, disk_errors
from app.storage.local.range_lock import locked_by_others, try_lock, unlock
from app.storage.s3.contents import SpoolSlice, SpoolTooShort

FIRST_BYTES = 1024 * 1024
"""Initial room for a body: one block. It doubles whenever it is full."""

ROOM_SECONDS = 10.0
"""How long a request waits for others to release their spools before the client must retry."""

KEPT_FILES = 4
KEPT_FILE_BYTES = 32 * 1024 * 1024
"""Number of files that a process keeps for reuse, and their largest size; they do not count as
spools. Overwriting pages in the page cache costs 0.13 CPU s/GB, new pages 0.26."""

_NO_UNNAMED_FILES = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})
"""Errors of file systems without O_TMPFILE, such as NFS."""


def _disk_is_full() -> UploadError:
    return ServerBusy("The server's disk for bytes on their way to its store is full.")


def spool_errors() -> disk_errors:
    """Like `disk_errors`, but a full disk is `ServerBusy`: the bucket has room for the file.

    Another node can accept the file, and so can this one once its spools are sent.
    """
    return disk_errors(_disk_is_full)


@dataclass(slots=True)
class SpoolFile:
    """An open file. A reused file has another spool's bytes from `end` on; None for a new file."""

    descriptor: int
    end: int | None = None
    may_be_read: bool = False
    """Whether an aborted request may still be reading the file; then it is not reused."""

    def give_up(self) -> None:
        """Note that a request with some of its bytes was aborted."""
        self.may_be_read = True


class Spool:
    """Buffers bytes of a span of a file, starting at `base`; must be closed after use.

    A copy into the spool may write to `place(room)`, and calls `grow` once that is full.

    Leaving its context also closes it and may keep the file for reuse: leave it only once nothing
    reads the bytes. If a store still reads them, their CRC32C will not match.
    """

    def __init__(
        self,
        file: SpoolFile,
        room: Room,
        span: ByteRange,
        *,
        room_seconds: float,
        kept: deque[int],
    ) -> None:
        self.descriptor = file.descriptor
        self.base = span.start
        self.end = span.end
        self._file = file
        self._room = room
        self._room_seconds = room_seconds
        self._kept = kept

    @property
    def room(self) -> ByteRange:
        """The range of the file that fits without growing."""
        return ByteRange(self.base, min(self.base + self._room.length, self.end))

    @property
    def is_wanted(self) -> bool:
        """Whether another request waits for room."""
        return self._room.is_wanted

    def grow(self, patience: float) -> bool:
        """Double the room, up to the length of its span; False if there is no room.

        `patience` is the time to wait for room, as a share of `ROOM_SECONDS`.
        """
        missing = self.end - self.room.end
        most, least = min(self._room.length, missing), min(FIRST_BYTES, missing)
        return self._room.grow(most) or self._room.grow(least, patience * self._room_seconds)

    def begin_again(self, position: int) -> None:
        """Reuse the room for the bytes from `position` on; earlier bytes are already stored."""
        self.base = position
        self._file.end = 0

    def note_written(self, length: int) -> None:
        """Note that the first `length` bytes have been written."""
        if self._file.end is not None:
            self._file.end = length

    def shrink(self, length: int) -> None:
        """Release the room beyond the first `length` bytes."""
        self._room.shrink(length)

    def place(self, span: ByteRange) -> ByteRange:
        """Returns the range in the spool of a span of the file."""
        return ByteRange(span.start - self.base, span.end - self.base)

    def slice(self, span: ByteRange) -> SpoolSlice:
        """Returns the bytes of a span of the file; raises `SpoolTooShort` if some are missing."""
        place = self.place(span)
        if self._file.end is not None and place.end > self._file.end:
            raise SpoolTooShort
        return SpoolSlice(self.descriptor, place.start, place.length, self._file.give_up)

    def reader(self) -> FileIO:
        """Open the spool for reading from its start; works even after `close`."""
        with disk_errors():
            return FileIO(os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY), "rb")

    def close(self) -> None:
        """Release the file and the room."""
        os.close(self.descriptor)
        self._room.close()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Keep the file for reuse if no request with its bytes was aborted."""
        is_unread = kind is None and not self._file.may_be_read
        is_short = os.fstat(self.descriptor).st_size <= KEPT_FILE_BYTES
        if is_unread and is_short and len(self._kept) < KEPT_FILES:
            self._room.close()
            self._kept.append(self.descriptor)
        else:
            self.close()


class Spools:
    """Opens spools in a folder; together those of all processes hold at most `capacity` bytes."""

    def __init__(
        self, folder: Folder, capacity: int, *, room_seconds: float = ROOM_SECONDS
    ) -> None:
        self.folder = folder
        self._capacity = capacity
        self._room_seconds = room_seconds
        self._kept = deque[int]()
        weakref.finalize(self, _close_all, self._kept)

    def open(self, span: ByteRange, *, patience: float = 1.0) -> Spool:
        """Returns an empty spool with room for all bytes of a span.

        Waits for room like `Spool.grow`. Raises `NoSpoolRoom` if there is none, `ServerBusy` if the
        disk is full, and `NoRoom` if the span exceeds the capacity.
        """
        return self._open(span, span.length, self._unnamed_file, patience)

    def begin(self, span: ByteRange, *, may_reuse_file: bool = False) -> Spool:
        """Returns a spool for bytes of a span that are yet to arrive, with room for the first.

        With `may_reuse_file`, which is cheaper, the writer must call `note_written`: old bytes of
        other files follow. Raises like `open`.
        """
        new_file = self._kept_file if may_reuse_file else self._unnamed_file
        return self._open(span, min(span.length, FIRST_BYTES), new_file, patience=1.0)

    def require(self, length: int) -> None:
        """Raise `NoRoom` if `length` bytes exceed the capacity."""
        if length > self._capacity:
            raise NoRoom("The server cannot hold that many bytes between the client and its store.")

    def _open(
        self, span: ByteRange, length: int, new_file: Callable[[], SpoolFile], patience: float
    ) -> Spool:
        self.require(span.length)
        with spool_errors():
            self._require_disk(span.length)
            room = Room(self.folder, self._capacity)
            try:
                room.require(length, patience * self._room_seconds)
                file = new_file()
            except BaseException:
                room.close()
                raise
            return Spool(file, room, span, room_seconds=self._room_seconds, kept=self._kept)

    def room_check(self, spool: Spool) -> Callable[[int], None]:
        """Returns a check of the position in a spool; raises `ServerBusy` once the disk is full."""
        check = self.folder.room_check(spool.descriptor)

        def check_spool(position: int) -> None:
            try:
                check(position)
            except NoRoom as error:
                raise _disk_is_full() from error

        return check_spool

    def _require_disk(self, length: int) -> None:
        """Check for disk space, if necessary without files kept for reuse; raises `ServerBusy`."""
        try:
            self.folder.require_room(length)
        except NoRoom:
            _close_all(self._kept)
            try:
                self.folder.require_room(length)
            except NoRoom as error:
                raise _disk_is_full() from error

    def _kept_file(self) -> SpoolFile:
        try:
            return SpoolFile(self._kept.pop(), end=0)
        except IndexError:
            return self._unnamed_file()

    def _unnamed_file(self) -> SpoolFile:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            folder, unnamed = self.folder.descriptor, flags | os.O_TMPFILE
            return SpoolFile(os.open(".", unnamed, mode=0o600, dir_fd=folder))
        except OSError as error:
            if error.errno not in _NO_UNNAMED_FILES:
                raise
        name = f"spool-{secrets.token_hex(8)}"
        descriptor = self.folder.open(name, flags | os.O_CREAT | os.O_EXCL)
        with suppress(OSError):
            self.folder.remove(name)
        return SpoolFile(descriptor)


def _close_all(descriptors: deque[int]) -> None:
    with suppress(IndexError):
        while True:
            os.close(descriptors.pop())


# ---- copying a body ------------------------------------------------------------------------------


SHORT_PATIENCE = 0.3
"""How long bytes wait for room before they are stored as a piece, as a share of a new spool's time.
A piece costs a request and must be read again."""


class SpoolCopy:
    """Copies the bytes of a span of a file as far as there is room for them.

    When no more room is free, it calls `store_and_tell` to store the bytes, and reuses their room.
    Without `store_and_tell` the bytes must stay, so it waits and then raises `ServerBusy`. Copies
    that wait for each other use random timeouts, so that one fails and the others continue.
    """

    def __init__(
        self, spool: Spool, limits: BodyLimits, store_and_tell: Callable[[], None] | None = None
    ) -> None:
        self._spool = spool
        self._start = spool.base
        self._store_and_tell = store_and_tell
        self._copy = FileCopy(spool.descriptor, spool.place(spool.room), limits)

    @property
    def position(self) -> int:
        """Position in the file at which the copied bytes end."""
        return self._spool.base + self._copy.position

    @property
    def spooled(self) -> int:
        """Number of bytes in the spool."""
        return self._copy.position

    def run(self, source: BodySource, watch: Watch) -> None:
        """Like `FileCopy.run`."""

        def watch_and_grow() -> None:
            self._spool.note_written(self._copy.position)
            watch()
            if self._copy.is_full and self.position < self._spool.end:
                self._go_on()

        try:
            self._copy.run(source, watch_and_grow)
        finally:
            self._spool.note_written(self._copy.position)

    def begin_again(self) -> None:
        """Continue in the room of bytes that have been stored."""
        self._spool.begin_again(self.position)
        self._copy.move_to(self._spool.place(self._spool.room))

    def _go_on(self) -> None:
        if self._store_and_tell is None:
            patience = random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        else:
            patience = SHORT_PATIENCE if self._spool.base == self._start else 0.0
        if self._spool.grow(patience):
            room = self._spool.place(self._spool.room)
            self._copy.move_to(ByteRange(self._copy.position, room.end))
        elif self._store_and_tell is None:
            raise ServerBusy("The server waits for its store to take what has arrived.")
        else:
            self._store_and_tell()
            self.begin_again()


# ---- room ----------------------------------------------------------------------------------------

# Limits the total bytes in all spools of a node, across processes. A byte of room is a locked byte
# of a shared file: locks end with their process, so the total stays right when processes are
# killed. The file itself stays empty.


GUESSES = 3
"""Random positions to try before a search: with half of the room taken, most are free."""

_POLL_SECONDS = 0.02
_ACCOUNT = "spool-room"


class NoSpoolRoom(ServerBusy):
    """Other spools of this node use the room."""


class Room:
    """Room for some bytes on this node until it is closed; all rooms share `capacity` bytes."""

    def __init__(self, folder: Folder, capacity: int) -> None:
        self._capacity = capacity
        self._taken = RangeSet()
        self._descriptor = folder.open(_ACCOUNT, os.O_RDWR | os.O_CREAT)

    @property
    def length(self) -> int:
        """Number of bytes that this room holds."""
        return self._taken.total

    @property
    def is_wanted(self) -> bool:
        """Whether another request waits for room."""
        return locked_by_others(self._descriptor, self._waiting) is not None

    def grow(self, count: int, seconds: float = 0.0) -> bool:
        """Add room for `count` more bytes; False if there is none within `seconds`."""
        if self._take(count):
            return True
        if not seconds:
            return False
        deadline = time.monotonic() + seconds
        with without_slot():
            try:
                while not self._take(count):
                    if time.monotonic() > deadline:
                        return False
                    try_lock(self._descriptor, self._waiting)
                    time.sleep(_POLL_SECONDS)
                return True
            finally:
                unlock(self._descriptor, self._waiting)

    def require(self, count: int, seconds: float) -> None:
        """Add room for `count` more bytes; raises `NoSpoolRoom` if none is free in time."""
        if not self.grow(count, seconds):
            raise NoSpoolRoom("The server waits for its store to take what has arrived.")

    def shrink(self, length: int) -> None:
        """Release all but `length` bytes."""
        for span in self._taken:
            kept = ByteRange(span.start, min(span.end, span.start + length))
            length -= kept.length
            if kept != span:
                self._give_back(ByteRange(kept.end, span.end))

    def close(self) -> None:
        """Release all room."""
        os.close(self._descriptor)

    @property
    def _waiting(self) -> ByteRange:
        """The byte that a waiting request locks."""
        return ByteRange(self._capacity, self._capacity + 1)

    def _take(self, count: int) -> bool:
        """Lock `count` free bytes, contiguous if that is easy."""
        starts = [self._taken.end]
        starts += (random.randrange(self._capacity) for _ in range(GUESSES))  # noqa: S311 - no secret
        if any(self._lock(ByteRange(start, start + count)) for start in starts):
            return True
        return self._gather(count)

    def _gather(self, count: int) -> bool:
        """Lock `count` free bytes anywhere, or none; searches from a random position."""
        begin = random.randrange(self._capacity)  # noqa: S311 - no secret
        found, missing = list[ByteRange](), count
        for position, end in ((begin, self._capacity), (0, begin)):
            at = position
            while missing and at < end:
                free = self._first_free(at, missing)
                if self._lock(free):
                    found.append(free)
                    missing -= free.length
                at = max(free.end, at + 1)
        if missing:
            for span in found:
                self._give_back(span)
        return not missing

    def _first_free(self, position: int, count: int) -> ByteRange:
        """Returns the first free range from `position` on, up to `count` bytes; may be empty."""
        while position < self._capacity:
            rest = ByteRange(position, min(position + count, self._capacity))
            own_or_free = next(self._taken.gaps(rest), None)
            if own_or_free is None:
                position = rest.end
                continue
            other = locked_by_others(self._descriptor, own_or_free)
            if other is None:
                return own_or_free
            if other.start > own_or_free.start:
                count = other.start - own_or_free.start
                position = own_or_free.start
            else:
                position = other.end
        return ByteRange(self._capacity, self._capacity)

    def _lock(self, span: ByteRange) -> bool:
        """Lock bytes that are free; returns whether all of them were."""
        is_ours = self._taken.total + span.length != self._taken.add(span).total
        if not span.length or span.end > self._capacity or is_ours:
            return False
        if not try_lock(self._descriptor, span):
            return False
        self._taken = self._taken.add(span)
        return True

    def _give_back(self, span: ByteRange) -> None:
        unlock(self._descriptor, span)
        self._taken = RangeSet.of(
            left for own in self._taken for left in RangeSet.of([span]).gaps(own)
        )
