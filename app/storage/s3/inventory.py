"""Inventory of a bucket: all files and objects by its tables, and the garbage among them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from app.core.errors import StorageFailed
from app.core.pieces import UNKNOWN_ID, Garbage
from app.db.engine import Database
from app.db.nodes import Clock
from app.db.tables import Instant
from app.db.tables import stored_files as files
from app.db.tables import stored_garbage as garbage
from app.db.tables import stored_pieces as pieces
from app.storage.s3.bucket import Bucket

RETRY_DELAY = timedelta(hours=1)
"""Pause before retrying a deletion that the store refused."""

ROWS_AT_ONCE = 1000
"""Page size for reading a table of any length."""

GARBAGE = sa.select(garbage.c.id, garbage.c.name, garbage.c.multipart_id)

_NEEDED, _POSSIBLE = sa.literal(1).label("is_needed"), sa.literal(0)
_NAMED = sa.union_all(
    sa.select(files.c.name, _NEEDED).where(files.c.is_published),
    sa.select(pieces.c.name, _NEEDED),
    # These are being stored, or are to be removed.
    sa.select(files.c.name, _POSSIBLE).where(files.c.name.is_not(None), ~files.c.is_published),
    sa.select(files.c.multipart_name, _POSSIBLE).where(
        files.c.multipart_name.is_not(None), files.c.multipart_name.is_distinct_from(files.c.name)
    ),
    sa.select(garbage.c.name, _POSSIBLE),
).subquery()
"""Names of objects that may be in the bucket, and whether they must be."""


class BucketInventory:
    """Lists all files and objects, and the garbage among them; `clock` determines ages."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def has_files(self) -> bool:
        """Whether any file is stored or being received in a bucket."""
        with self._database.read() as connection:
            return connection.execute(sa.select(files.c.key).limit(1)).first() is not None

    def staged(self) -> Iterator[tuple[str, float]]:
        """Keys of unpublished files, with their ages in seconds."""
        now = self._clock()
        for row in self._pages(files.c.is_published.is_(False)):
            yield row.key, (now - row.active_at).total_seconds()

    def published(self) -> Iterator[str]:
        """Keys of published files."""
        return (row.key for row in self._pages(files.c.is_published))

    def shift_activity(self, later: timedelta) -> None:
        """Shift the activity times of unpublished files, but not beyond now."""
        now, active_at = self._clock(), files.c.active_at
        shifted = active_at + sa.literal(later // timedelta(microseconds=1))
        latest = sa.case((active_at > now - later, sa.literal(now, Instant)), else_=shifted)
        change = sa.update(files).where(files.c.is_published.is_(False)).values(active_at=latest)
        with self._database.write() as connection:
            connection.execute(change)

    def objects(self) -> Iterator[tuple[str, bool]]:
        """Yields names of objects that may be in the bucket, and whether each must be.

        Names come in byte order.
        """
        with self._database.snapshot() as connection:
            collation = "C" if connection.dialect.name == "postgresql" else "BINARY"
            order = _NAMED.c.name.collate(collation), _NAMED.c.is_needed
            query = sa.select(_NAMED).order_by(*order)
            for row in connection.execution_options(yield_per=ROWS_AT_ONCE).execute(query):
                yield row.name, bool(row.is_needed)

    def is_needed(self, name: str) -> bool | None:
        """Whether an object of this name must be in the bucket; None if no row names it."""
        query = sa.select(sa.func.max(_NAMED.c.is_needed)).where(_NAMED.c.name == name)
        with self._database.read() as connection:
            found = connection.execute(query).scalar()
        return None if found is None else bool(found)

    def _pages(self, condition: Any) -> Iterator[Any]:
        last = ""
        while True:
            query = sa.select(files.c.key, files.c.active_at).where(condition, files.c.key > last)
            with self._database.read() as connection:
                rows = connection.execute(query.order_by(files.c.key).limit(ROWS_AT_ONCE)).all()
            yield from rows
            if len(rows) < ROWS_AT_ONCE:
                return
            last = rows[-1].key

    # ---- garbage

    def garbage(self, limit: int) -> list[Garbage]:
        """Returns due garbage, whose announcements can be taken back no more."""
        due = sa.select(garbage.c.id).where(garbage.c.due_at <= self._clock())
        some = due.order_by(garbage.c.id).limit(limit).with_for_update(skip_locked=True)
        claim = sa.update(garbage).where(garbage.c.id.in_(some)).values(is_claimed=True)
        with self._database.write() as connection:
            # Leaves out what another transaction takes back, or deletes.
            claimed = connection.execute(claim.returning(*GARBAGE.selected_columns))
            return [Garbage(*row) for row in claimed]

    def collected(self, removed: Collection[Garbage], failed: Collection[Garbage] = ()) -> None:
        """Delete the rows of removed garbage; the failed garbage is due again an hour later."""
        gone, kept = (garbage.c.id.in_([each.id for each in some]) for some in (removed, failed))
        with self._database.write() as connection:
            connection.execute(sa.delete(garbage).where(gone))
            if failed:
                due_at = self._clock() + RETRY_DELAY
                connection.execute(sa.update(garbage).where(kept).values(due_at=due_at))


def collect(bucket: Bucket, inventory: BucketInventory, found: Sequence[Garbage]) -> None:
    """Remove unneeded objects and multipart uploads, and delete their rows.

    Objects that the store refuses to remove are retried an hour later. If the store stops
    responding, so is everything left, and this raises `ServerBusy`.
    """
    objects = [each for each in found if each.multipart_id is None]
    removed = set[Garbage]()
    try:
        with suppress(StorageFailed):  # If one cannot be removed, each is tried alone.
            bucket.delete(*(each.name for each in objects))
            removed.update(objects)
        for each in found:
            if each in removed:
                continue
            with suppress(StorageFailed):
                if each.multipart_id is None:
                    bucket.delete(each.name)
                elif each.multipart_id == UNKNOWN_ID:
                    for begun in bucket.list_multiparts(each.name):
                        bucket.abort_multipart(begun.name, begun.id)
                        # A Garage that was killed as it began one lists it until this.
                        bucket.delete(begun.name)
                else:
                    bucket.abort_multipart(each.name, each.multipart_id)
                    bucket.delete(each.name)  # It may be complete, without a record.
                removed.add(each)
    finally:
        if found:
            inventory.collected(removed, [each for each in found if each not in removed])
