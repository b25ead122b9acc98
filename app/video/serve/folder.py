"""Derived files of videos: indexes, images, segments. All of them can be made again.

`DiskFolder` stores them on the disk of this machine only. `BucketFolder` stores them in a bucket
for many machines: a database table lists the files, each file is an object with a name that is
never reused, and the folder on this disk holds copies of files requested here. A file is stored in
the bucket before its row is inserted, and its row is removed before the object is deleted, so a
copy without a row is never read.

File names are chosen by the server, never by a client, such as `poster.jpg` or `rungs/720/15.m4s`.
The first two parts of a name are its bundle, which is discarded as a whole: `rungs/720`.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import UTC, datetime
from io import FileIO, RawIOBase
from pathlib import Path
from typing import BinaryIO, Protocol

from app.core.errors import UploadNotFound
from app.core.playback import Bundle, Made, Outdated
from app.core.upload import UploadId, parse_upload_id
from app.storage.local.folder import Folder, disk_errors, free_bytes, make_private_folder


class MadeFiles(Protocol):
    """Derived files, for the media worker and for players; every call can be repeated."""

    def find(self, upload_id: UploadId, name: str) -> Made | None:
        """A file, if it exists."""
        ...

    def open(self, upload_id: UploadId, name: str) -> tuple[Made, RawIOBase]:
        """Opens a file to read in parts, on disk or in the bucket; raises `FileNotFoundError`."""
        ...

    def fetch(self, upload_id: UploadId, name: str) -> tuple[Made, FileIO]:
        """Opens a file on this machine, fetched first if needed; raises `FileNotFoundError`."""
        ...

    def keep(
        self,
        made: Path,
        upload_id: UploadId,
        name: str,
        *,
        beside: Made | None = None,
        is_new: bool = False,
    ) -> None:
        """Publish a finished file; replaces an older one.

        The change is atomic, and durable when this returns: the file survives a power failure. With
        `beside`, raises `Outdated` unless that file still exists at that moment. With `is_new`,
        raises `FileExistsError` instead of replacing a file.
        """
        ...

    def discard(self, upload_id: UploadId, name: str) -> bool:
        """Remove an outdated file, or a whole bundle at once; returns whether there was one."""
        ...

    def remove(self, upload_id: UploadId) -> None:
        """Remove all files of a video."""
        ...

    def made(self, upload_ids: Collection[UploadId]) -> Mapping[UploadId, frozenset[str]]:
        """The names of each video's files, except those in folders."""
        ...

    def videos(self) -> Iterator[UploadId]:
        """The videos that have files."""
        ...

    def bundles(self, folders: Collection[str]) -> Iterator[Bundle]:
        """All bundles in folders with these names, of all videos. Reads the entry of every file."""
        ...

    def note_use(self, upload_id: UploadId, name: str) -> None:
        """Record that the bundle of a file is used now; frequent calls cost few writes."""
        ...

    def lacking_bytes(self, least_free: int, wanted: int) -> int:
        """Number of bytes to discard: at least `wanted`, and until `least_free` are free."""
        ...


class MediaFolder(MadeFiles, Protocol):
    """Derived files, and scratch space on this machine for programs that make them."""

    @property
    def root(self) -> Path:
        """The folder on this machine."""
        ...

    def scratch_folder(self, needed_bytes: int = 0) -> AbstractContextManager[Path]:
        """An empty folder for half-made files, removed at the end, with what was left in it.

        Raises `NoRoom` as `require_room` does. If this process is killed, `remove_abandoned` of
        another one removes the folder.
        """
        ...

    def require_room(self, needed_bytes: int = 0) -> None:
        """Raise `NoRoom` if that would use space of this machine's disk reserved for uploads."""
        ...

    def locked(self, upload_id: UploadId) -> AbstractContextManager[None]:
        """Lock a video against other makers; does nothing in a bucket."""
        ...

    def remove_abandoned(self) -> None:
        """Remove the half-made files of makers that were killed."""
        ...


@contextmanager
def writing(folder: MediaFolder, upload_id: UploadId, name: str) -> Iterator[BinaryIO]:
    """Yields a file to write; keeps it under `name` if the block ends without an error."""
    with folder.scratch_folder() as scratch:
        made = scratch / "made"
        with disk_errors(), made.open("xb") as target:
            yield target
        folder.keep(made, upload_id, name)


def read_whole(folder: MadeFiles, upload_id: UploadId, name: str) -> bytes:
    """The bytes of a short file; raises `FileNotFoundError`."""
    _, file = folder.fetch(upload_id, name)
    with closing(file):
        return file.readall()


# ---- disk folder ---------------------------------------------------------------------------------

# Files made from videos, in a folder on this machine's disk.
#
# <media>/<id>/<name>           one video's files, some in folders of their own
# <media>/.making/<random>/     scratch folder of one maker; finished files are renamed


MAKING = ".making"

LEFT_FREE_BYTES = 64 * 1024 * 1024
"""No files are made with less free space than this: they can wait, uploads cannot."""

USED_SECONDS = 60
"""Precision of a bundle's last use: each update is a write."""


class DiskFolder:
    """`MediaFolder` with one folder for each video."""

    def __init__(self, path: Path) -> None:
        self.root = path
        self._disk = Folder(path)

    def path(self, upload_id: UploadId, name: str = "") -> Path:
        """Path of a video's file, whether it exists or not; without a name, of its folder."""
        return self.root / upload_id / name

    def find(self, upload_id: UploadId, name: str) -> Made | None:
        """A file, if it is there."""
        try:
            return _made(upload_id, name, self.path(upload_id, name).stat())
        except FileNotFoundError:
            return None

    def open(self, upload_id: UploadId, name: str) -> tuple[Made, FileIO]:
        """Opens a file, unbuffered; raises `FileNotFoundError`."""
        file = FileIO(self.path(upload_id, name), "rb")
        return _made(upload_id, name, os.fstat(file.fileno())), file

    def fetch(self, upload_id: UploadId, name: str) -> tuple[Made, FileIO]:
        """Same as `open`: all files are on this machine."""
        return self.open(upload_id, name)

    def made(self, upload_ids: Collection[UploadId]) -> Mapping[UploadId, frozenset[str]]:
        """The names of the files and folders of each video."""
        return {upload_id: self._names(upload_id) for upload_id in upload_ids}

    def _names(self, upload_id: UploadId) -> frozenset[str]:
        try:
            return frozenset(os.listdir(self.path(upload_id)))
        except FileNotFoundError:
            return frozenset()

    def videos(self) -> Iterator[UploadId]:
        """The videos that have files here."""
        with disk_errors():
            names = os.listdir(self.root) if self.root.is_dir() else []
        for name in names:
            with suppress(UploadNotFound):
                yield parse_upload_id(name)

    def bundles(self, folders: Collection[str]) -> Iterator[Bundle]:
        """All bundles in these folders; 20 000 files in 0.2 s."""
        for upload_id in self.videos():
            for folder in sorted(self._names(upload_id).intersection(folders)):
                for place in sorted(self.path(upload_id, folder).glob("*")):
                    with suppress(FileNotFoundError):  # It has just been removed.
                        files = place.glob("*") if place.is_dir() else [place]
                        size = sum(file.stat().st_size for file in files)
                        used_at = place.stat().st_mtime
                        yield Bundle(upload_id, f"{folder}/{place.name}", size, used_at)

    def note_use(self, upload_id: UploadId, name: str) -> None:
        """Set the modification time of the file's folder."""
        folder = self.path(upload_id, name).parent
        with suppress(FileNotFoundError):
            if time.time() - folder.stat().st_mtime > USED_SECONDS:
                os.utime(folder)

    def lacking_bytes(self, least_free: int, wanted: int) -> int:
        """At least `wanted`, as a write of that size has just failed."""
        return max(least_free - free_bytes(self.root), wanted)

    def remove(self, upload_id: UploadId) -> None:
        """Remove all files of a video. Repeatable."""
        self._remove(self.path(upload_id))

    @contextmanager
    def scratch_folder(self, needed_bytes: int = 0) -> Iterator[Path]:
        """An empty folder for half-made files, removed at the end, with what was left in it.

        Raises `NoRoom` as `require_room` does. If this process is killed, `remove_abandoned` of
        another one removes the folder.
        """
        self.require_room(needed_bytes)
        with self._own_folder() as folder:
            yield folder

    @contextmanager
    def _own_folder(self) -> Iterator[Path]:
        making = self.root / MAKING
        with disk_errors():
            make_private_folder(making)
            while True:
                folder = making / secrets.token_hex(8)
                folder.mkdir(mode=0o700)
                descriptor = _open_folder(folder)
                # The lock is released when this process ends.
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if folder.exists():
                    break
                os.close(descriptor)  # `remove_abandoned` was faster than the lock.
        try:
            yield folder
        finally:
            self._remove(folder)
            os.close(descriptor)

    def require_room(self, needed_bytes: int = 0) -> None:
        """Raise `NoRoom` if that would use disk space reserved for uploads."""
        self._disk.require_room(LEFT_FREE_BYTES + needed_bytes)

    def keep(
        self,
        made: Path,
        upload_id: UploadId,
        name: str,
        *,
        beside: Made | None = None,
        is_new: bool = False,
    ) -> None:
        """Publish a finished file by renaming. Requires `locked` with `beside` or `is_new`."""
        place = self.path(upload_id, name)
        if beside is not None and self.find(upload_id, beside.name) != beside:
            raise Outdated(beside.name)
        if is_new and place.exists():
            raise FileExistsError(place)
        with disk_errors():
            make_private_folder(place.parent)
            with made.open("rb", buffering=0) as file:
                os.fsync(file.fileno())
            made.replace(place)

    @contextmanager
    def locked(self, upload_id: UploadId) -> Iterator[None]:
        """Lock a video against other makers, across processes."""
        with disk_errors():
            descriptor = _open_folder(self.path(upload_id))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def discard(self, upload_id: UploadId, name: str) -> bool:
        """Remove an outdated file, or a whole folder of them at once. Repeatable."""
        place = self.path(upload_id, name)
        with disk_errors(), suppress(FileNotFoundError):
            if place.is_dir():
                with self._own_folder() as folder:  # Its maker may be adding files to it.
                    place.replace(folder / "discarded")
            else:
                place.unlink()
            return True
        return False

    def remove_abandoned(self) -> None:
        """Remove the half-made files of makers that were killed."""
        making = self.root / MAKING
        for name in os.listdir(making) if making.is_dir() else []:
            with suppress(OSError):  # Its maker has just removed it, or it cannot be removed.
                descriptor = _open_folder(making / name)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(making / name)
                finally:
                    os.close(descriptor)

    @staticmethod
    def _remove(folder: Path) -> None:
        with disk_errors(), suppress(FileNotFoundError):
            shutil.rmtree(folder)


def _made(upload_id: UploadId, name: str, found: os.stat_result) -> Made:
    made_at = datetime.fromtimestamp(found.st_mtime, UTC)
    return Made(upload_id, name, found.st_size, made_at, f"{found.st_mtime_ns:x}-{found.st_size:x}")


def _open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
