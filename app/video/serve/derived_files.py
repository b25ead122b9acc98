"""Derived files of videos: indexes, images, segments. All of them can be made again.

A table lists the files, and is the authority for all processes and nodes. Each file is an object of
its own, in a folder or in a bucket, under a name that is never reused:

    due later  ----> kept ----> due ----> forgotten
         |                       |
         +-----------------------+

A row is inserted before its object is stored, and deleted after the object, so an interruption
leaves no unknown object. Only kept files are visible. A maker that stores its object too late finds
the row gone.

File names are chosen by the server, never by a client, such as `poster.jpg` or `rungs/720/15.m4s`.
Files of a folder, such as `rungs/720`, can be discarded as a whole.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from io import FileIO, RawIOBase
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app.core.errors import UploadError
from app.core.playback import Bundle, Made, Outdated
from app.core.upload import UploadId
from app.db.engine import Database
from app.db.sql import fetch
from app.db.tables import IS_EVICTABLE, IS_KEPT, IS_LEFT
from app.db.tables import derived_files as files
from app.storage.local.folder import disk_errors
from app.video.serve.derived_objects import Objects, object_name
from app.video.serve.scratch import ScratchSpace

EVICTABLE = frozenset({"rungs", "renditions"})
"""Top folders of files that are evicted if space is lacking. All others stay with their video."""

MARK = "made-by"
"""The name of a folder's mark: the other files of the folder are kept `beside` it."""

UNFINISHED_FOR = timedelta(days=1)
"""An object not kept by then is treated as left over by a killed maker."""

ORPHAN_AGE = timedelta(days=1)
"""Newer objects may belong to a row that is still being written; allows for wrong clocks."""

USED_EXACTLY = timedelta(seconds=60)
"""Precision of a file's last use: each update is a write."""

MOST_NOTED = 1000
"""Files whose last use a process remembers, so as not to ask the database."""

VERSION_BYTES = 16

BATCH = 500
"""Files per query."""

ATTEMPTS = 5
"""Attempts to keep a file: of nodes that replace it at the same moment, all but one retry."""

log = logging.getLogger(__name__)

Opened = TypeVar("Opened", bound=RawIOBase)

_FILE = (files.c.upload_id, files.c.name, files.c.length, files.c.made_at, files.c.version)

# Requests of players run these two with `fetch`, which takes 20 us: SQLAlchemy would take 180.


@cache
def _named(count: int) -> sa.Select[Any]:
    return sa.select(*_FILE).where(
        files.c.upload_id == sa.bindparam("of"),
        files.c.folder.in_([sa.bindparam(f"in_folder_{n}") for n in range(count)]),
        files.c.name.in_([sa.bindparam(f"named_{n}") for n in range(count)]),
        IS_KEPT,
    )


@cache
def _top_names(count: int) -> sa.Select[Any]:
    ids: list[Any] = [sa.bindparam(f"of_{n}") for n in range(count)]
    is_at_top = sa.and_(files.c.upload_id.in_(ids), files.c.folder == sa.literal_column("''"))
    return sa.select(files.c.upload_id, files.c.name).where(is_at_top, IS_KEPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedFiles:
    """Derived files, for the background worker and for players. Each change is one transaction."""

    database: Database
    objects: Objects
    scratch: ScratchSpace
    clock: Callable[[], datetime]
    _noted: dict[tuple[UploadId, str], datetime] = field(default_factory=dict, init=False)
    """When this process last noted that a file is used."""

    # ---- reading

    def find(self, upload_id: UploadId, name: str) -> Made | None:
        """A file, if it exists."""
        return self.find_all(upload_id, [name]).get(name)

    def find_all(self, upload_id: UploadId, names: Sequence[str]) -> Mapping[str, Made]:
        """Those of a few files of a video that exist, by name, in one query."""
        with self.database.read() as connection:
            found = _find(connection, upload_id, names)
        return {file.name: file for file in found if self.objects.has(file)}

    def open(self, upload_id: UploadId, name: str) -> tuple[Made, RawIOBase]:
        """Opens a file to read in parts, where it is; raises `FileNotFoundError`."""
        return self._opened(upload_id, name, self.objects.open)

    def fetch(self, upload_id: UploadId, name: str) -> tuple[Made, FileIO]:
        """Opens a file on this machine, fetched first if needed; otherwise like `open`."""
        return self._opened(upload_id, name, self.objects.fetch)

    def open_version(self, found: Made) -> RawIOBase:
        """Like `open`, but never a replacement of the file; without a query."""
        return self._opened_version(found, self.objects.open)

    def fetch_version(self, found: Made) -> FileIO:
        """Like `fetch`, but never a replacement of the file; without a query."""
        return self._opened_version(found, self.objects.fetch)

    def read(self, upload_id: UploadId, name: str) -> bytes:
        """The bytes of a short file; raises `FileNotFoundError`."""
        _, file = self.fetch(upload_id, name)
        with closing(file):
            return file.readall()

    def _opened(
        self, upload_id: UploadId, name: str, open_object: Callable[[Made], Opened]
    ) -> tuple[Made, Opened]:
        tried = None
        while (found := self._row(upload_id, name)) is not None and found != tried:
            try:
                return found, self._opened_version(found, open_object)
            except FileNotFoundError:
                tried = found
        raise FileNotFoundError(name)

    def _opened_version(self, found: Made, open_object: Callable[[Made], Opened]) -> Opened:
        try:
            return open_object(found)
        except FileNotFoundError:
            if self._row(found.upload_id, found.name) == found:  # It was not replaced.
                log.error("%s is missing", object_name(found))
            raise

    def _row(self, upload_id: UploadId, name: str) -> Made | None:
        with self.database.read() as connection:
            return next(iter(_find(connection, upload_id, [name])), None)

    def note_use(self, upload_id: UploadId, name: str) -> None:
        """Record that a file is used now, if that can be written; frequent calls write little."""
        now, noted_at = self.clock(), self._noted.get((upload_id, name))
        if noted_at is not None and now - noted_at < USED_EXACTLY:
            return
        if len(self._noted) >= MOST_NOTED:
            self._noted.clear()
        self._noted[upload_id, name] = now
        is_older = files.c.used_at < now - USED_EXACTLY
        change = sa.update(files).where(_is_named(upload_id, name), is_older)
        with suppress(UploadError), self.database.write() as connection:
            connection.execute(change.values(used_at=now))

    # ---- making

    @contextmanager
    def writing(self, upload_id: UploadId, name: str) -> Iterator[BinaryIO]:
        """Yields a file to write; keeps it under `name` if the block ends without an error."""
        with self.scratch.folder() as scratch:
            made = scratch / "made"
            with disk_errors(), made.open("xb") as target:
                yield target
            self.keep(upload_id, {name: made})

    def keep(
        self,
        upload_id: UploadId,
        made: Mapping[str, Path],
        *,
        beside: Made | None = None,
        is_new: bool = False,
    ) -> None:
        """Publish finished files by name; replaces older ones.

        They appear together, and are durable when this returns: they survive a power failure. With
        `beside`, raises `Outdated` unless that file still exists at that moment. With `is_new`,
        raises `FileExistsError` instead of replacing a file.
        """

        def check(connection: sa.Connection) -> None:
            if beside is not None:
                _require_kept(connection, beside)
            if is_new:
                self._require_new(connection, upload_id, made)

        self._publish(upload_id, made, check)

    def renew(
        self, upload_id: UploadId, folder: str, made: Mapping[str, Path], *, instead_of: Made | None
    ) -> None:
        """Publish the first files of a folder, and discard all other files in it.

        Raises `FileExistsError` if there is a file of such a name already, unless it is
        `instead_of`.
        """

        def check(connection: sa.Connection) -> None:
            _lock(connection, _is_in(upload_id, folder))
            self._require_new(connection, upload_id, made, instead_of=instead_of)
            self._leave(connection, _is_in(upload_id, folder))

        self._publish(upload_id, made, check)

    def _publish(
        self,
        upload_id: UploadId,
        made: Mapping[str, Path],
        check: Callable[[sa.Connection], None],
    ) -> None:
        """Store files, then make them visible, in the transaction in which `check` raises nothing.

        Raises `Outdated` if their objects have become due for deletion.
        """
        began = self.clock()
        stored = [
            Made(upload_id, name, path.stat().st_size, began, secrets.token_hex(VERSION_BYTES))
            for name, path in made.items()
        ]
        with self.database.write() as connection:
            due_at = began + UNFINISHED_FOR
            connection.execute(sa.insert(files), [row_of(file, due_at=due_at) for file in stored])
        for file, path in zip(stored, made.values(), strict=True):
            self.objects.put(path, file)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self.database.write() as connection:
                    check(connection)
                    for file in stored:
                        self._leave(connection, _is_named(upload_id, file.name))
                        self._show(connection, file)
                break
            except IntegrityError:  # Another machine was faster with this name.
                if attempt == ATTEMPTS:
                    raise
        self._delete_due(upload_id)

    def _require_new(
        self,
        connection: sa.Connection,
        upload_id: UploadId,
        names: Collection[str],
        *,
        instead_of: Made | None = None,
    ) -> None:
        # In a folder, a lost file does not count; a bucket is not asked, and each row counts.
        for found in _find(connection, upload_id, [*names]):
            if found != instead_of and self.objects.has(found):
                raise FileExistsError(found.name)

    def _show(self, connection: sa.Connection, file: Made) -> None:
        is_its_own = sa.and_(
            files.c.version == file.version, IS_LEFT, files.c.due_at > self.clock()
        )
        change = sa.update(files).where(is_its_own).values(due_at=None)
        if connection.execute(change).rowcount == 0:
            raise Outdated(file.name)

    # ---- removing

    def discard(self, upload_id: UploadId, name: str) -> bool:
        """Remove a file, or all files of a folder; returns whether there was one."""
        condition = sa.or_(_is_named(upload_id, name), _is_in(upload_id, name))
        return self._discard(upload_id, condition) > 0

    def remove(self, upload_ids: Collection[UploadId]) -> None:
        """Remove all files of some videos; the objects at once, even if they are being read.

        Each video is a transaction: it may have thousands of files, and SQLite has one writer.
        """
        for upload_id in self.videos(upload_ids):
            self._discard(upload_id, files.c.upload_id == upload_id, due_at=self.clock())

    def _discard(
        self,
        upload_id: UploadId,
        condition: sa.ColumnElement[bool],
        due_at: datetime | None = None,
    ) -> int:
        with self.database.write() as connection:
            _lock(connection, condition)
            count = self._leave(connection, condition, due_at)
        self._delete_due(upload_id)
        return count

    def _leave(
        self,
        connection: sa.Connection,
        condition: sa.ColumnElement[bool],
        due_at: datetime | None = None,
    ) -> int:
        """Hide the files that are kept, until their objects are deleted; returns their number."""
        due_at = due_at or self.clock() + self.objects.read_for
        change = sa.update(files).where(condition, IS_KEPT).values(due_at=due_at)
        return connection.execute(change).rowcount

    def _delete_due(self, only: UploadId | None = None) -> None:
        """Delete due objects, of one video or all; the next sweep retries those that fail."""
        is_due = sa.and_(IS_LEFT, files.c.due_at <= self.clock())
        query = sa.select(*_FILE).where(is_due).order_by(files.c.due_at).limit(BATCH)
        if only is not None:
            query = query.where(files.c.upload_id == only)
        try:
            while found := self._list(query):
                self.objects.delete(found)
                versions = [file.version for file in found]
                with self.database.write() as connection:
                    connection.execute(
                        sa.delete(files).where(files.c.version.in_(versions), IS_LEFT)
                    )
        except UploadError as error:
            log.warning("derived files cannot be deleted: %s", error)

    def remove_abandoned(self) -> None:
        """Remove the files of killed makers, objects that are due, and needless copies."""
        self.scratch.remove_abandoned()
        self.objects.trim(self._kept)
        self._delete_due()

    # ---- lists

    def top_names(self, upload_ids: Collection[UploadId]) -> Mapping[UploadId, frozenset[str]]:
        """The names of each video's files, except those in folders."""
        names: dict[UploadId, set[str]] = {upload_id: set() for upload_id in upload_ids}
        values = {f"of_{number}": upload_id for number, upload_id in enumerate(names)}
        if names:
            with self.database.read() as connection:
                for upload_id, name in fetch(connection, _top_names(len(names)), values):
                    names[upload_id].add(name)
        return {upload_id: frozenset(found) for upload_id, found in names.items()}

    def videos(self, only: Collection[UploadId] | None = None) -> Sequence[UploadId]:
        """The videos that have files, of some or all."""
        query = sa.select(files.c.upload_id).where(IS_KEPT).distinct()
        if only is not None:
            query = query.where(files.c.upload_id.in_(only))
        with self.database.read() as connection:
            return [UploadId(upload_id) for upload_id in connection.scalars(query)]

    def is_empty(self) -> bool:
        """Whether there are no files at all."""
        with self.database.read() as connection:
            return connection.execute(sa.select(files.c.version).limit(1)).first() is None

    def evictable(self) -> Iterator[Bundle]:
        """Files that may be evicted, by folder; a file directly in a top folder is on its own."""
        folder, name = files.c.folder, files.c.name
        bundle = sa.case((folder.contains("/"), folder), else_=name).label("bundle")
        query = (
            sa.select(
                files.c.upload_id,
                bundle,
                sa.func.sum(files.c.length).label("size"),
                sa.func.max(files.c.used_at).label("used_at"),
            )
            .where(IS_EVICTABLE)
            .group_by(files.c.upload_id, bundle)
        )
        with self.database.read() as connection:
            for row in connection.execute(query):
                used_at = row.used_at.timestamp()
                yield Bundle(UploadId(row.upload_id), row.bundle, int(row.size), used_at)

    def _kept(self, versions: Sequence[str]) -> set[str]:
        query = sa.select(files.c.version).where(files.c.version.in_(versions), IS_KEPT)
        with self.database.read() as connection:
            return set(connection.scalars(query))

    def _list(self, query: sa.Select[Any]) -> list[Made]:
        with self.database.read() as connection:
            return [Made(*row) for row in connection.execute(query)]

    # ---- reconciling

    def orphans(self) -> Iterator[str]:
        """The names of old objects without a row."""
        born_before = self.clock() - ORPHAN_AGE
        listed = (found for found in self.objects.list() if found.changed_at < born_before)
        while some := [found.name for found in islice(listed, BATCH)]:
            versions = {name: name.rpartition(".")[2] for name in some}
            query = sa.select(files.c.version).where(files.c.version.in_(versions.values()))
            with self.database.read() as connection:
                known = set(connection.scalars(query))
            yield from (name for name in some if versions[name] not in known)

    def missing(self) -> Iterator[Made]:
        """Files in the table without an object."""
        for upload_id in self.videos():
            query = sa.select(*_FILE).where(files.c.upload_id == upload_id, IS_KEPT)
            made = {object_name(file): file for file in self._list(query)}
            listed = {found.name for found in self.objects.list(upload_id)}
            for name in sorted(made.keys() - listed):
                if self._row(upload_id, made[name].name) == made[name]:  # Not discarded since.
                    yield made[name]


def _find(connection: sa.Connection, upload_id: UploadId, names: Sequence[str]) -> list[Made]:
    values: dict[str, object] = {"of": upload_id}
    for number, name in enumerate(names):
        values[f"in_folder_{number}"], values[f"named_{number}"] = _folder(name), name
    return [Made(*row) for row in fetch(connection, _named(len(names)), values)]


def _is_named(upload_id: UploadId, name: str) -> sa.ColumnElement[bool]:
    return sa.and_(_is_in(upload_id, _folder(name)), files.c.name == name)


def _is_in(upload_id: UploadId, folder: str) -> sa.ColumnElement[bool]:
    return sa.and_(files.c.upload_id == upload_id, files.c.folder == folder)


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _lock(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> None:
    """Wait for transactions that keep files beside these, or replace them.

    The next statement sees what they have done. Marks come first, as in those transactions: in
    another order, each may wait for the other.
    """
    query = sa.select(files.c.version).where(condition, IS_KEPT).with_for_update()
    connection.execute(query.where(files.c.name == files.c.folder + f"/{MARK}")).all()
    connection.execute(query).all()


def _require_kept(connection: sa.Connection, beside: Made) -> None:
    """Raise `Outdated` unless the file is kept; locks it until the transaction ends."""
    is_there = sa.and_(files.c.version == beside.version, IS_KEPT)
    query = sa.select(files.c.version).where(is_there).with_for_update(read=True)
    if connection.execute(query).first() is None:
        raise Outdated(beside.name)


def row_of(file: Made, *, due_at: datetime | None) -> dict[str, object]:
    """The row of a new file."""
    return {
        "upload_id": file.upload_id,
        "name": file.name,
        "folder": _folder(file.name),
        "length": file.length,
        "made_at": file.made_at,
        "version": file.version,
        "used_at": file.made_at,
        "due_at": due_at,
        "is_evictable": file.name.partition("/")[0] in EVICTABLE,
    }
