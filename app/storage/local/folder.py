"""A folder on disk, accessed through a descriptor, so that no file name can escape it."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from app.core.errors import NoRoom, StorageFailed, UploadError
from app.ingest.stages import Stage
from app.ingest.write_probe import WriteProbe

KEPT_FREE_BYTES = 16 * 1024 * 1024
"""Free space that uploads may not use: if the database cannot write, every upload stops."""

BLOCK_BYTES = 512
"""Unit of `st_blocks`, independent of the file system's block size."""

_NO_ROOM_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def _no_room() -> UploadError:
    return NoRoom("The server's disk does not have enough free space.")


class disk_errors:  # noqa: N801 - reads as the statement it is used in
    """`with disk_errors(): ...` translates errors of the operating system to errors of the domain.

    `no_room` returns the error for a full disk.
    """

    __slots__ = ("_no_room",)

    def __init__(self, no_room: Callable[[], UploadError] = _no_room) -> None:
        self._no_room = no_room

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, OSError):
            is_full = error.errno in _NO_ROOM_ERRORS
            raise (self._no_room() if is_full else _failed(error)) from error


def _failed(error: OSError) -> UploadError:
    return StorageFailed(f"The server's disk failed: {error.strerror}.")


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents, accessible only to the owner."""
    if not path.is_dir():
        make_private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


class Folder:
    """Accesses files by plain name. Creates and opens the folder on first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._opening = threading.Lock()
        self._probe = WriteProbe()

    @property
    def descriptor(self) -> int:
        """Returns the open folder; raises `StorageFailed` if it cannot be created or opened.

        Any user can write to /tmp: rejects a folder that is a symlink or belongs to another user.
        """
        with disk_errors():
            if self._descriptor is not None and not _is_removed(self._descriptor):
                return self._descriptor
        with self._opening, disk_errors():
            if self._descriptor is None or _is_removed(self._descriptor):
                make_private_folder(self.path)
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(self.path, flags)
                if os.fstat(descriptor).st_uid not in {os.geteuid(), 0}:
                    os.close(descriptor)
                    raise StorageFailed("A folder of the server belongs to another user.")
                self._descriptor = descriptor
            return self._descriptor

    @property
    def device(self) -> tuple[int, str]:
        """Returns the folder's file system and mount: rename() crosses neither."""
        descriptor = self.descriptor
        facts = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
        return os.fstat(descriptor).st_dev, facts.partition("mnt_id:")[2].split()[0]

    @property
    def free_bytes(self) -> int:
        """Free space that this process may use."""
        return _free(os.fstatvfs(self.descriptor))

    def require_room(self, length: int) -> None:
        """Raise `NoRoom` unless `length` bytes are free, in addition to `KEPT_FREE_BYTES`."""
        if self.free_bytes < length + KEPT_FREE_BYTES:
            raise _no_room()

    def open(self, name: str, flags: int) -> int:
        """Open a regular file, not a symlink; returns its descriptor."""
        return os.open(
            name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode=0o600, dir_fd=self.descriptor
        )

    def open_published(self, name: str) -> int:
        """Open a file for reading; raises `FileNotFoundError` also if it is not a regular file.

        A symlink or a pipe placed there is not the file that was published.
        """
        try:
            descriptor = self.open(name, os.O_RDONLY | os.O_NONBLOCK)  # A pipe would block.
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise FileNotFoundError(error.errno, "a link stands in its place") from error
            raise _failed(error) from error
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "something else stands in its place")

    def let_group_read(self, name: str) -> None:
        """Let the file's group read the file, and access it in the folder.

        The group may traverse the parent folder, but not list it.
        """
        descriptor = self.open_published(name)
        try:
            with disk_errors():
                _grant_in_parent(self.descriptor, stat.S_IXGRP)
                _grant(self.descriptor, stat.S_IRGRP | stat.S_IXGRP)
                _grant(descriptor, stat.S_IRGRP)
        finally:
            os.close(descriptor)

    def has(self, name: str) -> bool:
        """Whether the folder has a regular file with this name."""
        try:
            found = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(found.st_mode)

    def allocate(self, name: str, length: int) -> None:
        """Create a file of `length` bytes and reserve its blocks on the disk."""
        descriptor = self.open(name, os.O_RDWR | os.O_CREAT)
        try:
            self.allocate_open(descriptor, length)
        finally:
            os.close(descriptor)

    def allocate_open(self, descriptor: int, length: int) -> None:
        """Extend a file of this folder, open for writing, to at least `length` bytes."""
        missing = length - os.fstat(descriptor).st_size
        if missing > 0:
            # Requesting more than is free would fill the disk before it fails.
            self.require_room(missing)
            os.posix_fallocate(descriptor, 0, length)

    def room_check(self, descriptor: int) -> Callable[[int], None]:
        """Returns a check of the position in a growing file; raises `NoRoom` once the disk is full.

        Full means that only `KEPT_FREE_BYTES` are left. Writing within allocated space is always
        allowed; a file with holes has none.
        """
        found = os.fstat(descriptor)
        has_holes = found.st_blocks * BLOCK_BYTES < found.st_size
        allocated = 0 if has_holes else found.st_size

        def check(position: int) -> None:
            # Queries the file, which is on the folder's disk: this runs once per block.
            if position > allocated and _free(os.fstatvfs(descriptor)) < KEPT_FREE_BYTES:
                raise _no_room()

        return check

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def move(self, name: str, target: Folder, new_name: str) -> None:
        """Move a file atomically into a folder of the same file system."""
        os.rename(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor)

    def sync(self) -> None:
        """Sync the folder, so that its file names are durable."""
        with Stage.SYNC:
            os.fsync(self.descriptor)
            self.require_writable()

    def require_writable(self) -> None:
        """Raise `OSError` if synced data may be lost all the same; see `WriteProbe`."""
        self._probe.require_writable(Path(f"/proc/self/fd/{self.descriptor}"))

    def entries(self) -> Iterator[os.DirEntry[str]]:
        """Regular files in the folder."""
        # Opens its own descriptor: callers that share one also share its position in the listing.
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.descriptor)
        try:
            with os.scandir(descriptor) as found:
                yield from (entry for entry in found if entry.is_file(follow_symlinks=False))
        finally:
            os.close(descriptor)

    def shift_times(self, seconds: float) -> None:
        """Shift the modification time of each file, but not beyond now.

        Skips files of other users.
        """
        for entry in self.entries():
            with suppress(FileNotFoundError, PermissionError):
                written = min(entry.stat().st_mtime + max(seconds, 0.0), time.time())
                os.utime(entry.name, (written, written), dir_fd=self.descriptor)


def free_bytes(folder: Path) -> int:
    """Free space for this process at a folder's location, existing or not; 0 if unknown."""
    for existing in (folder, *folder.parents):
        try:
            return _free(os.statvfs(existing))
        except FileNotFoundError:
            continue
        except OSError:
            break
    return 0


def _free(found: os.statvfs_result) -> int:
    return found.f_bavail * found.f_frsize


def _grant(descriptor: int, bits: int) -> None:
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode & bits != bits:
        os.fchmod(descriptor, mode | bits)


def _grant_in_parent(folder: int, bits: int) -> None:
    """Does nothing if the parent belongs to another user, who must grant access instead."""
    parent = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        if os.fstat(parent).st_uid == os.geteuid():
            _grant(parent, bits)
    finally:
        os.close(parent)


def _is_removed(descriptor: int) -> bool:
    """Whether the open folder was removed: cleaners remove idle folders in /tmp."""
    return os.fstat(descriptor).st_nlink == 0
