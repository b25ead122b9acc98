"""Files on local disks: one preallocated file an upload, published by rename.

<staging>/<key>             what is being received, as long as the finished file from the start
<library>/<key>             published
<library>/.<key>.incoming   on its way in, where staging is another file system; it holds the
                            room there from the start, so that publishing cannot run out of it
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import FileIO
from pathlib import Path

from app.domain.errors import WriterSuperseded
from app.domain.ranges import ByteRange
from app.ingest.copy import BodyLimits, FileCopy
from app.ingest.source import BodySource
from app.request.slots import without_slot
from app.request.stages import Stage, stage
from app.storage.base import BytesLost, Durability, Problem, StagedFile
from app.storage.folder import Folder, disk_errors, folder_problems
from app.storage.kernel_copy import copy_range
from app.storage.range_lock import lock_range, wait_for_range
from app.storage.range_writer import LocalRangeWriter
from app.storage.writeback import Writeback

SETTLING_SECONDS = 0.3
"""A request whose client has gone reads what the network still holds, and ends, well within it."""

TAKE_OVER_SECONDS = 2.0
"""A request that is told to stop looks at least twice a second, and then makes durable what it
has."""

SYNCS_AT_ONCE = 8
"""Files of one group made durable side by side."""

WHOLE_FILE = ByteRange(0, 1 << 61)
"""Covers any file, and stays below the offset of knocks."""


class LocalStore:
    """An `UploadStore` and `Inspectable` over two folders; opens them when first used."""

    def __init__(self, staging: Path, library: Path, durability: Durability) -> None:
        self._staging = Folder(staging)
        self._library = Folder(library)
        self._durability = durability
        self._syncing = ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="sync")

    def reserve(self, key: str, length: int) -> None:
        """See `UploadStore.reserve`. Blocks are allocated, so later writes find their room."""
        had_room = self._staging.has(key)
        try:
            with disk_errors():
                self._staging.allocate(key, length)
                if not self._is_one_file_system:
                    self._library.allocate(_incoming(key), length)
                if self._durability is Durability.CHUNK:
                    self._staging.sync()
            if self._library.has(key):  # Published by another who was faster.
                self.remove_staged(key)
        except BaseException:
            if not had_room:  # Else there may be bytes in it.
                self.remove_staged(key)
            raise

    def enlarge(self, key: str, length: int) -> None:
        """See `UploadStore.enlarge`."""
        with self._staged_file(key) as descriptor, disk_errors():
            self._staging.allocate_open(descriptor, length)
            if not self._is_one_file_system:
                self._library.allocate(_incoming(key), length)

    @contextmanager
    def exclusive(
        self, key: str, span: ByteRange, limits: BodyLimits
    ) -> Iterator[LocalRangeWriter]:
        """See `UploadStore.exclusive`."""
        with self._staged_file(key) as descriptor:
            lock_range(descriptor, span)
            check_room = self._staging.room_check(descriptor)
            yield LocalRangeWriter(descriptor, span, limits, self._durability, check_room)

    def settle(self, key: str, position: int) -> None:
        """See `UploadStore.settle`."""
        byte = ByteRange(position, position + 1)
        with self._staged_file(key) as descriptor:
            try:
                lock_range(descriptor, byte, patience_seconds=SETTLING_SECONDS)
            except WriterSuperseded:
                # Another who looks, mostly: it ends the older writer for both. One that writes
                # need not be waited for to its end.
                with without_slot():
                    wait_for_range(descriptor, byte, TAKE_OVER_SECONDS)

    def concatenate(self, key: str, parts: Sequence[tuple[str, int]]) -> None:
        """See `ConcatenatingStore.concatenate`."""
        try:
            with self._staged_file(key) as descriptor, disk_errors():
                lock_range(descriptor, WHOLE_FILE, gives_way=False)
                if self._library.has(key):
                    self.remove_staged(key)
                elif self._staging.has(key):
                    self._fill(descriptor, parts)
        except BytesLost:
            if not self._library.has(key):
                raise

    def receive(self, key: str, source: BodySource, limit: int, limits: BodyLimits) -> int:
        """See `UploadStore.receive`."""
        self._staging.require_room(0)
        with self._staged_file(key, os.O_RDWR | os.O_CREAT) as descriptor, disk_errors():
            copy = FileCopy(descriptor, ByteRange(0, limit), limits)
            check_room = self._staging.room_check(descriptor)
            is_synced = self._durability is not Durability.NONE
            writeback = Writeback(descriptor, 0, is_wanted=is_synced)

            def watch() -> None:
                check_room(copy.position)
                writeback.follow(copy.position)

            copy.run(source, watch)
            os.ftruncate(descriptor, copy.position)  # Room reserved for more is given back.
            writeback.catch_up(copy.position)
            return copy.position

    def harden(self, keys: Sequence[str]) -> None:
        """See `UploadStore.harden`."""
        if self._durability is not Durability.NONE:
            # Side by side they share the disk's waits, as far as its file system can.
            with stage(Stage.SYNC):
                for _ in self._syncing.map(self._sync_staged, keys):
                    pass

    def publish(self, key: str, length: int) -> None:
        """See `UploadStore.publish`. Takes no longer for a longer file on one file system."""
        self._bring_in(key, length, is_hard=False)
        self._sync_library()

    def publish_all(self, files: Sequence[tuple[str, int]]) -> None:
        """See `UploadStore.publish_all`. One sync of the library makes all their names durable."""
        for key, length in files:
            self._bring_in(key, length, is_hard=True)
        self._sync_library()

    def open(self, key: str, span: ByteRange) -> FileIO:
        """See `UploadStore.open`."""
        file = FileIO(self._library.open_published(key), "rb")
        file.seek(span.start)
        return file

    def let_group_read(self, key: str) -> None:
        """See `SharingStore.let_group_read`."""
        self._library.let_group_read(key)

    def open_staged(self, key: str) -> FileIO:
        """See `UploadStore.open_staged`."""
        return FileIO(self._open_staged(key, os.O_RDONLY), "rb")

    def delete(self, key: str) -> None:
        """See `UploadStore.delete`."""
        with disk_errors():
            self._library.remove(key)
        self.remove_staged(key)

    def staged(self) -> Iterator[StagedFile]:
        """See `Inspectable.staged`."""
        now = time.time()
        for entry in self._staging.entries():
            with suppress(FileNotFoundError):
                yield StagedFile(entry.name, now - entry.stat().st_mtime)

    def shift_activity(self, later: timedelta) -> None:
        """See `Inspectable.shift_activity`."""
        with disk_errors():
            self._staging.shift_times(later.total_seconds())

    def published(self) -> Iterator[str]:
        """See `Inspectable.published`."""
        return (entry.name for entry in self._library.entries() if entry.name[0] != ".")

    def remove_staged(self, key: str) -> None:
        """See `Inspectable.remove_staged`. The staged file goes last: by it leftovers are found."""
        with disk_errors():
            self._library.remove(_incoming(key))
            self._staging.remove(key)

    def problems(self) -> list[Problem]:
        """See `Inspectable.problems`."""
        return [
            *folder_problems(self._staging, "staging", warn_of_memory=True),
            *folder_problems(self._library, "library", warn_of_memory=False),
        ]

    @property
    def _is_one_file_system(self) -> bool:
        return self._staging.device == self._library.device

    def _open_staged(self, key: str, flags: int) -> int:
        with disk_errors():
            try:
                return self._staging.open(key, flags)
            except FileNotFoundError as error:
                raise BytesLost(key) from error

    @contextmanager
    def _staged_file(self, key: str, flags: int = os.O_RDWR) -> Iterator[int]:
        descriptor = self._open_staged(key, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open_any(self, key: str) -> int:
        try:
            return self._open_staged(key, os.O_RDONLY)
        except BytesLost as error:
            with disk_errors():
                try:
                    return self._library.open(key, os.O_RDONLY)
                except FileNotFoundError:
                    raise error from None

    def _sync_staged(self, key: str) -> None:
        with self._staged_file(key) as descriptor, disk_errors():
            os.fdatasync(descriptor)

    def _sync_library(self) -> None:
        if self._durability is not Durability.NONE:
            with disk_errors():
                self._library.sync()

    def _bring_in(self, key: str, length: int, *, is_hard: bool) -> None:
        try:
            with self._staged_file(key) as descriptor:
                lock_range(descriptor, WHOLE_FILE, gives_way=False)
                if self._library.has(key):  # This is room that someone made too late.
                    self.remove_staged(key)
                else:
                    self._publish_locked(key, length, descriptor, is_hard=is_hard)
        except BytesLost:
            if not self._library.has(key):
                raise

    def _publish_locked(self, key: str, length: int, descriptor: int, *, is_hard: bool) -> None:
        size = os.fstat(descriptor).st_size
        if size < length or not self._staging.has(key):
            raise BytesLost(f"{key} has only {size} of {length} bytes")
        with disk_errors():
            if size > length:
                os.ftruncate(descriptor, length)
            if not is_hard and self._durability is not Durability.NONE:
                with stage(Stage.SYNC):
                    os.fsync(descriptor)
            try:
                self._bring_over(key, length, descriptor)
            except FileNotFoundError as error:  # Cancelled or deleted a moment ago.
                raise BytesLost(key) from error

    def _fill(self, descriptor: int, parts: Sequence[tuple[str, int]]) -> None:
        position = 0
        for part, length in parts:
            source = self._open_any(part)
            try:
                if copy_range(source, descriptor, position, length) < length:
                    raise BytesLost(f"{part} has fewer than {length} bytes")
            finally:
                os.close(source)
            position += length

    def _bring_over(self, key: str, length: int, descriptor: int) -> None:
        try:
            self._staging.move(key, self._library, key)
        except OSError as error:
            # Two mounts of one file system look like one, and still do not rename.
            if error.errno != errno.EXDEV:
                raise
            self._copy_over(key, length, descriptor)

    def _copy_over(self, key: str, length: int, descriptor: int) -> None:
        target = self._library.open(_incoming(key), os.O_WRONLY | os.O_CREAT)
        try:
            self._library.allocate_open(target, length)
            os.ftruncate(target, length)
            if copy_range(descriptor, target, 0, length) < length:
                raise BytesLost(f"{key} was cut short while it was copied")
            if self._durability is not Durability.NONE:
                with stage(Stage.SYNC):
                    os.fsync(target)
        finally:
            os.close(target)
        self._library.move(_incoming(key), self._library, key)
        self._staging.remove(key)


def _incoming(key: str) -> str:
    return f".{key}.incoming"
