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
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from app.domain.errors import WriterSuperseded
from app.domain.ranges import ByteRange
from app.ingest.copy import BodyLimits, FileCopy, discard
from app.ingest.source import BodySource
from app.storage.base import BytesLost, Checkpoint, Durability, Problem, StagedFile
from app.storage.folder import Folder, disk_errors, folder_problems
from app.storage.kernel_copy import copy_range
from app.storage.range_lock import is_knocked, lock_range

CHECKPOINT_BYTES = 64 * 1024 * 1024
CHECKPOINT_SECONDS = 1.0
"""A killed worker loses at most so many bytes, or what came in so many seconds, of a request."""

SETTLING_SECONDS = 0.3
"""A request whose client has gone reads what the network still holds, and ends, well within it."""

WHOLE_FILE = ByteRange(0, 1 << 61)
"""Covers any file, and stays below the offset of knocks."""


class LocalRangeWriter:
    """Writes one range of a staged file whose lock it holds."""

    def __init__(
        self, descriptor: int, span: ByteRange, limits: BodyLimits, durability: Durability
    ) -> None:
        self._descriptor = descriptor
        self._span = span
        self._limits = limits
        self._durability = durability
        self._has_lost_bytes = False

    def write(self, span: ByteRange, source: BodySource, checkpoint: Checkpoint) -> int:
        """See `RangeWriter.write`."""
        copy = FileCopy(self._descriptor, span, self._limits)
        durable_to, checked_at = span.start, time.monotonic()

        def make_durable() -> None:
            nonlocal durable_to, checked_at
            self._sync()
            if copy.position > durable_to:
                checkpoint(ByteRange(durable_to, copy.position))
            durable_to, checked_at = copy.position, time.monotonic()

        def watch() -> None:
            self._stop_if_superseded()
            fresh = copy.position - durable_to
            waited = time.monotonic() - checked_at
            if fresh >= CHECKPOINT_BYTES or (fresh and waited >= CHECKPOINT_SECONDS):
                make_durable()

        with disk_errors():
            try:
                copy.run(source, watch)
            except BaseException:
                if not self._has_lost_bytes:
                    make_durable()
                raise
            self._sync()
        return copy.position

    def skip(self, count: int, source: BodySource) -> None:
        """See `RangeWriter.skip`."""
        discard(source, count=count, limits=self._limits, watch=self._stop_if_superseded)

    def _sync(self) -> None:
        """Make what was written durable, in the file that has the name, and in no removed one."""
        self._has_lost_bytes = True
        if self._durability is Durability.CHUNK:
            os.fdatasync(self._descriptor)  # After one that failed, the next one tells nothing.
        if os.fstat(self._descriptor).st_nlink == 0:
            raise BytesLost("the file was removed while it was written")
        self._has_lost_bytes = False

    def _stop_if_superseded(self) -> None:
        if is_knocked(self._descriptor, self._span):
            raise WriterSuperseded("A newer request writes the same bytes.")


class LocalStore:
    """An `UploadStore` and `Inspectable` over two folders; opens them when first used."""

    def __init__(self, staging: Path, library: Path, durability: Durability) -> None:
        self._staging = Folder(staging)
        self._library = Folder(library)
        self._durability = durability

    def reserve(self, key: str, length: int) -> None:
        """See `UploadStore.reserve`. Blocks are allocated, so later writes find their room."""
        try:
            with disk_errors():
                self._staging.allocate(key, length)
                if not self._is_one_file_system:
                    self._library.allocate(_incoming(key), length)
                if self._durability is Durability.CHUNK:
                    self._staging.sync()
        except BaseException:
            self.remove_staged(key)
            raise

    @contextmanager
    def exclusive(
        self, key: str, span: ByteRange, limits: BodyLimits
    ) -> Iterator[LocalRangeWriter]:
        """See `UploadStore.exclusive`."""
        with self._staged_file(key) as descriptor:
            lock_range(descriptor, span)
            yield LocalRangeWriter(descriptor, span, limits, self._durability)

    def settle(self, key: str, position: int) -> None:
        """See `UploadStore.settle`."""
        with self._staged_file(key) as descriptor, suppress(WriterSuperseded):
            byte = ByteRange(position, position + 1)
            lock_range(descriptor, byte, patience_seconds=SETTLING_SECONDS)

    def concatenate(self, key: str, parts: Sequence[tuple[str, int]]) -> None:
        """See `ConcatenatingStore.concatenate`."""
        try:
            with self._staged_file(key) as descriptor, disk_errors():
                lock_range(descriptor, WHOLE_FILE, gives_way=False)
                if self._staging.has(key):
                    self._fill(descriptor, parts)
        except BytesLost:
            if not self._library.has(key):
                raise

    def receive(self, key: str, source: BodySource, limit: int, limits: BodyLimits) -> int:
        """See `UploadStore.receive`."""
        self._staging.require_room(0)
        with self._staged_file(key, os.O_RDWR | os.O_CREAT) as descriptor, disk_errors():
            copy = FileCopy(descriptor, ByteRange(0, limit), limits)
            copy.run(source, lambda: None)
            os.ftruncate(descriptor, copy.position)  # Room reserved for more is given back.
            # Before its record: a power cut must not leave one that claims what is not there.
            if self._durability is not Durability.NONE:
                os.fdatasync(descriptor)
            return copy.position

    def publish(self, key: str, length: int) -> None:
        """See `UploadStore.publish`. Takes no longer for a longer file on one file system."""
        try:
            with self._staged_file(key) as descriptor:
                lock_range(descriptor, WHOLE_FILE, gives_way=False)
                self._publish_locked(key, length, descriptor)
        except BytesLost:
            if not self._library.has(key):
                raise

    def open(self, key: str, span: ByteRange) -> FileIO:
        """See `UploadStore.open`."""
        file = FileIO(self._library.open(key, os.O_RDONLY), "rb")
        file.seek(span.start)
        return file

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

    def _publish_locked(self, key: str, length: int, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        if size < length or not self._staging.has(key):
            raise BytesLost(f"{key} has only {size} of {length} bytes")
        with disk_errors():
            if size > length:
                os.ftruncate(descriptor, length)
            if self._durability is not Durability.NONE:
                os.fsync(descriptor)
            try:
                self._bring_over(key, length, descriptor)
            except FileNotFoundError as error:  # Cancelled or deleted a moment ago.
                raise BytesLost(key) from error
            if self._durability is not Durability.NONE:
                self._library.sync()

    def _fill(self, descriptor: int, parts: Sequence[tuple[str, int]]) -> None:
        position = 0
        for part, length in parts:
            with self._staged_file(part, os.O_RDONLY) as source:
                if copy_range(source, descriptor, position, length) < length:
                    raise BytesLost(f"{part} has fewer than {length} bytes")
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
            os.ftruncate(target, length)
            if copy_range(descriptor, target, 0, length) < length:
                raise BytesLost(f"{key} was cut short while it was copied")
            if self._durability is not Durability.NONE:
                os.fsync(target)
        finally:
            os.close(target)
        self._library.move(_incoming(key), self._library, key)
        self._staging.remove(key)


def _incoming(key: str) -> str:
    return f".{key}.incoming"
