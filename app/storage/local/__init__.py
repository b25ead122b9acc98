"""A store on local disks: one preallocated file per upload, published by rename.

<staging>/<key>             what is being received, as long as the finished file from the start
<library>/<key>             published
<library>/.<key>.incoming   only if staging is on another file system: reserves the space in the
                            library from the start, so that publishing cannot fill the disk

Start with `staging.py`, then `range_writer.py`: the path of a chunk.
"""

from __future__ import annotations

from pathlib import Path

from app.storage.base import Durability
from app.storage.local.folder import Folder
from app.storage.local.inspection import LocalInspection
from app.storage.local.library import LocalLibrary
from app.storage.local.range_writer import Checkpoints
from app.storage.local.staging import LocalStaging


class LocalStore:
    """A `Store` in two folders, which are created and opened at first use."""

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
