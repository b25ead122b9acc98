"""Objects of derived files: immutable, each under a name that is never used again.

<media>/<id>/<name>.<version>             in a folder of this machine: `FolderObjects`
PREFIX/media/<id>/<name>.<version>        in a bucket: `app/video/serve/bucket_objects.py`
<media>/<id>/<name>                       in a folder, made by a version without a table
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import FileIO, RawIOBase
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from app.core.errors import UploadNotFound
from app.core.playback import Made
from app.core.upload import UploadId, parse_upload_id
from app.storage.local.folder import disk_errors, free_bytes, make_private_folder

Key = TypeVar("Key")

UNVERSIONED = "-"
"""Versions of files whose object name has no version begin with it."""

ATTEMPTS = 5
"""Attempts to move a file into a folder: a deletion may just have removed the empty folder."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object, whether a row names it or not."""

    name: str
    changed_at: datetime


class Objects(Protocol):
    """Stores finished files. `DerivedFiles` decides which objects exist."""

    @property
    def read_for(self) -> timedelta:
        """How long an object stays for requests that read it, once it is discarded or replaced."""
        ...

    def put(self, made: Path, file: Made) -> None:
        """Store a finished file, which may be moved; durable when this returns."""
        ...

    def has(self, file: Made) -> bool:
        """Whether the object may exist: False only if it certainly does not."""
        ...

    def open(self, file: Made) -> RawIOBase:
        """Opens an object to read in parts, where it is; raises `FileNotFoundError`."""
        ...

    def fetch(self, file: Made) -> FileIO:
        """Opens an object on this machine, fetched first if needed; raises `FileNotFoundError`."""
        ...

    def delete(self, files: Sequence[Made]) -> None:
        """Delete objects, and what an interrupted `put` has left of them. Repeatable."""
        ...

    def list(self, upload_id: UploadId | None = None) -> Iterator[StoredObject]:
        """The objects of one video, or all."""
        ...

    def trim(self, kept: Callable[[Sequence[str]], Collection[str]]) -> None:
        """Remove needless copies on this machine; `kept` returns which versions still exist."""
        ...

    def lacking_bytes(self, least_free: int, wanted: int) -> int:
        """Number of bytes to evict: at least `wanted`, and until `least_free` are free."""
        ...


def object_name(file: Made) -> str:
    """The name of a file's object."""
    name = f"{file.upload_id}/{file.name}"
    return name if file.version.startswith(UNVERSIONED) else f"{name}.{file.version}"


@dataclass(frozen=True, slots=True)
class FolderObjects:
    """Objects in a folder; a file is synced before it is moved there."""

    folder: Path
    read_for: ClassVar[timedelta] = timedelta()  # An open file stays readable.

    def path(self, file: Made) -> Path:
        """The path of an object, whether it exists or not."""
        return self.folder / object_name(file)

    def put(self, made: Path, file: Made) -> None:
        """Move a finished file, on the same disk, into the folder."""
        place = self.path(file)
        with disk_errors():
            sync(made)
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    make_private_folder(place.parent)
                    made.replace(place)
                    break
                except FileNotFoundError:
                    if attempt == ATTEMPTS:
                        raise
            sync(place.parent)

    def has(self, file: Made) -> bool:
        """Whether the file is there: an operator may have removed it."""
        # 2 us; `Path.exists` takes 5, several times in a request of a player.
        return os.path.exists(f"{self.folder}/{object_name(file)}")

    def open(self, file: Made) -> FileIO:
        """Opens a file, unbuffered; raises `FileNotFoundError`."""
        return FileIO(self.path(file), "rb")

    def fetch(self, file: Made) -> FileIO:
        """Same as `open`: all files are on this machine."""
        return self.open(file)

    def delete(self, files: Sequence[Made]) -> None:
        """Remove files, and folders that become empty."""
        paths = [self.path(file) for file in files]
        with disk_errors():
            for path in paths:
                path.unlink(missing_ok=True)
        for folder in {path.parent for path in paths}:
            with suppress(OSError):  # It is not empty.
                os.removedirs(folder)

    def list(self, upload_id: UploadId | None = None) -> Iterator[StoredObject]:
        """The files of one video, or all; 20 000 files in 0.2 s."""
        for video in self.videos() if upload_id is None else [upload_id]:
            for folder, _, names in os.walk(self.folder / video):
                for name in names:
                    path = Path(folder, name)
                    with suppress(FileNotFoundError):  # It has just been removed.
                        changed_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                        yield StoredObject(str(path.relative_to(self.folder)), changed_at)

    def videos(self) -> Iterator[UploadId]:
        """The videos that have files here."""
        with disk_errors():
            names = os.listdir(self.folder) if self.folder.is_dir() else []
        for name in names:
            with suppress(UploadNotFound):
                yield parse_upload_id(name)

    def trim(self, kept: Callable[[Sequence[str]], Collection[str]]) -> None:
        """Does nothing: there are no copies."""

    def lacking_bytes(self, least_free: int, wanted: int) -> int:
        """At least `wanted`, as a write of that size has just failed."""
        return max(least_free - free_bytes(self.folder), wanted)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---- eviction ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evictable(Generic[Key]):
    """Something that takes `size` bytes; `used_at` in seconds since 1970."""

    key: Key
    size: int
    used_at: float


def evict(
    found: Iterable[Evictable[Key]], excess: int, remove: Callable[[Evictable[Key]], bool]
) -> int:
    """Remove the least recently used until `excess` bytes are gone; returns what is left of it.

    `remove` returns False for those that must stay.
    """
    for each in sorted(found, key=lambda each: each.used_at):
        if excess <= 0:
            break
        if remove(each):
            excess -= each.size
    return excess
