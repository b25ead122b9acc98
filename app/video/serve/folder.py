"""The files made from videos: indexes, pictures, segments. All of them can be made again.

`DiskFolder` has them on the disk of this machine alone. `BucketFolder` has them in a bucket for
many machines: what exists is in a table of the database, each file is an object whose name is never
used again, and the folder on this disk holds copies of what was asked for here. A file is in the
bucket before the table names it, and out of the table before it leaves the bucket, so a copy that
the table does not name is never read.

A name is ours, never a client's, such as `poster.jpg` or `rungs/720/15.m4s`. The first two parts of
a name are its bundle, which is discarded at once: `rungs/720`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from io import FileIO, RawIOBase
from pathlib import Path
from typing import BinaryIO, Protocol

from app.core.made_files import Bundle, Made
from app.core.upload import UploadId
from app.storage.local.folder import disk_errors


class MadeFiles(Protocol):
    """What was made, for those who make and those who play it; each call can be repeated."""

    def find(self, upload_id: UploadId, name: str) -> Made | None:
        """A file, if it is there."""
        ...

    def open(self, upload_id: UploadId, name: str) -> tuple[Made, RawIOBase]:
        """A file to read in parts, on disk or in the bucket; raises `FileNotFoundError`."""
        ...

    def fetch(self, upload_id: UploadId, name: str) -> tuple[Made, FileIO]:
        """A file on this machine, fetched first if need be; raises `FileNotFoundError`."""
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
        """Move a finished file to its place, where it replaces an older one.

        It appears there whole or not at all, and when this returns it survives a power cut. With
        `beside`, raises `Outdated` unless that file is still there at that moment. With `is_new`
        nothing is replaced, and `FileExistsError` is raised instead.
        """
        ...

    def discard(self, upload_id: UploadId, name: str) -> bool:
        """Remove an outdated file, or a whole bundle at once; whether there was one."""
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
        """All bundles in folders of these names, of all videos. Reads every file's entry."""
        ...

    def note_use(self, upload_id: UploadId, name: str) -> None:
        """Record that the bundle of a file is used now; frequent calls cost few writes."""
        ...

    def lacking_bytes(self, least_free: int, wanted: int) -> int:
        """How many bytes to discard: at least `wanted`, and until `least_free` are free."""
        ...


class MediaFolder(MadeFiles, Protocol):
    """The same, with room on this machine for the programs that make files."""

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
        """Raise `NoRoom` if this machine's disk would then lack the room kept for uploads."""
        ...

    def locked(self, upload_id: UploadId) -> AbstractContextManager[None]:
        """Exclude other makers that lock the same video; in a bucket, does nothing."""
        ...

    def remove_abandoned(self) -> None:
        """Remove the half-made files of makers that were killed."""
        ...


@contextmanager
def writing(folder: MediaFolder, upload_id: UploadId, name: str) -> Iterator[BinaryIO]:
    """A file to write; kept under `name` if the block ends without an error."""
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
