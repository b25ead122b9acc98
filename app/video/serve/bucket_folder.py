"""Files made from videos, in a bucket that several machines share.

PREFIX/media/<id>/<name>.<version>    each file, under a name that is never used again
<media>/.copies/<version>             copies on this machine of files requested here
<media>/.copies/<version>.lock        while a copy is being made
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from io import FileIO, RawIOBase
from pathlib import Path

from app.core.cells import Stamp
from app.core.errors import NoRoom, StorageFailed, UploadError
from app.core.made_files import Bundle, Made
from app.core.ranges import ByteRange
from app.core.upload import UploadId
from app.storage.local.folder import disk_errors
from app.storage.s3.bucket import Bucket
from app.storage.s3.contents import SpoolSlice
from app.video.serve.copies import Copies
from app.video.serve.disk_folder import DiskFolder
from app.video.serve.made_files import MadeFileRecords

COPIES = ".copies"

OBJECTS = "media/"
"""Prefix of their names in the bucket."""

VERSION_BYTES = 16

PART_BYTES = 64 << 20
"""Longer files are stored in parts, of which S3 takes 10 000."""

MOST_COPIED_BYTES = 64 << 20
"""Longer files, mostly whole films, are read from the bucket by range instead."""

STORING_SECONDS = 900.0
"""Time limit for one part of a file, retries included: a maker can wait, unlike a viewer."""

BATCH = 500

log = logging.getLogger(__name__)


class BucketFolder:
    """`MediaFolder` whose files are objects; `disk` is where this machine keeps its copies."""

    def __init__(
        self,
        disk: DiskFolder,
        records: MadeFileRecords,
        bucket: Bucket,
        *,
        most_copied_bytes: int,
        clock: Callable[[], datetime],
    ) -> None:
        """`most_copied_bytes` limits all copies on this machine together."""
        self._disk = disk
        self._records = records
        self._bucket, self._storing = bucket, bucket.within(STORING_SECONDS)
        self._copies = Copies(
            disk.root / COPIES,
            most_bytes=most_copied_bytes,
            kept=lambda versions: records.kept(list(versions)),
        )
        self._clock = clock

    @property
    def root(self) -> Path:
        """The folder on this machine."""
        return self._disk.root

    def find(self, upload_id: UploadId, name: str) -> Made | None:
        """A file, if the table has it."""
        return self._records.find(upload_id, name)

    def open(self, upload_id: UploadId, name: str) -> tuple[Made, RawIOBase]:
        """A local copy of a short file; a reader of the object for a long one."""
        found = self._require(upload_id, name)
        if found.length <= MOST_COPIED_BYTES:
            return self.fetch(upload_id, name)
        return found, self._bucket.open(object_name(found), ByteRange(0, 0), found.length)

    def fetch(self, upload_id: UploadId, name: str) -> tuple[Made, FileIO]:
        """A local copy, fetched if there is none."""
        while True:
            found = self._require(upload_id, name)
            with suppress(FileNotFoundError):
                return found, self._copies.open(found)
            try:
                return found, self._copy(found)
            except FileNotFoundError:  # Replaced, and the old object is deleted by now.
                if self.find(upload_id, name) == found:
                    log.error("%s is missing from the bucket", object_name(found))
                    raise

    def keep(
        self,
        made: Path,
        upload_id: UploadId,
        name: str,
        *,
        beside: Made | None = None,
        is_new: bool = False,
    ) -> None:
        """Store a finished file under a new name, then add it to the table."""
        version = secrets.token_hex(VERSION_BYTES)
        stored = Made(upload_id, name, made.stat().st_size, self._clock(), version)
        self._records.begin(stored)
        with made.open("rb", buffering=0) as file:
            self._store(file, stored)
        self._records.keep(stored, self._clock(), beside=beside, is_new=is_new)
        if stored.length <= MOST_COPIED_BYTES:
            with suppress(NoRoom, StorageFailed):  # It is stored, and can be fetched.
                self._copies.add(made, stored)
        else:
            made.unlink()

    def discard(self, upload_id: UploadId, name: str) -> bool:
        """Take it out of the table; `remove_abandoned` deletes the objects a little later."""
        return self._records.discard(upload_id, name, self._clock()) > 0

    def remove(self, upload_id: UploadId) -> None:
        """Take all files of a video out of the table, and delete them."""
        self._records.discard_all(upload_id, self._clock())
        self._delete_due_if_possible(upload_id)

    def made(self, upload_ids: Collection[UploadId]) -> Mapping[UploadId, frozenset[str]]:
        """The names of the files of each video that are in no folder."""
        return self._records.top_names(upload_ids)

    def videos(self) -> Iterator[UploadId]:
        """The videos that have files in the bucket."""
        yield from self._records.videos()

    def bundles(self, folders: Collection[str]) -> Iterator[Bundle]:
        """All bundles in these folders, in one query."""
        return self._records.bundles(folders)

    def note_use(self, upload_id: UploadId, name: str) -> None:
        """The table says when a bundle was last used."""
        self._records.note_use(upload_id, name, self._clock())

    def lacking_bytes(self, _least_free: int, _wanted: int) -> int:
        """Always 0: a bucket does not fill up, and copies make room on this machine's disk."""
        return 0

    def scratch_folder(self, needed_bytes: int = 0) -> AbstractContextManager[Path]:
        """A folder on this machine."""
        self.require_room(needed_bytes)
        return self._disk.scratch_folder(needed_bytes)

    def require_room(self, needed_bytes: int = 0) -> None:
        """Check this machine's disk; removes all copies if that makes the room."""
        try:
            self._disk.require_room(needed_bytes)
        except NoRoom:
            self._copies.remove_all()
            self._disk.require_room(needed_bytes)

    def locked(self, _upload_id: UploadId) -> AbstractContextManager[None]:
        """Lock nothing: the table checks `beside` in the transaction that keeps a file."""
        return nullcontext()

    def remove_abandoned(self) -> None:
        """Remove half-made files and needless copies here, and objects due for deletion."""
        self._disk.remove_abandoned()
        self._copies.trim()
        self._delete_due_if_possible()

    def _require(self, upload_id: UploadId, name: str) -> Made:
        found = self.find(upload_id, name)
        if found is None:
            raise FileNotFoundError(name)
        return found

    def _copy(self, found: Made) -> FileIO:
        """Fetch a file, once for all requests that want it at the same time.

        Raises `FileNotFoundError`, `NoRoom` if it does not fit, and `ServerBusy`.
        """
        with self._copies.adding(found):
            with suppress(FileNotFoundError):  # Another request has just fetched it.
                return self._copies.open(found)
            with self.scratch_folder(found.length) as scratch:
                copy = scratch / "copy"
                with disk_errors(), copy.open("xb", buffering=0) as target:
                    self._receive(found, target.fileno())
                file = FileIO(copy, "rb")  # Stays readable if the copy is removed.
                self._copies.add(copy, found)
                return file

    def _receive(self, found: Made, target: int) -> None:
        span = ByteRange(0, found.length)
        try:
            if found.length:
                self._bucket.copy_into(object_name(found), span, target, at=0)
        except FileNotFoundError:
            raise
        except OSError:
            with disk_errors():
                raise

    def _store(self, file: FileIO, made: Made) -> None:
        name, number = object_name(made), file.fileno()
        if made.length <= PART_BYTES:
            self._storing.put_object(name, SpoolSlice(number, 0, made.length))
            return
        multipart_id = self._storing.create_multipart(name)
        parts: list[tuple[int, Stamp]] = []
        for start in range(0, made.length, PART_BYTES):
            part = SpoolSlice(number, start, min(PART_BYTES, made.length - start))
            stored = self._storing.upload_part(name, multipart_id, len(parts) + 1, part)
            parts.append((len(parts) + 1, stored))
        self._storing.complete_multipart(name, multipart_id, parts)
        try:
            self._end_multiparts(made)  # Beginning one may have taken two tries.
        except UploadError as error:  # The film is stored all the same; deleting it ends them.
            log.warning("unfinished multipart uploads of %s are left: %s", name, error)

    def _end_multiparts(self, made: Made) -> None:
        for begun in self._bucket.list_multiparts(object_name(made)):
            self._bucket.abort_multipart(begun.name, begun.id)

    def _delete_due_if_possible(self, only: UploadId | None = None) -> None:
        """Delete due objects; failures are logged and retried by the next sweep."""
        try:
            self._delete_due(only)
        except UploadError as error:
            log.warning("what was made of films cannot be deleted from the bucket: %s", error)

    def _delete_due(self, only: UploadId | None = None) -> None:
        while found := self._records.due(self._clock(), BATCH, only):
            for made in found:
                if made.length > PART_BYTES:  # Its maker may have been killed before the last one.
                    self._end_multiparts(made)
            self._bucket.delete(*map(object_name, found))
            self._records.forget(found)
            self._copies.remove(made.version for made in found)


def object_name(made: Made) -> str:
    """The name of the object that a file is."""
    return f"{OBJECTS}{made.upload_id}/{made.name}.{made.version}"
