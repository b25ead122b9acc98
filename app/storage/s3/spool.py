"""Unnamed files that buffer bytes between a client and the bucket, within a limit per node.

A spool that waits for its client has room for little more than the received bytes. When no more
room is free, a spool stores its bytes and reuses its room, so no request waits for a stuck one.
"""

from __future__ import annotations

import errno
import os
import secrets
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from types import TracebackType

from app.core.errors import NoRoom, ServerBusy, UploadError
from app.core.ranges import ByteRange
from app.storage.local.folder import Folder, disk_errors
from app.storage.s3.contents import SpoolSlice, SpoolTooShort
from app.storage.s3.room import Room

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
