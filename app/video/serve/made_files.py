"""Table of derived files in a bucket: the authority for all nodes that share the bucket.

    due later  ----> kept ----> due soon ----> forgotten
         |                                        |
         +----------------------------------------+

A row is inserted before its object is stored, and deleted after the object, so an interruption
leaves no unknown object. A maker that stores its object too late finds the row gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from app.core.playback import Bundle, Made, Outdated
from app.core.upload import UploadId
from app.db.engine import Database
from app.db.tables import IS_KEPT, IS_LEFT, made_files

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
            connection.execute(insert(made_files).values(**values))

    def keep(
        self, made: Made, now: datetime, *, beside: Made | None = None, is_new: bool = False
    ) -> None:
        """Make a file visible once its object is stored; see `MadeFiles.keep`.

        Also raises `Outdated` if its object has become due for deletion.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._keep(made, now, beside, is_new=is_new)
            except IntegrityError:  # Another machine was faster with this name.
                if attempt == ATTEMPTS:
                    raise
            else:
                return

    def _keep(self, made: Made, now: datetime, beside: Made | None, *, is_new: bool) -> None:
        is_its_own = and_(made_files.c.version == made.version, IS_LEFT, made_files.c.due_at > now)
        older = _is_named(made.upload_id, made.name)
        with self._database.write() as connection:
            if beside is not None:
                _require_kept(connection, beside)
            if is_new and _first(connection, older) is not None:
                raise FileExistsError(made.name)
            _leave(connection, older, now + READ_FOR)
            change = update(made_files).where(is_its_own).values(due_at=None)
            if connection.execute(change).rowcount == 0:
                raise Outdated(made.name)

    def discard(self, upload_id: UploadId, name: str, now: datetime) -> int:
        """Hide a file, or all files of a bundle; returns how many there were."""
        is_in_bundle = and_(made_files.c.upload_id == upload_id, made_files.c.folder == name)
        return self._discard(or_(_is_named(upload_id, name), is_in_bundle), now + READ_FOR)

    def discard_all(self, upload_id: UploadId, now: datetime) -> int:
        """The same for all files of a video; their objects are due for deletion at once."""
        return self._discard(made_files.c.upload_id == upload_id, now)

    def _discard(self, condition: ColumnElement[bool], due_at: datetime) -> int:
        locked = select(made_files.c.version).where(condition, IS_KEPT).with_for_update()
        with self._database.write() as connection:
            # Waits for transactions that keep files beside these, so the next statement sees
            # what they have kept.
            connection.execute(locked).all()
            return _leave(connection, condition, due_at)

    def due(self, now: datetime, limit: int, only: UploadId | None = None) -> list[Made]:
        """Files whose objects are to be deleted, of all videos or of one, longest due first."""
        is_due = and_(IS_LEFT, made_files.c.due_at <= now)
        query = select(*_FILE).where(is_due).order_by(made_files.c.due_at).limit(limit)
        if only is not None:
            query = query.where(made_files.c.upload_id == only)
        with self._database.read() as connection:
            return [_made(row) for row in connection.execute(query)]

    def forget(self, files: Collection[Made]) -> None:
        """Drop the rows of files that are not kept, once their objects are deleted."""
        versions = [made.version for made in files]
        with self._database.write() as connection:
            connection.execute(
                delete(made_files).where(made_files.c.version.in_(versions), IS_LEFT)
            )

    def top_names(self, upload_ids: Collection[UploadId]) -> Mapping[UploadId, frozenset[str]]:
        """The names of each video's files, except those in folders."""
        query = select(made_files.c.upload_id, made_files.c.name).where(
            made_files.c.upload_id.in_(upload_ids), made_files.c.folder == "", IS_KEPT
        )
        names: dict[UploadId, set[str]] = {upload_id: set() for upload_id in upload_ids}
        with self._database.read() as connection:
            for row in connection.execute(query):
                names[UploadId(row.upload_id)].add(row.name)
        return {upload_id: frozenset(found) for upload_id, found in names.items()}

    def videos(self) -> list[UploadId]:
        """The videos that have files."""
        query = select(made_files.c.upload_id).where(IS_KEPT).distinct()
        with self._database.read() as connection:
            return [UploadId(upload_id) for upload_id in connection.scalars(query)]

    def kept(self, versions: Sequence[str]) -> set[str]:
        """The versions that are kept."""
        query = select(made_files.c.version).where(made_files.c.version.in_(versions), IS_KEPT)
        with self._database.read() as connection:
            return set(connection.scalars(query))

    def known(self, versions: Sequence[str]) -> set[str]:
        """The versions that have rows, kept or not."""
        query = select(made_files.c.version).where(made_files.c.version.in_(versions))
        with self._database.read() as connection:
            return set(connection.scalars(query))

    def of(self, upload_id: UploadId) -> list[Made]:
        """The kept files of a video."""
        query = select(*_FILE).where(made_files.c.upload_id == upload_id, IS_KEPT)
        with self._database.read() as connection:
            return [_made(row) for row in connection.execute(query)]

    def bundles(self, folders: Collection[str]) -> Iterator[Bundle]:
        """All bundles in these folders, of all videos."""
        folder, name = made_files.c.folder, made_files.c.name
        below = [folder.startswith(f"{each}/", autoescape=True) for each in sorted(folders)]
        # A file directly in a top-level folder is a bundle of its own.
        bundle = case((folder.in_(sorted(folders)), name), else_=folder).label("bundle")
        query = (
            select(
                made_files.c.upload_id,
                bundle,
                func.sum(made_files.c.length).label("size"),
                func.max(made_files.c.used_at).label("used_at"),
            )
            .where(or_(folder.in_(sorted(folders)), *below), IS_KEPT)
            .group_by(made_files.c.upload_id, bundle)
        )
        with self._database.read() as connection:
            for row in connection.execute(query):
                used_at = row.used_at.timestamp()
                yield Bundle(UploadId(row.upload_id), row.bundle, int(row.size), used_at)

    def note_use(self, upload_id: UploadId, name: str, now: datetime) -> None:
        """Record that a file's bundle is used now, with the precision `USED_EXACTLY`."""
        is_file = _is_named(upload_id, name)
        query = select(made_files.c.used_at).where(is_file, IS_KEPT)
        with self._database.read() as connection:
            used_at = connection.scalar(query)
        if used_at is not None and now - used_at > USED_EXACTLY:
            with self._database.write() as connection:
                connection.execute(update(made_files).where(is_file, IS_KEPT).values(used_at=now))


def _is_named(upload_id: UploadId, name: str) -> ColumnElement[bool]:
    return and_(
        made_files.c.upload_id == upload_id,
        made_files.c.folder == _folder(name),
        made_files.c.name == name,
    )


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _first(connection: Connection, condition: ColumnElement[bool]) -> Made | None:
    row = connection.execute(select(*_FILE).where(condition, IS_KEPT)).first()
    return None if row is None else _made(row)


def _require_kept(connection: Connection, beside: Made) -> None:
    """Raise `Outdated` unless the file is kept; locks it until the transaction ends."""
    is_there = and_(made_files.c.version == beside.version, IS_KEPT)
    query = select(made_files.c.version).where(is_there).with_for_update(read=True)
    if connection.execute(query).first() is None:
        raise Outdated(beside.name)


def _leave(connection: Connection, condition: ColumnElement[bool], due_at: datetime) -> int:
    change = update(made_files).where(condition, IS_KEPT).values(due_at=due_at)
    return connection.execute(change).rowcount


def _made(row: Any) -> Made:
    return Made(UploadId(row.upload_id), row.name, row.length, row.made_at, row.version)
