"""Unnamed files that buffer bytes between a client and the bucket, within a limit per node.

Whoever opens one locks as many bytes of a common file as it may hold: locks die with their process,
so the sum is right whatever was killed. That file itself stays empty.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from types import TracebackType

from app.domain.errors import NoRoom, ServerBusy
from app.domain.ranges import ByteRange
from app.request.slots import without_slot
from app.storage.local.folder import Folder, disk_errors
from app.storage.local.range_lock import locked_by_others, try_lock, unlock
from app.storage.s3.contents import SpoolSlice

ROOM_SECONDS = 10.0
"""How long a request waits for others to release their spools, before it is told to retry."""

KEPT_FILES = 4
KEPT_FILE_BYTES = 32 * 1024 * 1024
"""Files that a process keeps for reuse, and their largest size; they do not count as spools.
Writing over pages that the kernel has costs 0.13 CPU s/GB, new ones 0.26."""

_POLL_SECONDS = 0.02
_ACCOUNT = "spool-room"
_NO_UNNAMED_FILES = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})
"""Errors of file systems without O_TMPFILE, such as NFS."""


@dataclass(slots=True)
class Room:
    """A range of the common file that is locked as long as the descriptor is open."""

    descriptor: int
    taken: ByteRange

    def shrink(self, length: int) -> None:
        """Give back all but `length` bytes."""
        kept = ByteRange(self.taken.start, self.taken.start + max(length, 1))
        if kept.end < self.taken.end:
            unlock(self.descriptor, ByteRange(kept.end, self.taken.end))
            self.taken = kept


class Spool:
    """Room for some bytes of a file from `base` on; to be closed by whoever is done with them.

    Leaving its context closes it, too, and may keep the file for another spool: only for bytes that
    nobody reads any more.
    """

    def __init__(self, descriptor: int, room: Room, base: int, kept: deque[int]) -> None:
        self.descriptor = descriptor
        self._room = room
        self._base = base
        self._kept = kept

    def shrink(self, length: int) -> None:
        """Release the room beyond the first `length` bytes."""
        self._room.shrink(length)

    def place(self, span: ByteRange) -> ByteRange:
        """Where in the spool the bytes of a span of the file are."""
        return ByteRange(span.start - self._base, span.end - self._base)

    def slice(self, span: ByteRange) -> SpoolSlice:
        """The bytes of a span of the file."""
        return SpoolSlice(self.descriptor, span.start - self._base, span.length)

    def reader(self) -> FileIO:
        """Reads all of it from the start; works even after `close`."""
        with disk_errors():
            return FileIO(os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY), "rb")

    def close(self) -> None:
        """Release the file and the room."""
        os.close(self.descriptor)
        os.close(self._room.descriptor)

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Keep the file for reuse, unless an error left the store without the bytes."""
        is_short = os.fstat(self.descriptor).st_size <= KEPT_FILE_BYTES
        if kind is None and is_short and len(self._kept) < KEPT_FILES:
            os.close(self._room.descriptor)
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

    def open(
        self, span: ByteRange, *, base: int | None = None, may_hold_others: bool = False
    ) -> Spool:
        """A spool for the bytes of a span, placed as if it began with the byte `base`.

        It is empty, unless it `may_hold_others`, bytes of other files: that is cheaper.

        Waits a while for room. Raises `ServerBusy` if there is none, `NoRoom` if there will never
        be enough, or the disk is full.
        """
        with disk_errors():
            self.folder.require_room(span.length)
            room = self._reserve(span.length)
            try:
                descriptor = self._kept_file() if may_hold_others else self._unnamed_file()
            except BaseException:
                os.close(room.descriptor)
                raise
        return Spool(descriptor, room, span.start if base is None else base, self._kept)

    def require(self, length: int) -> None:
        """Raise `NoRoom` if there will never be room for that many bytes."""
        if length > self._capacity:
            raise NoRoom("The server cannot hold that many bytes between the client and its store.")

    def _reserve(self, length: int) -> Room:
        self.require(length)
        account = self.folder.open(_ACCOUNT, os.O_RDWR | os.O_CREAT)
        try:
            taken = self._take(account, length)
            if taken is None:
                with without_slot():
                    taken = self._wait_for(account, length)
        except BaseException:
            os.close(account)
            raise
        return Room(account, taken)

    def _wait_for(self, account: int, length: int) -> ByteRange:
        deadline = time.monotonic() + self._room_seconds
        while (taken := self._take(account, length)) is None:
            if time.monotonic() > deadline:
                raise ServerBusy("The server waits for its store to take what has arrived.")
            time.sleep(_POLL_SECONDS)
        return taken

    def _take(self, account: int, length: int) -> ByteRange | None:
        """Lock and return the first free `length` bytes; None if no gap is that long."""
        start, count = 0, max(length, 1)
        while start + count <= self._capacity:
            wanted = ByteRange(start, start + count)
            others = locked_by_others(account, wanted)
            if others is not None:
                start = others.end
            elif try_lock(account, wanted):
                return wanted
        return None

    def _kept_file(self) -> int:
        try:
            return self._kept.pop()
        except IndexError:
            return self._unnamed_file()

    def _unnamed_file(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            return os.open(".", flags | os.O_TMPFILE, mode=0o600, dir_fd=self.folder.descriptor)
        except OSError as error:
            if error.errno not in _NO_UNNAMED_FILES:
                raise
        name = f"spool-{secrets.token_hex(8)}"
        descriptor = self.folder.open(name, flags | os.O_CREAT | os.O_EXCL)
        with suppress(OSError):
            self.folder.remove(name)
        return descriptor


def _close_all(descriptors: deque[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
