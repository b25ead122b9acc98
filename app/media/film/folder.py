"""The files made from a video: indexes, pictures, segments. All of them can be made again.

<media>/<id>/<name>           one video's files, some in folders of their own
<media>/.making/<random>/     where one maker works; what is ready is renamed into its place
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from app.domain.errors import UploadNotFound
from app.domain.upload import UploadId, parse_upload_id
from app.storage.local.folder import Folder, disk_errors, make_private_folder

MAKING = ".making"

LEFT_FREE_BYTES = 64 * 1024 * 1024
"""Nothing is made with less than this free: what is made can wait, uploads cannot."""


class MediaFolder:
    """A folder with one folder for each video. Names are ours, never a client's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._disk = Folder(path)

    @property
    def root(self) -> Path:
        """The folder itself."""
        return self._path

    def path(self, upload_id: UploadId, name: str = "") -> Path:
        """Where a file of the video is, or would be; without a name, the folder of them all."""
        return self._path / upload_id / name

    def made(self, upload_id: UploadId) -> frozenset[str]:
        """The names of the files and folders made from a video."""
        try:
            return frozenset(os.listdir(self.path(upload_id)))
        except FileNotFoundError:
            return frozenset()

    def videos(self) -> Iterator[UploadId]:
        """The videos that have files here."""
        with disk_errors():
            names = os.listdir(self._path) if self._path.is_dir() else []
        for name in names:
            with suppress(UploadNotFound):
                yield parse_upload_id(name)

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
        making = self._path / MAKING
        with disk_errors():
            make_private_folder(making)
            folder, descriptor = _locked_folder(making)
        try:
            yield folder
        finally:
            self._remove(folder)
            os.close(descriptor)

    def require_room(self, needed_bytes: int = 0) -> None:
        """Raise `NoRoom` if then the disk had less free than uploads may need."""
        self._disk.require_room(LEFT_FREE_BYTES + needed_bytes)

    def keep(self, made: Path, upload_id: UploadId, name: str) -> Path:
        """Move a finished file, or a folder of them, to its place; returns that.

        It appears there whole or not at all, even after a power cut. A file replaces an older one.
        """
        place = self.path(upload_id, name)
        with disk_errors():
            make_private_folder(place.parent)
            for file in made.iterdir() if made.is_dir() else [made]:
                _sync(file)
            made.replace(place)
        return place

    @contextmanager
    def locked(self, upload_id: UploadId) -> Iterator[None]:
        """Keep other makers of the video out who lock it, too, in any process."""
        with disk_errors():
            descriptor = _open_folder(self.path(upload_id))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def discard(self, upload_id: UploadId, name: str) -> None:
        """Remove a file that is no longer right, or a folder of them at once. Repeatable."""
        place = self.path(upload_id, name)
        with disk_errors(), suppress(FileNotFoundError):
            if place.is_dir():
                with self._own_folder() as folder:  # Its maker may add to it meanwhile.
                    place.replace(folder / "discarded")
            else:
                place.unlink()

    @contextmanager
    def writing(self, upload_id: UploadId, name: str) -> Iterator[BinaryIO]:
        """A file to write, which is kept under `name` if the block ends without an error."""
        with self.scratch_folder() as folder:
            made = folder / "made"
            with disk_errors(), made.open("xb") as target:
                yield target
            self.keep(made, upload_id, name)

    def remove_abandoned(self) -> None:
        """Remove the half-made files of makers that were killed."""
        making = self._path / MAKING
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


def _locked_folder(parent: Path) -> tuple[Path, int]:
    """A new folder and the lock on it, which ends with this process."""
    while True:
        folder = parent / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        descriptor = _open_folder(folder)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():
            return folder, descriptor
        os.close(descriptor)  # `remove_abandoned` was faster than the lock.


def _open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
