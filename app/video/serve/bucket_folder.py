"""Files made from videos, in a bucket that several machines share.

PREFIX/media/<id>/<name>.<version>    each file, under a name that is never used again
<media>/.copies/<version>             copies on this machine of files requested here
<media>/.copies/<version>.lock        while a copy is being made
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import FileIO, RawIOBase
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app.core.errors import NoRoom, ServerBusy, StorageFailed, UploadError
from app.core.pieces import Stamp
from app.core.playback import Bundle, Made, Outdated
from app.core.ranges import ByteRange
from app.core.upload import UploadId
from app.db.engine import Database
from app.db.tables import IS_KEPT, IS_LEFT, made_files
from app.ingest.slots import without_slot
from app.storage.local.folder import disk_errors, make_private_folder
from app.storage.local.range_lock import WHOLE_FILE, try_lock, wait_for_range
from app.storage.s3.bucket import Bucket
from app.storage.s3.contents import SpoolSlice
from app.storage.s3.inspection import ORPHAN_AGE
from app.video.serve.folder import DiskFolder

COPIES = ".copies"

OBJECTS = "media/"
"""Prefix of their names in the bucket."""

VERSION_BYTES = 16

PART_BYTES = 64 << 20
"""Longer files are stored in parts; S3 allows 10 000 parts."""

MOST_COPIED_BYTES = 64 << 20
"""Longer files, mostly whole videos, are read from the bucket by range instead."""

STORING_SECONDS = 900.0
"""Time limit for one part of a file, retries included: a maker can wait, unlike a viewer."""

BATCH = 500

log = logging.getLogger(__name__)


class BucketFolder:
    """`MediaFolder` in a bucket; this machine keeps its copies in `disk`."""

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
        self.root = disk.root
        self._disk = disk
        self._records = records
        self._bucket, self._storing = bucket, bucket.within(STORING_SECONDS)
        self._copies = Copies(disk.root / COPIES, most_copied_bytes, records.kept)
        self._clock = clock

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
        self._delete_due(upload_id)

    def made(self, upload_ids: Collection[UploadId]) -> Mapping[UploadId, frozenset[str]]:
        """The names of each video's files, except those in folders."""
        return self._records.top_names(upload_ids)

    def videos(self) -> Iterator[UploadId]:
        """The videos that have files in the bucket."""
        yield from self._records.videos()

    def bundles(self, folders: Collection[str]) -> Iterator[Bundle]:
        """All bundles in these folders, in one query."""
        return self._records.bundles(folders)

    def note_use(self, upload_id: UploadId, name: str) -> None:
        """Record in the table that a bundle is used now."""
        self._records.note_use(upload_id, name, self._clock())

    def lacking_bytes(self, _least_free: int, _wanted: int) -> int:
        """Always 0: a bucket does not fill up, and copies make room on this machine's disk."""
        return 0

    def scratch_folder(self, needed_bytes: int = 0) -> AbstractContextManager[Path]:
        """A scratch folder on this machine."""
        self.require_room(needed_bytes)
        return self._disk.scratch_folder(needed_bytes)

    def require_room(self, needed_bytes: int = 0) -> None:
        """Check this machine's disk; removes all copies if it is too full."""
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
        self._delete_due()

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
                with disk_errors():
                    target = copy.open("xb", buffering=0)
                with target:
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
        except UploadError as error:  # The file is stored anyway; deleting it aborts them.
            log.warning("unfinished multipart uploads of %s are left: %s", name, error)

    def _end_multiparts(self, made: Made) -> None:
        for begun in self._bucket.list_multiparts(object_name(made)):
            self._bucket.abort_multipart(begun.name, begun.id)

    def _delete_due(self, only: UploadId | None = None) -> None:
        """Delete due objects; failures are logged and retried by the next sweep."""
        try:
            while found := self._records.due(self._clock(), BATCH, only):
                for made in found:
                    if made.length > PART_BYTES:  # Its maker may have been killed before that.
                        self._end_multiparts(made)
                self._bucket.delete(*map(object_name, found))
                self._records.forget(found)
                self._copies.remove(made.version for made in found)
        except UploadError as error:
            log.warning("derived files cannot be deleted from the bucket: %s", error)


def object_name(made: Made) -> str:
    """The object name of a file."""
    return f"{OBJECTS}{made.upload_id}/{made.name}.{made.version}"


# ---- copies --------------------------------------------------------------------------------------

# A cache on this machine's disk of files from the bucket; the least recently used go first.


USED_SECONDS = 600
"""Precision of a copy's last use: each update is a write."""

GROWN_SHARE = 8
"""A process checks the size of the cache after adding this fraction of its limit."""

ASKED_AT_ONCE = 500

ADDING_SECONDS = 30.0
"""How long a request waits for another one that fetches the same file; then `ServerBusy`."""


@dataclass
class Copies:
    """Copies in one folder, each named by the version of its file."""

    folder: Path
    most_bytes: int
    kept: Callable[[Sequence[str]], set[str]]
    """Returns which of some versions still exist."""
    _added_bytes: int = 0

    def open(self, made: Made) -> FileIO:
        """The copy of a file; raises `FileNotFoundError`."""
        path = self.folder / made.version
        file = FileIO(path, "rb")
        if time.time() - os.fstat(file.fileno()).st_mtime > USED_SECONDS:
            with suppress(FileNotFoundError):  # It has just been removed.
                os.utime(path)
        return file

    @contextmanager
    def adding(self, made: Made) -> Iterator[None]:
        """Let one request at a time, across processes, fetch a file; the others wait.

        Raises `ServerBusy` after `ADDING_SECONDS`.
        """
        path = self.folder / f"{made.version}.lock"
        with disk_errors():
            make_private_folder(self.folder)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not try_lock(descriptor, WHOLE_FILE):
                with without_slot():
                    if not wait_for_range(descriptor, WHOLE_FILE, ADDING_SECONDS):
                        raise ServerBusy("Another request is still fetching this file.")
            try:
                yield
            finally:  # Waiting requests have it open; later ones find the copy.
                self.remove([path.name])
        finally:
            os.close(descriptor)

    def add(self, path: Path, made: Made) -> None:
        """Move a complete copy, on the same disk, into the cache."""
        with disk_errors():
            make_private_folder(self.folder)
            with path.open("rb", buffering=0) as file:
                os.fsync(file.fileno())  # Otherwise a power cut may leave an empty copy.
            path.replace(self.folder / made.version)
        self._added_bytes += made.length
        if self._added_bytes * GROWN_SHARE > self.most_bytes:
            self._added_bytes = 0
            self._make_room()

    def remove(self, versions: Iterable[str]) -> None:
        """Remove the copies of some files."""
        for version in versions:
            with disk_errors():
                (self.folder / version).unlink(missing_ok=True)

    def remove_all(self) -> None:
        """Remove every copy, as the disk is full; all can be fetched again."""
        self.remove(version for _, _, version in self._by_use())

    def trim(self) -> None:
        """Remove copies of deleted files, and the oldest beyond the limit."""
        versions = [version for _, _, version in self._by_use()]
        for start in range(0, len(versions), ASKED_AT_ONCE):
            some = versions[start : start + ASKED_AT_ONCE]
            self.remove(set(some) - self.kept(some))
        self._make_room()

    def _make_room(self) -> None:
        copies = self._by_use()
        excess = sum(size for _, size, _ in copies) - self.most_bytes
        for _, size, version in copies:
            if excess <= 0:
                return
            self.remove([version])
            excess -= size

    def _by_use(self) -> list[tuple[float, int, str]]:
        """Time of last use, size and version of each copy, least recently used first."""
        found = []
        with suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # It has just been removed.
                    facts = entry.stat()
                    found.append((facts.st_mtime, facts.st_size, entry.name))
        return sorted(found)


# ---- reconcile -----------------------------------------------------------------------------------

# Compares the table of derived files with the bucket, in both directions.


def orphans(bucket: Bucket, records: MadeFileRecords, now: datetime) -> Iterator[str]:
    """Yields the names of old objects without a row."""
    listed = bucket.list_objects(OBJECTS)
    while some := list(islice(listed, ASKED_AT_ONCE)):
        known = records.known([_version(found.name) for found in some])
        for found in some:
            if _version(found.name) not in known and found.changed_at < now - ORPHAN_AGE:
                yield found.name


def missing(bucket: Bucket, records: MadeFileRecords) -> Iterator[Made]:
    """Yields files in the table that are missing from the bucket."""
    for upload_id in records.videos():
        made = {object_name(each): each for each in records.of(upload_id)}
        listed = {found.name for found in bucket.list_objects(f"{OBJECTS}{upload_id}/")}
        for name in sorted(made.keys() - listed):
            if records.find(upload_id, made[name].name) == made[name]:  # Not discarded since.
                yield made[name]


def _version(name: str) -> str:
    return name.rpartition(".")[2]


# ---- table ---------------------------------------------------------------------------------------

# Table of derived files in a bucket: the authority for all nodes that share the bucket.
#
#     due later  ----> kept ----> due soon ----> forgotten
#          |                                        |
#          +----------------------------------------+
#
# A row is inserted before its object is stored, and deleted after the object, so an interruption
# leaves no unknown object. A maker that stores its object too late finds the row gone.


UNFINISHED_FOR = timedelta(days=1)
"""An object not kept by then is treated as left over by a killed maker."""

READ_FOR = timedelta(minutes=5)
"""How long a discarded or replaced object stays, for requests that are reading it."""

USED_EXACTLY = timedelta(seconds=60)
"""Precision of a bundle's last use: each update is a write."""

ATTEMPTS = 5
"""Attempts to keep a file: of nodes that replace it at the same moment, all but one retry."""

_FILE = (
    made_files.c.upload_id,
    made_files.c.name,
    made_files.c.length,
    made_files.c.made_at,
    made_files.c.version,
)


class MadeFileRecords:
    """Each call is one transaction. `MadeFiles` documents the names."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, upload_id: UploadId, name: str) -> Made | None:
        """The kept file of that name."""
        with self._database.read() as connection:
            return _first(connection, _is_named(upload_id, name))

    def begin(self, made: Made) -> None:
        """Record a file whose object is about to be stored."""
        values = {
            "upload_id": made.upload_id,
            "name": made.name,
            "folder": _folder(made.name),
            "length": made.length,
            "made_at": made.made_at,
            "version": made.version,
            "used_at": made.made_at,
            "due_at": made.made_at + UNFINISHED_FOR,
        }
        with self._database.write() as connection:
            connection.execute(sa.insert(made_files).values(**values))

    def keep(
        self, made: Made, now: datetime, *, beside: Made | None = None, is_new: bool = False
    ) -> None:
        """Make a file visible once its object is stored; see `MadeFiles.keep`.

        Also raises `Outdated` if its object has become due for deletion.
        """
        is_its_own = sa.and_(
            made_files.c.version == made.version, IS_LEFT, made_files.c.due_at > now
        )
        older = _is_named(made.upload_id, made.name)
        change = sa.update(made_files).where(is_its_own).values(due_at=None)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._database.write() as connection:
                    if beside is not None:
                        _require_kept(connection, beside)
                    if is_new and _first(connection, older) is not None:
                        raise FileExistsError(made.name)
                    _leave(connection, older, now + READ_FOR)
                    if connection.execute(change).rowcount == 0:
                        raise Outdated(made.name)
                return
            except IntegrityError:  # Another machine was faster with this name.
                if attempt == ATTEMPTS:
                    raise

    def discard(self, upload_id: UploadId, name: str, now: datetime) -> int:
        """Hide a file, or all files of a bundle; returns how many there were."""
        is_in_bundle = sa.and_(made_files.c.upload_id == upload_id, made_files.c.folder == name)
        return self._discard(sa.or_(_is_named(upload_id, name), is_in_bundle), now + READ_FOR)

    def discard_all(self, upload_id: UploadId, now: datetime) -> int:
        """The same for all files of a video; their objects are due for deletion at once."""
        return self._discard(made_files.c.upload_id == upload_id, now)

    def _discard(self, condition: sa.ColumnElement[bool], due_at: datetime) -> int:
        locked = sa.select(made_files.c.version).where(condition, IS_KEPT).with_for_update()
        with self._database.write() as connection:
            # Waits for transactions that keep files beside these, so the next statement sees
            # what they have kept.
            connection.execute(locked).all()
            return _leave(connection, condition, due_at)

    def due(self, now: datetime, limit: int, only: UploadId | None = None) -> list[Made]:
        """Files whose objects are to be deleted, of all videos or of one, longest due first."""
        is_due = sa.and_(IS_LEFT, made_files.c.due_at <= now)
        query = sa.select(*_FILE).where(is_due).order_by(made_files.c.due_at).limit(limit)
        if only is not None:
            query = query.where(made_files.c.upload_id == only)
        with self._database.read() as connection:
            return [_made(row) for row in connection.execute(query)]

    def forget(self, files: Collection[Made]) -> None:
        """Drop the rows of files that are not kept, once their objects are deleted."""
        versions = [made.version for made in files]
        with self._database.write() as connection:
            connection.execute(
                sa.delete(made_files).where(made_files.c.version.in_(versions), IS_LEFT)
            )

    def top_names(self, upload_ids: Collection[UploadId]) -> Mapping[UploadId, frozenset[str]]:
        """The names of each video's files, except those in folders."""
        query = sa.select(made_files.c.upload_id, made_files.c.name).where(
            made_files.c.upload_id.in_(upload_ids), made_files.c.folder == "", IS_KEPT
        )
        names: dict[UploadId, set[str]] = {upload_id: set() for upload_id in upload_ids}
        with self._database.read() as connection:
            for row in connection.execute(query):
                names[UploadId(row.upload_id)].add(row.name)
        return {upload_id: frozenset(found) for upload_id, found in names.items()}

    def videos(self) -> list[UploadId]:
        """The videos that have files."""
        query = sa.select(made_files.c.upload_id).where(IS_KEPT).distinct()
        with self._database.read() as connection:
            return [UploadId(upload_id) for upload_id in connection.scalars(query)]

    def kept(self, versions: Sequence[str]) -> set[str]:
        """The versions that are kept."""
        query = sa.select(made_files.c.version).where(made_files.c.version.in_(versions), IS_KEPT)
        with self._database.read() as connection:
            return set(connection.scalars(query))

    def known(self, versions: Sequence[str]) -> set[str]:
        """The versions that have rows, kept or not."""
        query = sa.select(made_files.c.version).where(made_files.c.version.in_(versions))
        with self._database.read() as connection:
            return set(connection.scalars(query))

    def of(self, upload_id: UploadId) -> list[Made]:
        """The kept files of a video."""
        query = sa.select(*_FILE).where(made_files.c.upload_id == upload_id, IS_KEPT)
        with self._database.read() as connection:
            return [_made(row) for row in connection.execute(query)]

    def bundles(self, folders: Collection[str]) -> Iterator[Bundle]:
        """All bundles in these folders, of all videos."""
        folder, name = made_files.c.folder, made_files.c.name
        below = [folder.startswith(f"{each}/", autoescape=True) for each in sorted(folders)]
        # A file directly in a top-level folder is a bundle of its own.
        bundle = sa.case((folder.in_(sorted(folders)), name), else_=folder).label("bundle")
        query = (
            sa.select(
                made_files.c.upload_id,
                bundle,
                sa.func.sum(made_files.c.length).label("size"),
                sa.func.max(made_files.c.used_at).label("used_at"),
            )
            .where(sa.or_(folder.in_(sorted(folders)), *below), IS_KEPT)
            .group_by(made_files.c.upload_id, bundle)
        )
        with self._database.read() as connection:
            for row in connection.execute(query):
                used_at = row.used_at.timestamp()
                yield Bundle(UploadId(row.upload_id), row.bundle, int(row.size), used_at)

    def note_use(self, upload_id: UploadId, name: str, now: datetime) -> None:
        """Record that a file's bundle is used now, with the precision `USED_EXACTLY`."""
        is_file = _is_named(upload_id, name)
        query = sa.select(made_files.c.used_at).where(is_file, IS_KEPT)
        with self._database.read() as connection:
            used_at = connection.scalar(query)
        if used_at is not None and now - used_at > USED_EXACTLY:
            with self._database.write() as connection:
                connection.execute(
                    sa.update(made_files).where(is_file, IS_KEPT).values(used_at=now)
                )


def _is_named(upload_id: UploadId, name: str) -> sa.ColumnElement[bool]:
    return sa.and_(
        made_files.c.upload_id == upload_id,
        made_files.c.folder == _folder(name),
        made_files.c.name == name,
    )


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _first(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> Made | None:
    row = connection.execute(sa.select(*_FILE).where(condition, IS_KEPT)).first()
    return None if row is None else _made(row)


def _require_kept(connection: sa.Connection, beside: Made) -> None:
    """Raise `Outdated` unless the file is kept; locks it until the transaction ends."""
    is_there = sa.and_(made_files.c.version == beside.version, IS_KEPT)
    query = sa.select(made_files.c.version).where(is_there).with_for_update(read=True)
    if connection.execute(query).first() is None:
        raise Outdated(beside.name)


def _leave(connection: sa.Connection, condition: sa.ColumnElement[bool], due_at: datetime) -> int:
    change = sa.update(made_files).where(condition, IS_KEPT).values(due_at=due_at)
    return connection.execute(change).rowcount


def _made(row: Any) -> Made:
    return Made(UploadId(row.upload_id), row.name, row.length, row.made_at, row.version)
