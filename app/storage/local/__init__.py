"""A store on local disks: one preallocated file per upload, published by rename.

<staging>/<key>             what is being received, as long as the finished file from the start
<library>/<key>             published
<library>/.<key>.incoming   only if staging is on another file system: reserves the space in the
                            library from the start, so that publishing cannot fill the disk

Start with `staging.py`, then `range_writer.py`: the path of a chunk.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from app.core.errors import NoRoom, StorageFailed
from app.core.file_systems import is_in_memory
from app.core.numbers import bytes_in_words
from app.storage.base import Durability, SetupProblem, StagedFile
from app.storage.local.folder import KEPT_FREE_BYTES, Folder, disk_errors
from app.storage.local.library import LocalLibrary
from app.storage.local.range_writer import Checkpoints
from app.storage.local.staging import LocalStaging


class LocalStore:
    """A `Store` in two folders, which are created and opened at first use."""

    direct = None

    def __init__(
        self,
        staging: Path,
        library: Path,
        durability: Durability,
        *,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        staging_folder, library_folder = Folder(staging), Folder(library)
        self.staging = LocalStaging(
            staging_folder, library_folder, durability, checkpoints or Checkpoints()
        )
        self.library = LocalLibrary(self.staging, library_folder, durability)
        self.inspection = LocalInspection(staging_folder, library_folder)


LOW_ROOM_BYTES = 1024 * 1024 * 1024
"""Less free space than this, about one video, is reported."""

NO_ROOM_BYTES = KEPT_FREE_BYTES + 16 * 1024 * 1024
"""With less than this, hardly a chunk can be stored."""


class LocalInspection:
    """Implements `Inspection` for both folders."""

    collect_garbage = None
    remove_leftovers = None

    def __init__(self, staging: Folder, library: Folder) -> None:
        self._staging = staging
        self._library = library

    def staged(self) -> Iterator[StagedFile]:
        """Files that have not been published."""
        now = time.time()
        for entry in self._staging.entries():
            with suppress(FileNotFoundError):
                yield StagedFile(entry.name, now - entry.stat().st_mtime)

    def published(self) -> Iterator[str]:
        """Keys of published files."""
        return (entry.name for entry in self._library.entries() if entry.name[0] != ".")

    def shift_activity(self, later: timedelta) -> None:
        """Shift the modification times of staged files, but not beyond now."""
        with disk_errors():
            self._staging.shift_times(later.total_seconds())

    def problems(self) -> list[SetupProblem]:
        """Returns the folders' current problems. Names no paths, because the result is public."""
        return [
            *folder_problems(self._staging, "staging", warn_of_memory=True),
            *folder_problems(self._library, "library", warn_of_memory=False),
        ]


def folder_problems(folder: Folder, role: str, *, warn_of_memory: bool) -> Iterator[SetupProblem]:
    """Problems of one folder; `role` names it for operators."""
    probe = f".probe-{os.getpid()}-{threading.get_ident()}"
    try:
        with disk_errors():
            os.close(folder.open(probe, os.O_WRONLY | os.O_CREAT))
            folder.remove(probe)
    except (StorageFailed, NoRoom) as error:
        detail = f"the {role} folder cannot be written: {error}"
        yield SetupProblem(f"{role}_not_writable", detail, is_fatal=True)
        return
    free = folder.free_bytes
    if free < LOW_ROOM_BYTES:
        detail = f"the {role} folder has {bytes_in_words(free)} free"
        yield SetupProblem(f"{role}_low_on_room", detail, is_fatal=free < NO_ROOM_BYTES)
    if warn_of_memory and is_in_memory(folder.path):
        detail = (
            f"the {role} folder is kept in memory (tmpfs): uploads in progress use RAM and are "
            "lost on a restart of the machine; set SLUICE_STAGING_DIR to a folder on a disk"
        )
        yield SetupProblem(f"{role}_in_memory", detail, is_fatal=False)
