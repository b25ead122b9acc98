"""Catalog of a bucket: the rows of files, their pieces, parts and claims, and of garbage.

Several nodes may share them. A chunk runs two or three of these statements, regardless of the
file's size. Object names are never reused: the transaction that replaces or removes a row also
records the object to delete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app.core.cells import (
    UNKNOWN_ID,
    Claim,
    Garbage,
    Grid,
    Multipart,
    Part,
    Piece,
    PieceTotals,
    Stamp,
    StoredFile,
    part_number,
    span_of,
)
from app.core.ranges import ByteRange
from app.db.engine import Database
from app.db.nodes import Clock, utc_now
from app.db.sql import upsert_into
from app.db.tables import Instant
from app.db.tables import stored_files as files
from app.db.tables import stored_garbage as garbage
from app.db.tables import stored_pieces as pieces
from app.storage.base import BytesLost
from app.storage.s3 import catalog_statements as statements

PIECE_LEASE = timedelta(hours=1)
"""An object not stored within this time is garbage. No request waits for this lease to end."""

RETRY_DELAY = timedelta(hours=1)
"""Pause before retrying a deletion that the store refused."""


class _CannotJoin(Exception):
    """Rolls the transaction back."""


class BucketCatalog:
    """Each call is atomic, on any node; `clock` decides when leases end.

    Nodes must share the clock (`app.db.nodes`). If clocks differ by a lease, work is done twice.
    """

    def __init__(self, database: Database, clock: Clock = utc_now) -> None:
        self.inventory = BucketInventory(database, clock)
        self._database = database
        self._clock = clock

    def reserve(self, key: str, grid: Grid, length: int | None) -> None:
        """Add a file; the length of an existing file can only grow."""
        values = {"key": key, "cell_bytes": grid.cell_bytes, "length": length}
        values |= {"is_published": False, "active_at": self._clock()}
        with self._database.one_statement() as connection:
            new = upsert_into(files, connection.dialect.name).values(values)
            connection.execute(
                new.on_conflict_do_update(
                    index_elements=[files.c.key],
                    set_={"length": new.excluded.length},
                    where=sa.and_(files.c.name.is_(None), files.c.length < new.excluded.length),
                )
            )

    def file(self, key: str) -> StoredFile | None:
        """Returns a file; None if there is none."""
        rows = self._read(statements.FILE, {"of_key": key})
        if not rows:
            return None
        row = rows[0]
        is_begun = row.multipart_id is not None
        return StoredFile(
            key=row.key,
            grid=Grid(row.cell_bytes),
            length=row.length,
            name=row.name,
            is_published=row.is_published,
            multipart=Multipart(row.multipart_name, row.multipart_id) if is_begun else None,
            crc32c=row.crc32c,
        )

    def require(self, key: str) -> StoredFile:
        """Returns a file; raises `BytesLost` if there is none."""
        file = self.file(key)
        if file is None:
            raise BytesLost(key)
        return file

    def require_open(self, key: str) -> StoredFile:
        """Returns a file to which bytes can be added; raises `BytesLost` if there is none."""
        file = self.require(key)
        if file.name is not None:
            raise BytesLost(key)
        return file

    def intend_multipart(self, name: str) -> None:
        """Announce a multipart upload; a sweep aborts it unless `begin_multipart` records it."""
        due_at = self._clock() + PIECE_LEASE
        row = {"name": name, "multipart_id": UNKNOWN_ID, "due_at": due_at}
        self._run(sa.insert(garbage), row)

    def begin_multipart(self, key: str, multipart: Multipart) -> Multipart | None:
        """Record the multipart upload of a file; returns the one that was recorded first.

        Returns None if the file is gone or is one object already, or if the intent is so old that a
        sweep may have aborted the multipart upload.
        """
        values = {"multipart": multipart.name, "multipart_number": multipart.id}
        place = {"of_key": key, "now": self._clock()}
        with self._database.write() as connection:
            if connection.execute(statements.NOTE_MULTIPART, {**place, **values}).rowcount:
                connection.execute(statements.FORGET_INTENT, {"multipart": multipart.name})
                return multipart
        found = self.file(key)
        return None if found is None or found.name is not None else found.multipart

    def intend(self, key: str, cell: int, span: ByteRange, name: str) -> int | None:
        """Announce an object with some bytes of a cell; returns the id of its piece.

        Returns None if the file is gone or is one object already.
        """
        place = {"of_key": key, "in_cell": cell, "begin": span.start, "stop": span.end}
        values = {**place, "object": name, "until": self._clock() + PIECE_LEASE}
        try:
            with self._database.one_statement() as connection:
                found: int | None = connection.execute(statements.INTEND, values).scalar()
        except IntegrityError:  # The file was removed as this ran.
            return None
        return found

    def withdraw(self, piece_id: int, name: str) -> None:
        """Withdraw an announcement that was not committed; a later sweep removes its object."""
        row = {"name": name, "due_at": self._clock() + PIECE_LEASE}
        with self._database.write() as connection:
            connection.execute(sa.delete(pieces).where(pieces.c.id == piece_id))
            connection.execute(sa.insert(garbage), row)

    def commit(self, piece_id: int, key: str, cell: int, stamp: Stamp) -> PieceTotals | None:
        """Record that the object is stored; returns the new totals of the cell's pieces.

        Pieces are counted after the change: of two that fill a cell together, at least one sees
        both. Returns None if the call came too late: a sweep may have removed the object.
        """
        values = {"piece": piece_id, "tag": stamp.etag, "checksum": stamp.crc32c}
        with self._database.one_statement() as connection:
            if connection.execute(statements.COMMIT, values).first() is None:
                return None
            place = {"of_key": key, "in_cell": cell}
            count, length = connection.execute(statements.TOTALS, place).one()
        return PieceTotals(count, int(length))

    def is_joinable(self, key: str, pieces: Sequence[Piece]) -> bool:
        """Whether no other piece, stored or being stored, overlaps these and came between them."""
        return not self._read(statements.BETWEEN, _between(key, pieces))

    def join(self, piece_id: int, joined: Sequence[Piece], key: str, stamp: Stamp) -> bool:
        """Replace the joined pieces with one stored object that has their bytes.

        It counts as the newest of them. Their objects are deleted later, since they may still be
        read. Returns False if the call came too late, if one of the pieces is gone, or if another
        piece that overlaps them came between them: the object would hide newer bytes, or be hidden.
        """
        values = {**_between(key, joined), "until": self._clock() + PIECE_LEASE}
        values |= {"piece": piece_id, "tag": stamp.etag, "checksum": stamp.crc32c}
        try:
            with self._database.write() as connection:
                # With the lock, every piece with a lower id than a new one is visible.
                if connection.execute(statements.LOCKED_OPEN_FILE, values).first() is None:
                    raise _CannotJoin
                connection.execute(statements.DISCARD_JOINED, values)
                if connection.execute(statements.DELETE_JOINED, values).rowcount != len(joined):
                    raise _CannotJoin
                if connection.execute(statements.BETWEEN, values).first() is not None:
                    raise _CannotJoin
                if connection.execute(statements.REPLACE_JOINED, values).rowcount != 1:
                    raise _CannotJoin
        except _CannotJoin:
            return False
        return True

    def pieces(self, key: str, cell: int) -> list[Piece]:
        """Stored pieces of a cell, oldest first."""
        rows = self._read(statements.PIECES, {"of_key": key, "in_cell": cell})
        return [_piece(row) for row in rows]

    def loose(self, key: str) -> list[Piece]:
        """Stored pieces of a file whose bytes are not in any part."""
        return [_piece(row) for row in self._read(statements.LOOSE, {"of_key": key})]

    def claim(self, key: str, cell: int, token: str, lease: timedelta) -> Claim | None:
        """Claim a cell; None while it is claimed, or if the file is gone or one object."""
        now = self._clock()
        values = {"of_key": key, "in_cell": cell, "claimed_by": token, "until": now + lease}
        try:
            with self._database.one_statement() as connection:
                row = connection.execute(
                    statements.claim(connection.dialect.name), {**values, "now": now}
                ).first()
        except IntegrityError:  # The file was removed as this ran.
            return None
        if row is None:
            return None
        epoch, through = row
        return Claim(key, cell, token, part_number(cell, epoch), int(through))

    def renew(self, claim: Claim, lease: timedelta) -> bool:
        """Renew the lease of a claim; False if the claim was taken over."""
        values = {**_of(claim), "until": self._clock() + lease}
        return self._run(statements.RENEW, values) == 1

    def seal(self, claim: Claim, length: int, stamp: Stamp) -> bool:
        """Record the stored cell and end the claim; False if the claim was lost."""
        part = {"number": claim.number, "bytes": length, "last_piece": claim.through}
        values = {**part, "tag": stamp.etag, "checksum": stamp.crc32c}
        return self._run(statements.SEAL, {**_of(claim), **values}) == 1

    def release(self, claim: Claim) -> None:
        """End a claim without a part; does nothing if it has ended."""
        self._run(statements.RELEASE, _of(claim))

    def offer(self, key: str, cells: Collection[int], *, seconds: float) -> set[int]:
        """Returns the cells that no request has begun to store; returns each cell only once, ever.

        If there are any, the file does not count as idle for `seconds`.
        """
        now = self._clock()
        rows = [{"of_key": key, "in_cell": cell, "now": now} for cell in sorted(cells)]
        try:
            with self._database.write() as connection:
                offering = statements.offer(connection.dialect.name)
                offered = [connection.execute(offering, row).scalar() for row in rows]
                found = {cell for cell in offered if cell is not None}
                if found:
                    until = now + timedelta(seconds=seconds)
                    connection.execute(statements.KEEP, {"of_key": key, "until": until})
        except IntegrityError:  # The file was removed as this ran.
            return set()
        return found

    def place(self, key: str, parts: Sequence[Part]) -> bool:
        """Record cells that a client has stored, under part numbers that no claim uses.

        They supersede all earlier pieces, regardless of `through`. Returns False if the file is
        gone or is one object already.
        """
        now = self._clock()
        rows = [
            {
                "of_key": key,
                "in_cell": part.cell,
                "number": part.number,
                "now": now,
                "bytes": part.length,
                "tag": part.stamp.etag,
                "checksum": part.stamp.crc32c,
            }
            # A fixed order prevents a deadlock between two nodes.
            for part in sorted(parts, key=lambda part: part.cell)
        ]
        try:
            with self._database.write() as connection:
                placing = statements.placing(connection.dialect.name)
                return None not in [connection.execute(placing, row).first() for row in rows]
        except IntegrityError:  # The file was removed as this ran.
            return False

    def parts(self, key: str) -> list[Part]:
        """Stored cells of a file, in order."""
        return [_part(row) for row in self._read(statements.PARTS, {"of_key": key})]

    def part(self, key: str, cell: int) -> Part | None:
        """One stored cell."""
        rows = self._read(statements.PART, {"of_key": key, "in_cell": cell})
        return _part(rows[0]) if rows else None

    def add_whole(self, wholes: Sequence[tuple[str, str, int]]) -> None:
        """Add files of one object each, as key, name and length, before the objects are put.

        Does not change files that are one object already. If the put fails, the caller must remove
        the file.
        """
        common = {"is_published": False, "active_at": self._clock()}
        rows = [
            {"key": key, "name": name, "length": length, "cell_bytes": 0, **common}
            for key, name, length in sorted(wholes)
        ]
        with self._database.one_statement() as connection:
            new = upsert_into(files, connection.dialect.name)
            known = {name: new.excluded[name] for name in ("name", "length")}
            connection.execute(
                new.on_conflict_do_update(
                    index_elements=[files.c.key], set_=known, where=files.c.name.is_(None)
                ),
                rows,
            )

    def finish(
        self, key: str, name: str, length: int, *, is_published: bool, crc32c: str | None = None
    ) -> bool:
        """Record the object that has the whole file, and its CRC32C; returns whether it was new.

        All pieces and parts of the file become garbage.
        """
        values = {"object": name, "bytes": length, "published": is_published, "checksum": crc32c}
        kept = {"of_key": key, "kept": name, "now": self._clock()}
        with self._database.write() as connection:
            if not connection.execute(statements.FINISH, {"of_key": key, **values}).rowcount:
                return False
            connection.execute(statements.DISCARD_MULTIPART, kept)
            connection.execute(statements.DISCARD_PIECES, kept)
            connection.execute(statements.DELETE_PIECES, kept)
            connection.execute(statements.DELETE_CELLS, kept)
        return True

    def publish(self, keys: Sequence[str]) -> int:
        """Publish files that are one object each; returns how many of them are now published."""
        change = sa.update(files).where(files.c.key.in_(keys), files.c.name.is_not(None))
        return self._run(change.values(is_published=True), {})

    def remove(self, key: str, *, also_published: bool) -> list[Garbage]:
        """Delete a file's rows; returns the garbage to remove from the bucket now. Repeatable."""
        now = self._clock()
        values = {"of_key": key, "kept": "", "now": now, "lease_end": now + PIECE_LEASE}
        with self._database.write() as connection:
            # The lock keeps others from adding a piece or claim until the commit.
            found = connection.execute(statements.FILE.with_for_update(), values).first()
            if found is None or (found.is_published and not also_published):
                return []
            before = connection.execute(
                sa.select(sa.func.coalesce(sa.func.max(garbage.c.id), 0))
            ).scalar()
            values["kept"] = found.name or ""
            for statement in statements.REMOVE:
                connection.execute(statement, values)
            query = sa.select(garbage).where(garbage.c.id > before, garbage.c.due_at <= now)
            own = query.where(garbage.c.name.contains(key)).order_by(garbage.c.id)
            return [_garbage(row) for row in connection.execute(own)]

    def remove_unused(self, key: str) -> None:
        """Delete the row of a file that has no stored bytes."""
        try:
            self._run(statements.DELETE_UNUSED, {"of_key": key})
        except IntegrityError:  # Another transaction has just added such a row.
            return

    def discard(self, name: str, multipart_id: str | None = None) -> None:
        """Leave an object or an unfinished multipart upload to the next sweep."""
        row = {"name": name, "multipart_id": multipart_id, "due_at": self._clock()}
        self._run(sa.insert(garbage), row)

    def garbage(self, limit: int) -> list[Garbage]:
        """Returns due garbage, including objects whose lease ended before they were stored."""
        now = {"now": self._clock()}
        late = sa.select(pieces.c.name, statements.NOW).where(statements.IS_LATE)
        due = sa.select(garbage).where(garbage.c.due_at <= now["now"]).order_by(garbage.c.id)
        with self._database.write() as connection:
            # Lock first: a piece committed right now either stays, or its commit finds no row.
            found = connection.execute(
                sa.select(pieces.c.id)
                .where(statements.IS_LATE)
                .limit(limit)
                .with_for_update(skip_locked=True),
                now,
            )
            gone = [row.id for row in found]
            connection.execute(
                sa.insert(garbage).from_select(
                    ["name", "due_at"], late.where(pieces.c.id.in_(gone))
                ),
                now,
            )
            connection.execute(sa.delete(pieces).where(pieces.c.id.in_(gone)))
            return [_garbage(row) for row in connection.execute(due.limit(limit))]

    def collected(self, removed: Collection[Garbage], failed: Collection[Garbage] = ()) -> None:
        """Delete the rows of removed garbage; the failed garbage is due again an hour later."""
        gone, kept = (garbage.c.id.in_([each.id for each in some]) for some in (removed, failed))
        with self._database.write() as connection:
            connection.execute(sa.delete(garbage).where(gone))
            if failed:
                due_at = self._clock() + RETRY_DELAY
                connection.execute(sa.update(garbage).where(kept).values(due_at=due_at))

    def mend(self, key: str, part: Part, stamp: Stamp | None) -> None:
        """Correct the stamp of a part, or drop a lost part, unless the part has been replaced."""
        new = Stamp("", "") if stamp is None else stamp
        values = {"of_key": key, "in_cell": part.cell, "number": part.number}
        values |= {"old_tag": part.stamp.etag, "tag": new.etag or None, "checksum": new.crc32c}
        self._run(statements.MEND, values)

    def _read(self, query: sa.Select[Any], values: Mapping[str, object]) -> Sequence[sa.Row[Any]]:
        with self._database.read() as connection:
            return connection.execute(query, values).all()

    def _run(self, statement: sa.UpdateBase, values: Mapping[str, object]) -> int:
        """Run a statement in a transaction of its own; returns how many rows it changed."""
        with self._database.one_statement() as connection:
            return connection.execute(statement, values).rowcount


def _of(claim: Claim) -> dict[str, object]:
    return {"of_key": claim.key, "in_cell": claim.cell, "claimed_by": claim.token}


def _between(key: str, joined: Sequence[Piece]) -> dict[str, Any]:
    """Parameters of the statements that join pieces."""
    ids, span = [piece.id for piece in joined], span_of(joined)
    ages = {"joined": ids, "oldest": min(ids), "newest": max(ids)}
    return {"of_key": key, **ages, "begin": span.start, "stop": span.end}


def _piece(row: sa.Row[Any]) -> Piece:
    span = ByteRange(row.start, row.end)
    return Piece(row.id, row.cell, span, row.name, Stamp(row.etag, row.crc32c))


def _part(row: sa.Row[Any]) -> Part:
    stamp = Stamp(row.etag, row.crc32c)
    return Part(row.cell, row.part_number, row.length, stamp, int(row.through))


def _garbage(row: sa.Row[Any]) -> Garbage:
    return Garbage(row.id, row.name, row.multipart_id)


# ---- inventory -----------------------------------------------------------------------------------


PAGE = 1000
"""Page size, in rows, for reading a table of any length."""


class BucketInventory:
    """Lists all files and objects, for the sweep and for reconciling; `clock` determines ages."""

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
        needed, possible = statements.NEEDED, statements.POSSIBLE
        named = sa.union_all(
            sa.select(needed.c[0].label("name"), sa.literal(1).label("is_needed")),
            sa.select(possible.c[0], sa.literal(0)),
        ).subquery()
        with self._database.snapshot() as connection:
            collation = "C" if connection.dialect.name == "postgresql" else "BINARY"
            query = sa.select(named).order_by(named.c.name.collate(collation), named.c.is_needed)
            for row in connection.execution_options(yield_per=PAGE).execute(query):
                yield row.name, bool(row.is_needed)

    def is_needed(self, name: str) -> bool:
        """Whether an object of this name must be in the bucket."""
        return self._is_among([statements.NEEDED], name)

    def is_known(self, name: str) -> bool:
        """Whether any row refers to an object or a multipart upload with this name."""
        return self._is_among([statements.NEEDED, statements.POSSIBLE], name)

    def _is_among(self, tables: Sequence[Any], name: str) -> bool:
        with self._database.read() as connection:
            return any(
                connection.execute(sa.select(table.c[0]).where(table.c[0] == name).limit(1)).first()
                for table in tables
            )

    def _pages(self, condition: Any) -> Iterator[Any]:
        last = ""
        while True:
            query = sa.select(files.c.key, files.c.active_at).where(condition, files.c.key > last)
            with self._database.read() as connection:
                rows = connection.execute(query.order_by(files.c.key).limit(PAGE)).all()
            yield from rows
            if len(rows) < PAGE:
                return
            last = rows[-1].key
