"""Derived files in a bucket that several machines share, with copies on this machine.

PREFIX/media/<id>/<name>.<version>    each file
<media>/.copies/<version>             copies on this machine of files requested here
<media>/.copies/<version>.lock        while a copy is being made
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from io import FileIO, RawIOBase
from pathlib import Path
from typing import ClassVar

from app.core.errors import NoRoom, ServerBusy, StorageFailed, UploadError
from app.core.pieces import Checksums
from app.core.playback import Made
from app.core.ranges import ByteRange
from app.core.upload import UploadId
from app.ingest.copy import write_all
from app.ingest.slots import without_slot
from app.storage.local.folder import disk_errors, make_private_folder
from app.storage.local.range_lock import WHOLE_FILE, try_lock, wait_for_range
from app.storage.s3.bucket import Bucket
from app.storage.s3.contents import SpoolSlice
from app.storage.s3.reader import read_blocks
from app.video.serve.derived_objects import Evictable, StoredObject, evict, object_name, sync
from app.video.serve.scratch import ScratchSpace

COPIES = ".copies"

OBJECTS = "media/"
"""Prefix of their names in the bucket."""

PART_BYTES = 64 << 20
"""Longer files are stored in parts; S3 allows 10 000 parts."""

MOST_COPIED_BYTES = 64 << 20
"""Longer files, mostly whole videos, are read from the bucket by range instead."""

STORING_SECONDS = 900.0
"""Time limit for one part of a file, retries included: a maker can wait, unlike a viewer."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BucketObjects:
    """`Objects` in a bucket, and this machine's copies of short ones."""

    bucket: Bucket
    copies: Copies
    scratch: ScratchSpace
    read_for: ClassVar[timedelta] = timedelta(minutes=5)

    def put(self, made: Path, file: Made) -> None:
        """Store a finished file; its copy on this machine is the file itself."""
        with made.open("rb", buffering=0) as source:
            self._store(source, file)
        if file.length <= MOST_COPIED_BYTES:
            with suppress(NoRoom, StorageFailed):  # It is stored, and can be fetched.
                self.copies.add(made, file)
        else:
            made.unlink()

    def has(self, _file: Made) -> bool:
        """Always True: asking would take a request."""
        return True

    def open(self, file: Made) -> RawIOBase:
        """A local copy of a short file; a reader of the object for a long one."""
        if file.length <= MOST_COPIED_BYTES:
            return self.fetch(file)
        return self.bucket.open(bucket_name(file), ByteRange(0, 0), file.length)

    def fetch(self, file: Made) -> FileIO:
        """A local copy, fetched if there is none, once for all requests that want it then.

        Raises `FileNotFoundError`, `NoRoom` if it does not fit, and `ServerBusy`.
        """
        with suppress(FileNotFoundError):
            return self.copies.open(file)
        with self.copies.adding(file):
            with suppress(FileNotFoundError):  # Another request has just fetched it.
                return self.copies.open(file)
            with self.scratch.folder(file.length) as scratch:
                path = scratch / "copy"
                with disk_errors():
                    target = path.open("xb", buffering=0)
                with target:
                    self._receive(file, target.fileno())
                copy = FileIO(path, "rb")  # Stays readable if the copy is removed.
                self.copies.add(path, file)
                return copy

    def delete(self, files: Sequence[Made]) -> None:
        """Delete objects, their copies here, and their unfinished multipart uploads."""
        for file in files:
            if file.length > PART_BYTES:  # Its maker may have been killed before that.
                self._end_multiparts(file)
        self.bucket.delete(*map(bucket_name, files))
        self.copies.remove(file.version for file in files)

    def list(self, upload_id: UploadId | None = None) -> Iterator[StoredObject]:
        """The objects of one video, or all."""
        prefix = OBJECTS if upload_id is None else f"{OBJECTS}{upload_id}/"
        for found in self.bucket.list_objects(prefix):
            yield StoredObject(found.name.removeprefix(OBJECTS), found.changed_at)

    def trim(self, kept: Callable[[Sequence[str]], Collection[str]]) -> None:
        """Remove needless copies."""
        self.copies.trim(kept)

    def lacking_bytes(self, _least_free: int, _wanted: int) -> int:
        """Always 0: a bucket does not fill up, and copies make room on this machine's disk."""
        return 0

    def _receive(self, file: Made, target: int) -> None:
        whole, position = ByteRange(0, file.length), 0
        with self.bucket.open(bucket_name(file), whole, file.length) as source:
            for block in read_blocks(source, file.length):
                with disk_errors():
                    write_all(target, block, position)
                position += len(block)

    def _store(self, source: FileIO, file: Made) -> None:
        storing, name, number = (
            self.bucket.within(STORING_SECONDS),
            bucket_name(file),
            source.fileno(),
        )
        if file.length <= PART_BYTES:
            storing.put_object(name, SpoolSlice(number, 0, file.length))
            return
        multipart_id = storing.create_multipart(name)
        parts: list[tuple[int, Checksums]] = []
        for start in range(0, file.length, PART_BYTES):
            part = SpoolSlice(number, start, min(PART_BYTES, file.length - start))
            stored = storing.upload_part(name, multipart_id, len(parts) + 1, part)
            parts.append((len(parts) + 1, stored))
        storing.complete_multipart(name, multipart_id, parts, length=file.length)
        try:
            self._end_multiparts(file)  # Beginning one may have taken two tries.
        except UploadError as error:  # The file is stored anyway; deleting it aborts them.
            log.warning("unfinished multipart uploads of %s are left: %s", name, error)

    def _end_multiparts(self, file: Made) -> None:
        for begun in self.bucket.list_multiparts(bucket_name(file)):
            self.bucket.abort_multipart(begun.name, begun.id)


def bucket_name(file: Made) -> str:
    """The name of a file's object in the bucket."""
    return f"{OBJECTS}{object_name(file)}"


# ---- copies --------------------------------------------------------------------------------------

# A cache on this machine's disk of files from the bucket; the least recently used go first.


USED_SECONDS = 600
"""Precision of a copy's last use: each update is a write."""

GROWN_SHARE = 8
"""A process checks the size of the cache after adding this fraction of its limit."""

ASKED_AT_ONCE = 500

ADDING_SECONDS = 30.0
"""How long a request waits for another one that fetches the same file; then `ServerBusy`."""


@dataclass(slots=True)
class Copies:
    """Copies in one folder, each named by the version of its file."""

    folder: Path
    most_bytes: int
    _added_bytes: int = field(default=0, init=False)

    def open(self, file: Made) -> FileIO:
        """The copy of a file; raises `FileNotFoundError`."""
        path = self.folder / file.version
        copy = FileIO(path, "rb")
        if time.time() - os.fstat(copy.fileno()).st_mtime > USED_SECONDS:
            with suppress(FileNotFoundError):  # It has just been removed.
                os.utime(path)
        return copy

    @contextmanager
    def adding(self, file: Made) -> Iterator[None]:
        """Let one request at a time, across processes, fetch a file; the others wait.

        Raises `ServerBusy` after `ADDING_SECONDS`.
        """
        path = self.folder / f"{file.version}.lock"
        with disk_errors():
            make_private_folder(self.folder)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not try_lock(descriptor, WHOLE_FILE):
                with without_slot():
                    if not wait_for_range(descriptor, WHOLE_FILE, ADDING_SECONDS):
                        raise ServerBusy("Another request is still fetching this file.")
            try:
                yield
            finally:  # Waiting requests have it open; later ones find the copy.
                self.remove([path.name])
        finally:
            os.close(descriptor)

    def add(self, path: Path, file: Made) -> None:
        """Move a complete copy, on the same disk, into the cache."""
        with disk_errors():
            make_private_folder(self.folder)
            sync(path)  # Otherwise a power cut may leave an empty copy.
            path.replace(self.folder / file.version)
        self._added_bytes += file.length
        if self._added_bytes * GROWN_SHARE > self.most_bytes:
            self._added_bytes = 0
            self._evict()

    def remove(self, versions: Iterable[str]) -> None:
        """Remove the copies of some files."""
        for version in versions:
            with disk_errors():
                (self.folder / version).unlink(missing_ok=True)

    def remove_all(self) -> None:
        """Remove every copy, as the disk is full; all can be fetched again."""
        self.remove(copy.key for copy in self._all())

    def trim(self, kept: Callable[[Sequence[str]], Collection[str]]) -> None:
        """Remove copies of deleted files, and the oldest beyond the limit."""
        versions = [copy.key for copy in self._all()]
        for start in range(0, len(versions), ASKED_AT_ONCE):
            some = versions[start : start + ASKED_AT_ONCE]
            self.remove({*some}.difference(kept(some)))
        self._evict()

    def _evict(self) -> None:
        def remove(copy: Evictable[str]) -> bool:
            self.remove([copy.key])
            return True

        copies = self._all()
        evict(copies, sum(copy.size for copy in copies) - self.most_bytes, remove)

    def _all(self) -> list[Evictable[str]]:
        found = []
        with suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # It has just been removed.
                    facts = entry.stat()
                    found.append(Evictable(entry.name, facts.st_size, facts.st_mtime))
        return found
