"""One folder on disk, held by a descriptor: names in it cannot lead anywhere else."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.domain.errors import NoRoom, StorageFailed, UploadError
from app.request.stages import Stage, stage
from app.storage.base import Problem

LOW_ROOM_BYTES = 1024 * 1024 * 1024
"""Less free space than this is reported: it is about one video."""

KEPT_FREE_BYTES = 16 * 1024 * 1024
"""No upload may take these: a database that cannot write stops every other one too."""

NO_ROOM_BYTES = KEPT_FREE_BYTES + 16 * 1024 * 1024
"""With less than this, hardly a chunk can be taken."""

_NO_ROOM_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turns errors of the operating system into those of the domain."""
    try:
        yield
    except OSError as error:
        raise _as_upload_error(error) from error


def _as_upload_error(error: OSError) -> UploadError:
    if error.errno in _NO_ROOM_ERRORS:
        return _no_room()
    return StorageFailed(f"The disk of the server failed: {error.strerror}.")


def make_private_folder(path: Path) -> None:
    """Make a folder that its owner alone can enter, unless it is there; so are its parents."""
    if not path.is_dir():
        make_private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


class Folder:
    """Files by plain name. The folder is made, and opened, when first needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._opening = threading.Lock()

    @property
    def descriptor(self) -> int:
        """The open folder; raises `StorageFailed` where it cannot be made or opened.

        /tmp is everyone's: a folder there that is a link, or someone else's, is refused.
        """
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
        """The file system the folder is on, and its mount: rename() crosses neither."""
        descriptor = self.descriptor
        facts = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
        return os.fstat(descriptor).st_dev, facts.partition("mnt_id:")[2].split()[0]

    @property
    def free_bytes(self) -> int:
        """Free space that this process may use."""
        return _free_bytes(self.descriptor)

    def require_room(self, length: int) -> None:
        """Raise `NoRoom` unless there are `length` bytes free, and some for the records besides."""
        if self.free_bytes < length + KEPT_FREE_BYTES:
            raise _no_room()

    def open(self, name: str, flags: int) -> int:
        """A descriptor of a regular file that is not a link."""
        return os.open(
            name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode=0o600, dir_fd=self.descriptor
        )

    def open_published(self, name: str) -> int:
        """A descriptor for reading; `FileNotFoundError` also for what is no regular file.

        A link that somebody has put there, or a pipe, is not the file that was published.
        """
        try:
            descriptor = self.open(name, os.O_RDONLY | os.O_NONBLOCK)  # A pipe would block.
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise FileNotFoundError(error.errno, "a link stands in its place") from error
            raise _as_upload_error(error) from error
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "something else stands in its place")

    def let_group_read(self, name: str) -> None:
        """Let the group that a file has read it, and reach it in the folder.

        The folder around it may be passed through, and not listed.
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
        """Whether there is a regular file of that name."""
        try:
            found = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(found.st_mode)

    def allocate(self, name: str, length: int) -> None:
        """Make a file of `length` bytes whose blocks are reserved on the disk."""
        descriptor = self.open(name, os.O_RDWR | os.O_CREAT)
        try:
            self.allocate_open(descriptor, length)
        finally:
            os.close(descriptor)

    def allocate_open(self, descriptor: int, length: int) -> None:
        """Make a file of the folder that is open for writing at least `length` bytes long."""
        missing = length - os.fstat(descriptor).st_size
        if missing > 0:
            # Asking for more than there is would fill the disk before it fails.
            self.require_room(missing)
            os.posix_fallocate(descriptor, 0, length)

    def room_check(self, descriptor: int) -> Callable[[int], None]:
        """For a file of the folder that may grow: told how far it is written, raises `NoRoom`.

        It does so where that is beyond what was allocated, and only the records' room is left.
        """
        allocated = os.fstat(descriptor).st_size

        def check(position: int) -> None:
            # Asked of the file: it is on the folder's disk, and is asked once a block.
            if position > allocated and _free_bytes(descriptor) < KEPT_FREE_BYTES:
                raise _no_room()

        return check

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def move(self, name: str, target: Folder, new_name: str) -> None:
        """Rename into a folder of the same file system, at once and whole."""
        os.rename(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor)

    def sync(self) -> None:
        """Make the names in the folder durable."""
        with stage(Stage.SYNC):
            os.fsync(self.descriptor)

    def entries(self) -> Iterator[os.DirEntry[str]]:
        """Regular files in the folder."""
        # One of its own: all who list through one descriptor share its position in the list.
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.descriptor)
        try:
            with os.scandir(descriptor) as found:
                yield from (entry for entry in found if entry.is_file(follow_symlinks=False))
        finally:
            os.close(descriptor)

    def shift_times(self, seconds: float) -> None:
        """Move the time at which each file was last written, but not beyond now.

        Another user's file keeps its own: it is none of ours.
        """
        for entry in self.entries():
            with suppress(FileNotFoundError, PermissionError):
                written = min(entry.stat().st_mtime + max(seconds, 0.0), time.time())
                os.utime(entry.name, (written, written), dir_fd=self.descriptor)


def _no_room() -> NoRoom:
    return NoRoom("The disk of the server has not enough free space.")


def _free_bytes(descriptor: int) -> int:
    found = os.fstatvfs(descriptor)
    return found.f_bavail * found.f_frsize


def _grant(descriptor: int, bits: int) -> None:
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode & bits != bits:
        os.fchmod(descriptor, mode | bits)


def _grant_in_parent(folder: int, bits: int) -> None:
    """Nothing where that one is another user's, who then has to do it."""
    parent = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        if os.fstat(parent).st_uid == os.geteuid():
            _grant(parent, bits)
    finally:
        os.close(parent)


def _is_removed(descriptor: int) -> bool:
    """Whether a cleaner has removed the open folder, as happens to idle ones in /tmp."""
    return os.fstat(descriptor).st_nlink == 0


def folder_problems(folder: Folder, role: str, *, warn_of_memory: bool) -> list[Problem]:
    """What is wrong with a folder: not writable, (nearly) full, kept in memory.

    Anyone may read it: it names no path.
    """
    name = f"the {role} folder"
    try:
        probe = f".probe-{os.getpid()}-{threading.get_ident()}"
        with disk_errors():
            os.close(folder.open(probe, os.O_WRONLY | os.O_CREAT))
            folder.remove(probe)
    except (StorageFailed, NoRoom) as error:
        return [Problem(f"{role}_not_writable", f"{name} cannot be written: {error}", True)]
    free = folder.free_bytes
    problems = []
    if free < LOW_ROOM_BYTES:
        problems.append(
            Problem(
                f"{role}_low_on_room",
                f"{name} has {free // 1024**2} MiB free",
                free < NO_ROOM_BYTES,
            )
        )
    if warn_of_memory and _file_system_type(folder.path) in _MEMORY_FILE_SYSTEMS:
        problems.append(
            Problem(
                f"{role}_in_memory",
                f"{name} is kept in memory (tmpfs): uploads in progress use RAM and are "
                "lost on a restart of the machine; set SLUICE_STAGING_DIR to a folder on a disk",
                False,
            )
        )
    return problems


def _file_system_type(path: Path) -> str:
    """Type of the file system `path` is on, from the longest matching mount point."""
    resolved = path.resolve()
    best, best_type = Path("/"), ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount_point, kind, *_ = line.split(" ")
        point = Path(mount_point.encode().decode("unicode_escape"))
        if resolved.is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, best_type = point, kind
    return best_type
