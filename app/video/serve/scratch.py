"""Scratch space on this machine's disk for programs that make derived files.

<media>/.making/<random>/     scratch folder of one maker, locked while its process lives
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from app.core.errors import NoRoom
from app.storage.local.folder import Folder, disk_errors, make_private_folder

MAKING = ".making"

LEFT_FREE_BYTES = 64 * 1024 * 1024
"""No files are made with less free space than this: they can wait, uploads cannot."""


@dataclass(slots=True)
class ScratchSpace:
    """Scratch folders in `root`, on the disk of the files of this machine."""

    root: Path
    make_room: Callable[[], object] = lambda: None
    """Removes what can be fetched again; called when space is lacking."""
    _disk: Folder = field(init=False)

    def __post_init__(self) -> None:
        self._disk = Folder(self.root)

    @contextmanager
    def folder(self, needed_bytes: int = 0) -> Iterator[Path]:
        """An empty folder for half-made files, removed at the end, with what was left in it.

        Raises `NoRoom` as `require_room` does. If this process is killed, `remove_abandoned` of
        another one removes the folder.
        """
        self.require_room(needed_bytes)
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
            with disk_errors(), suppress(FileNotFoundError):
                shutil.rmtree(folder)
            os.close(descriptor)

    def require_room(self, needed_bytes: int = 0) -> None:
        """Raise `NoRoom` if that would use disk space reserved for uploads."""
        try:
            self._disk.require_room(LEFT_FREE_BYTES + needed_bytes)
        except NoRoom:
            self.make_room()
            self._disk.require_room(LEFT_FREE_BYTES + needed_bytes)

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


def _open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
