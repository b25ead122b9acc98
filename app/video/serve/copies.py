"""A cache on this machine's disk of files from the bucket; the least recently used go first."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from app.core.errors import ServerBusy
from app.core.made_files import Made
from app.ingest.slots import without_slot
from app.storage.local.folder import disk_errors, make_private_folder
from app.storage.local.range_lock import WHOLE_FILE, try_lock, wait_for_range

USED_SECONDS = 600
"""Precision of a copy's last use: each update is a write."""

GROWN_SHARE = 8
"""A process checks the size of the cache after adding this fraction of its limit."""

ASKED_AT_ONCE = 500

ADDING_SECONDS = 30.0
"""How long a request waits for another one to fetch the same file, before it is told to retry."""


class Copies:
    """Copies in one folder, each named by the version of its file."""

    def __init__(
        self, folder: Path, *, most_bytes: int, kept: Callable[[Collection[str]], set[str]]
    ) -> None:
        """`kept` returns which of some versions still exist."""
        self._folder = folder
        self._most_bytes = most_bytes
        self._kept = kept
        self._added_bytes = 0

    def open(self, made: Made) -> FileIO:
        """The copy of a file; raises `FileNotFoundError`."""
        path = self._folder / made.version
        file = FileIO(path, "rb")
        if time.time() - os.fstat(file.fileno()).st_mtime > USED_SECONDS:
            with suppress(FileNotFoundError):  # It has just been removed.
                os.utime(path)
        return file

    @contextmanager
    def adding(self, made: Made) -> Iterator[None]:
        """Let one request at a time, of all processes, fetch a file; the others wait.

        Raises `ServerBusy` after `ADDING_SECONDS`.
        """
        path = self._folder / f"{made.version}.lock"
        with disk_errors():
            make_private_folder(self._folder)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock(descriptor)
            try:
                yield
            finally:  # Waiting requests have it open; later ones find the copy.
                self.remove([path.name])
        finally:
            os.close(descriptor)

    @staticmethod
    def _lock(descriptor: int) -> None:
        if try_lock(descriptor, WHOLE_FILE):
            return
        with without_slot():
            if not wait_for_range(descriptor, WHOLE_FILE, ADDING_SECONDS):
                raise ServerBusy("Another request is still fetching this file.")

    def add(self, path: Path, made: Made) -> None:
        """Move a complete copy, on the same disk, to its place."""
        with disk_errors():
            make_private_folder(self._folder)
            with path.open("rb", buffering=0) as file:
                os.fsync(file.fileno())  # Otherwise a power cut may leave an empty copy.
            path.replace(self._folder / made.version)
        self._added_bytes += made.length
        if self._added_bytes * GROWN_SHARE > self._most_bytes:
            self._added_bytes = 0
            self._make_room()

    def remove(self, versions: Iterable[str]) -> None:
        """Remove the copies of some files."""
        for version in versions:
            with disk_errors():
                (self._folder / version).unlink(missing_ok=True)

    def remove_all(self) -> None:
        """Remove every copy, as the disk is full; all can be fetched again."""
        self.remove(version for _, _, version in self._by_use())

    def trim(self) -> None:
        """Remove copies of deleted files, and the oldest beyond the limit."""
        versions = [version for _, _, version in self._by_use()]
        for start in range(0, len(versions), ASKED_AT_ONCE):
            some = versions[start : start + ASKED_AT_ONCE]
            self.remove(set(some) - self._kept(some))
        self._make_room()

    def _make_room(self) -> None:
        copies = self._by_use()
        excess = sum(size for _, size, _ in copies) - self._most_bytes
        for _, size, version in copies:
            if excess <= 0:
                return
            self.remove([version])
            excess -= size

    def _by_use(self) -> list[tuple[float, int, str]]:
        """Time of last use, size and version of each copy, least recently used first."""
        found = []
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # It has just been removed.
                    facts = entry.stat()
                    found.append((facts.st_mtime, facts.st_size, entry.name))
        return sorted(found)
