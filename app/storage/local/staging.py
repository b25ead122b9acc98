"""Files that are still being received: reserves space, writes, syncs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import FileIO

from app.core.ranges import ByteRange
from app.ingest.copy import BodyLimits, FileCopy
from app.ingest.source import BodySource
from app.ingest.stages import Stage
from app.storage.base import BytesLost, Durability
from app.storage.local.folder import Folder, disk_errors
from app.storage.local.range_lock import WHOLE_FILE, lock_range, stop_writer, try_lock
from app.storage.local.range_writer import Checkpoints, LocalRangeWriter, Writeback

SYNCS_AT_ONCE = 8
"""Number of files in a group that are synced in parallel."""


class LocalStaging:
    """Implements `Staging` in a folder; also reserves space in a library on another disk."""

    def __init__(
        self, folder: Folder, library: Folder, durability: Durability, checkpoints: Checkpoints
    ) -> None:
        self.folder = folder
        self._library = library
        self._durability = durability
        self._checkpoints = checkpoints
        self._syncing = ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="sync")

    def reserve(self, key: str, length: int, *, allocates: bool = True) -> None:
        """Allocate the blocks of a file, so that later writes cannot run out of space."""
        if not allocates:
            self._require_room(length)
            length = 0
        had_room = self.folder.has(key)
        try:
            with disk_errors():
                if length and not self._is_on_disk_of_library:
                    self.folder.allocate(key, 0)  # By this file, housekeeping finds the other.
                    self._library.allocate(incoming_name(key), length)
                self.folder.allocate(key, length)
                if self._durability is Durability.CHUNK:
                    self.folder.sync()
            if self._library.has(key):  # Another request has published it.
                self.remove(key)
        except BaseException:
            if not had_room:
                self._remove_empty(key)
            raise

    def enlarge(self, key: str, length: int, *, allocates: bool = True) -> None:
        """Allocate more blocks for an existing file."""
        with self.opened(key) as descriptor, disk_errors():
            if not allocates:
                self._require_room(length - os.fstat(descriptor).st_size)
                return
            self.folder.allocate_open(descriptor, length)
            if not self._is_on_disk_of_library:
                self._library.allocate(incoming_name(key), length)

    @contextmanager
    def writer(self, key: str, span: ByteRange, limits: BodyLimits) -> Iterator[LocalRangeWriter]:
        """Lock a range of the file for writing while the context lasts."""
        with self.opened(key) as descriptor:
            lock_range(descriptor, span)
            yield LocalRangeWriter(
                descriptor,
                span,
                limits=limits,
                durability=self._durability,
                checkpoints=self._checkpoints,
                folder=self.folder,
            )

    def stop_writer(self, key: str, position: int) -> None:
        """Return once the lock on the byte at `position` is free."""
        with self.opened(key) as descriptor:
            stop_writer(descriptor, position)

    def receive(self, key: str, source: BodySource, limit: int, limits: BodyLimits) -> int:
        """Write a new file of unknown length, without locks; returns its length."""
        self.folder.require_room(0)
        with self.opened(key, os.O_RDWR | os.O_CREAT) as descriptor, disk_errors():
            copy = FileCopy(descriptor, ByteRange(0, limit), limits)
            check_room = self.folder.room_check(descriptor)
            is_synced = self._durability is not Durability.NONE
            writeback = Writeback(descriptor, 0, is_wanted=is_synced)

            def watch() -> None:
                check_room(copy.position)
                writeback.follow(copy.position)

            copy.run(source, watch)
            os.ftruncate(descriptor, copy.position)  # Frees unused reserved space.
            writeback.catch_up(copy.position)
            return copy.position

    def sync(self, keys: Sequence[str]) -> None:
        """Sync files in parallel, so that they share the disk's sync time."""
        if self._durability is not Durability.NONE:
            with Stage.SYNC:
                for _ in self._syncing.map(self._sync_one, keys):
                    pass

    def open(self, key: str) -> FileIO:
        """Open a file at its start."""
        return FileIO(self.descriptor(key, os.O_RDONLY), "rb")

    def give_back(self, key: str, is_unused: Callable[[], bool]) -> None:
        """Remove a file while its whole range is locked.

        A writer that has the file open and waits for the lock notices the removal when it syncs.
        """
        with suppress(BytesLost), self.opened(key) as descriptor:
            if try_lock(descriptor, WHOLE_FILE) and is_unused():
                self.remove(key)

    def remove(self, key: str) -> None:
        """Remove a file and its reserved space in the library.

        The file is removed last: housekeeping uses it to find leftovers of a crash.
        """
        with disk_errors():
            self._library.remove(incoming_name(key))
            self.folder.remove(key)

    def descriptor(self, key: str, flags: int) -> int:
        """Open the file; returns its descriptor. Raises `BytesLost` if it does not exist."""
        with disk_errors():
            try:
                return self.folder.open(key, flags)
            except FileNotFoundError as error:
                raise BytesLost(key) from error

    @contextmanager
    def opened(self, key: str, flags: int = os.O_RDWR) -> Iterator[int]:
        """Yields a descriptor of the file, closed with the context; raises like `descriptor`."""
        descriptor = self.descriptor(key, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _remove_empty(self, key: str) -> None:
        """Remove a file, unless another request has reserved space for it or writes to it."""
        with suppress(BytesLost), self.opened(key) as descriptor:
            if not os.fstat(descriptor).st_size and try_lock(descriptor, WHOLE_FILE):
                self.remove(key)

    def _require_room(self, length: int) -> None:
        self.folder.require_room(length)
        if not self._is_on_disk_of_library:
            self._library.require_room(length)

    @property
    def _is_on_disk_of_library(self) -> bool:
        return self.folder.device == self._library.device

    def _sync_one(self, key: str) -> None:
        with self.opened(key) as descriptor, disk_errors():
            os.fdatasync(descriptor)
            self.folder.require_writable()


def incoming_name(key: str) -> str:
    """Returns the name of a file that is still incomplete in the library."""
    return f".{key}.incoming"
