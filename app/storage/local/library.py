"""Complete files: concatenates, publishes, reads and deletes them."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence, Set
from io import FileIO

from app.core.ranges import ByteRange
from app.ingest.stages import Stage
from app.storage.base import BytesLost, Durability
from app.storage.local.folder import Folder, disk_errors
from app.storage.local.range_lock import WHOLE_FILE, lock_range
from app.storage.local.staging import LocalStaging, incoming_name

COPIED_AT_ONCE_BYTES = 1 << 30
"""Bytes per call; the kernel itself stops a little below 2 GiB."""

_CANNOT_COPY_RANGE = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}
)
"""Errors of file systems that cannot copy ranges, or not to another file system. Containers that
do not support the call return EPERM."""


class LocalLibrary:
    """Implements `Library` in a folder."""

    sign_url = None

    def __init__(self, staging: LocalStaging, folder: Folder, durability: Durability) -> None:
        self._staging = staging
        self._folder = folder
        self._durability = durability

    def concatenate(self, key: str, parts: Sequence[tuple[str, int]]) -> None:
        """Copy the parts one after the other, inside the kernel."""
        try:
            with self._staging.opened(key) as descriptor, disk_errors():
                lock_range(descriptor, WHOLE_FILE, gives_way=False)
                if self._folder.has(key):
                    self._staging.remove(key)
                elif self._staging.folder.has(key):
                    position = 0
                    for part, length in parts:
                        self._copy_part(part, length, descriptor, position)
                        position += length
        except BytesLost:
            if not self._folder.has(key):
                raise

    def publish(self, key: str, length: int) -> None:
        """Rename the file into the library; copies it first to a library on another file system."""
        self._publish(key, length, is_synced=False)
        self._sync_names()

    def publish_all(self, files: Sequence[tuple[str, int]]) -> None:
        """Publish several synced files; one sync makes all their names durable."""
        for key, length in files:
            self._publish(key, length, is_synced=True)
        self._sync_names()

    def being_published(self, keys: Sequence[str]) -> Set[str]:
        """None: files in folders have one node, and it publishes them in a moment."""
        return frozenset()

    def open(self, key: str, span: ByteRange) -> FileIO:
        """Open a published file, positioned at `span.start`."""
        file = FileIO(self._folder.open_published(key), "rb")
        file.seek(span.start)
        return file

    def let_group_read(self, key: str) -> None:
        """Let programs in this process's group read a file; may raise `FileNotFoundError`."""
        self._folder.let_group_read(key)

    def delete(self, key: str) -> None:
        """Remove the published file and the staged one."""
        with disk_errors():
            self._folder.remove(key)
        self._staging.remove(key)

    def _publish(self, key: str, length: int, *, is_synced: bool) -> None:
        try:
            with self._staging.opened(key) as descriptor:
                lock_range(descriptor, WHOLE_FILE, gives_way=False)
                if self._folder.has(key):  # Reserved after the file had been published.
                    self._staging.remove(key)
                    return
                size = os.fstat(descriptor).st_size
                if size < length or not self._staging.folder.has(key):
                    raise BytesLost(f"{key} has only {size} of {length} bytes")
                with disk_errors():
                    if size > length:
                        os.ftruncate(descriptor, length)
                    if not is_synced:
                        self._sync_file(descriptor)
                    self._move(key, length, descriptor)
        except BytesLost:
            if not self._folder.has(key):
                raise

    def _move(self, key: str, length: int, descriptor: int) -> None:
        """Rename the staged file into the library, or copy it there from another file system."""
        try:
            try:
                self._staging.folder.move(key, self._folder, key)
            except OSError as error:
                # Two mounts can look like one file system, and rename() still fails between them.
                if error.errno != errno.EXDEV:
                    raise
                self._copy_and_rename(key, length, descriptor)
        except FileNotFoundError as error:  # Cancelled or deleted just now.
            raise BytesLost(key) from error

    def _copy_and_rename(self, key: str, length: int, descriptor: int) -> None:
        target = self._folder.open(incoming_name(key), os.O_WRONLY | os.O_CREAT)
        try:
            self._folder.allocate_open(target, length)
            os.ftruncate(target, length)
            if copy_range(descriptor, target, 0, length) < length:
                raise BytesLost(f"{key} was cut short while it was copied")
            self._sync_file(target)
        finally:
            os.close(target)
        self._folder.move(incoming_name(key), self._folder, key)
        self._staging.folder.remove(key)

    def _copy_part(self, part: str, length: int, target: int, position: int) -> None:
        """Copy a file, staged or published, to a position in another; raises `BytesLost`."""
        try:
            source = self._staging.descriptor(part, os.O_RDONLY)
        except BytesLost as error:
            try:
                source = self._folder.open(part, os.O_RDONLY)
            except FileNotFoundError:
                raise error from None
        try:
            if copy_range(source, target, position, length) < length:
                raise BytesLost(f"{part} has fewer than {length} bytes")
        finally:
            os.close(source)

    def _sync_file(self, descriptor: int) -> None:
        if self._durability is not Durability.NONE:
            with Stage.SYNC:
                os.fsync(descriptor)

    def _sync_names(self) -> None:
        if self._durability is not Durability.NONE:
            with disk_errors():
                self._folder.sync()


def copy_range(
    source: int, target: int, position: int, length: int, *, at_once: int = COPIED_AT_ONCE_BYTES
) -> int:
    """Copy the first `length` bytes of `source` to `target` at `position`; returns the count.

    A count below `length` means that the source is shorter. On XFS and Btrfs the two files share
    the blocks and nothing is copied; on other file systems the kernel copies.
    """
    copied = 0
    with Stage.WRITE:
        while copied < length:
            count = min(length - copied, at_once)
            try:
                count = os.copy_file_range(source, target, count, copied, position + copied)
            except OSError as error:
                if error.errno not in _CANNOT_COPY_RANGE:
                    raise
                os.lseek(target, position + copied, os.SEEK_SET)
                count = os.sendfile(target, source, copied, count)
            if count == 0:
                break
            copied += count
    return copied
