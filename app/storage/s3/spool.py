"""Unnamed files on this node that hold bytes between a client and the bucket."""

from __future__ import annotations

import errno
import os
import secrets
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from io import FileIO, RawIOBase
from types import TracebackType

from app.core.errors import NoRoom, ServerBusy, UploadError
from app.core.ranges import ByteRange
from app.ingest.copy import write_all
from app.storage.local.folder import Folder, disk_errors
from app.storage.s3.contents import SpoolSlice, SpoolTooShort
from app.storage.s3.reader import read_blocks

KEPT_FILES = 4
KEPT_FILE_BYTES = 32 * 1024 * 1024
"""Number of files that a process keeps for reuse, and their largest size. Overwriting pages in the
page cache costs 0.13 CPU s/GB, new pages 0.26."""

_NO_UNNAMED_FILES = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})
"""Errors of file systems without O_TMPFILE, such as NFS."""


def _disk_is_full() -> UploadError:
    return ServerBusy("The server's disk for bytes on their way to its store is full.")


def spool_errors() -> disk_errors:
    """Like `disk_errors`, but a full disk is `ServerBusy`: the bucket has room for the file.

    Another node can accept the file, and so can this one once its spools are sent.
    """
    return disk_errors(_disk_is_full)


class Spool:
    """An open file with bytes of an upload from the position `base` on.

    Leaving its context also closes it and may keep the file for reuse: leave it only once nothing
    reads the bytes. If a store still reads them, their CRC32C will not match.
    """

    def __init__(
        self, descriptor: int, base: int, kept: deque[int], check_room: Callable[[int], None]
    ) -> None:
        self.descriptor = descriptor
        self.base = base
        self._kept = kept
        self._check_room = check_room
        self._may_be_read = False

    def slice(self, span: ByteRange) -> SpoolSlice:
        """Returns the bytes of a span of the upload; raises `SpoolTooShort` if some are missing."""
        start = span.start - self.base
        if start + span.length > os.fstat(self.descriptor).st_size:
            raise SpoolTooShort
        return SpoolSlice(self.descriptor, start, span.length, self._give_up)

    def check_room(self, end: int) -> None:
        """Raise `ServerBusy` if the disk is too full for bytes up to the offset `end` in the file.

        As for uploads on a disk, some space is left to the database.
        """
        try:
            self._check_room(end)
        except NoRoom as error:
            raise _disk_is_full() from error

    def write(self, block: memoryview, position: int) -> None:
        """Write bytes at their position in the upload; raises `ServerBusy` if the disk is full."""
        start = position - self.base
        self.check_room(start + len(block))
        with spool_errors():
            write_all(self.descriptor, block, start)

    def fill(self, source: RawIOBase, length: int) -> None:
        """Write the next `length` bytes of a file; raises `BytesLost` if it has fewer."""
        position = self.base
        for block in read_blocks(source, length):
            self.write(block, position)
            position += len(block)

    def reader(self) -> FileIO:
        """Open the spool for reading from its start; works even after `close`."""
        with disk_errors():
            return FileIO(os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY), "rb")

    def close(self) -> None:
        """Release the file."""
        os.close(self.descriptor)

    def _give_up(self) -> None:
        """A request with some of its bytes was aborted, and may still be reading them."""
        self._may_be_read = True

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Keep the file for reuse if no request with its bytes was aborted."""
        is_unread = kind is None and not self._may_be_read
        is_short = os.fstat(self.descriptor).st_size <= KEPT_FILE_BYTES
        if is_unread and is_short and len(self._kept) < KEPT_FILES:
            self._kept.append(self.descriptor)
        else:
            self.close()


class Spools:
    """Opens spools in a folder."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._kept = deque[int]()
        weakref.finalize(self, _close_all, self._kept)

    def open(self, base: int, *, may_reuse_file: bool = False) -> Spool:
        """Returns an empty spool; raises `ServerBusy` if the disk is full.

        With `may_reuse_file`, which is cheaper, old bytes of other uploads follow those written.
        """
        with spool_errors():
            self._require_disk()
            if may_reuse_file:
                with suppress(IndexError):
                    return self._spool(self._kept.pop(), base)
            return self._spool(self._unnamed_file(), base)

    def _spool(self, descriptor: int, base: int) -> Spool:
        return Spool(descriptor, base, self._kept, self.folder.room_check(descriptor))

    def _require_disk(self) -> None:
        """Check for disk space, if necessary without files kept for reuse; raises `ServerBusy`."""
        try:
            self.folder.require_room(0)
        except NoRoom:
            _close_all(self._kept)
            try:
                self.folder.require_room(0)
            except NoRoom as error:
                raise _disk_is_full() from error

    def _unnamed_file(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            folder, unnamed = self.folder.descriptor, flags | os.O_TMPFILE
            return os.open(".", unnamed, mode=0o600, dir_fd=folder)
        except OSError as error:
            if error.errno not in _NO_UNNAMED_FILES:
                raise
        name = f"spool-{secrets.token_hex(8)}"
        descriptor = self.folder.open(name, flags | os.O_CREAT | os.O_EXCL)
        with suppress(OSError):
            self.folder.remove(name)
        return descriptor


def _close_all(descriptors: deque[int]) -> None:
    with suppress(IndexError):
        while True:
            os.close(descriptors.pop())
