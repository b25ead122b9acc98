"""Locations of files in a bucket: the rows behind a store that several nodes share.

A chunk runs two or three of these statements, regardless of the file's size. Object names are never
reused: the transaction that replaces or removes a row also records the object to delete.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    and_,
    delete,
    func,
    insert,
    select,
    update,
)
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
from app.db.tables import stored_files as files
from app.db.tables import stored_garbage as garbage
from app.db.tables import stored_pieces as pieces
from app.records import bucket_statements as statements
from app.records.bucket_inventory import BucketInventory

PIECE_LEASE = timedelta(hours=1)
"""An object not stored within this time is garbage. No request waits for this lease to end."""

RETRY_DELAY = timedelta(hours=1)
"""Pause before retrying a deletion that the store refused."""


class _CannotJoin(Exception):
    """Rolls the transaction back."""


class BucketCatalog:
    """Implements the bucket store's `Catalog`; `clock` decides when leases end.

    Nodes must share the clock (`app.db.nodes`). If clocks differ by a lease, work is done twice.
    """

    def __init__(self, database: Database, clock: Clock = utc_now) -> None:
        self.inventory = BucketInventory(database, clock)
        self._database = database
        self._clock = clock

    def reserve(self, key: str, grid: Grid, length: int | None) -> None:
        """Insert the file, or increase its length."""
        values = {"key": key, "cell_bytes": grid.cell_bytes, "length": length}
        values |= {"is_published": False, "active_at": self._clock()}
        with self._database.one_statement() as connection:
            new = self._insert(connection, files).values(values)
            connection.execute(
                new.on_conflict_do_update(
                    index_elements=[files.c.key],
                    set_={"length": new.excluded.length},
                    where=and_(files.c.name.is_(None), files.c.length < new.excluded.length),
                )
            )

    def file(self, key: str) -> StoredFile | None:
        """Returns the row of a file; None if there is none."""
        with self._database.read() as connection:
            row = connection.execute(statements.FILE, {"of_key": key}).first()
        return None if row is None else _file(row)

    def intend_multipart(self, name: str) -> None:
        """Insert a garbage row that is due after a lease; `begin_multipart` deletes it."""
        due_at = self._clock() + PIECE_LEASE
        row = {"name": name, "multipart_id": UNKNOWN_ID, "due_at": due_at}
        with self._database.one_statement() as connection:
            connection.execute(insert(garbage), row)

    def begin_multipart(self, key: str, multipart: Multipart) -> Multipart | None:
        """Store the multipart upload unless another is stored or the intent is due."""
        values = {"multipart": multipart.name, "multipart_number": multipart.id}
        place = {"of_key": key, "now": self._clock()}
        with self._database.write() as connection:
            if connection.execute(statements.NOTE_MULTIPART, {**place, **values}).rowcount:
                connection.execute(statements.FORGET_INTENT, {"multipart": multipart.name})
                return multipart
        found = self.file(key)
        return None if found is None or found.name is not None else found.multipart

    def intend(self, key: str, cell: int, span: ByteRange, name: str) -> int | None:
        """Insert a piece without an ETag, if the file is open."""
        place = {"of_key": key, "in_cell": cell, "begin": span.start, "stop": span.end}
        values = {**place, "object": name, "until": self._clock() + PIECE_LEASE}
        try:
            with self._database.one_statement() as connection:
                found: int | None = connection.execute(statements.INTEND, values).scalar()
        except IntegrityError:  # The file was removed as this ran.
            return None
        return found

    def withdraw(self, piece_id: int, name: str) -> None:
        """Delete the piece; its object becomes garbage once no request may still store it."""
        row = {"name": name, "due_at": self._clock() + PIECE_LEASE}
        with self._database.write() as connection:
            connection.execute(delete(pieces).where(pieces.c.id == piece_id))
            connection.execute(insert(garbage), row)

    def commit(self, piece_id: int, key: str, cell: int, stamp: Stamp) -> PieceTotals | None:
        """Set the piece's ETag if the file is still open."""
        values = {"piece": piece_id, "tag": stamp.etag, "checksum": stamp.crc32c}
        with self._database.one_statement() as connection:
            if connection.execute(statements.COMMIT, values).first() is None:
                return None
            place = {"of_key": key, "in_cell": cell}
            count, length = connection.execute(statements.TOTALS, place).one()
        return PieceTotals(count, int(length))

    def is_joinable(self, key: str, pieces: Sequence[Piece]) -> bool:
        """Whether no other piece, stored or being stored, overlaps these and came between them."""
        with self._database.read() as connection:
            return connection.execute(statements.BETWEEN, _between(key, pieces)).first() is None

    def join(self, piece_id: int, joined: Sequence[Piece], key: str, stamp: Stamp) -> bool:
        """Delete the joined pieces and give the new piece the id of the newest, in one transaction.

        Returns whether it did.
        """
        values = {**_between(key, joined), "until": self._clock() + PIECE_LEASE}
        values |= {"piece": piece_id, "tag": stamp.etag, "checksum": stamp.crc32c}
        try:
            with self._database.write() as connection:
                self._join(connection, values)
        except _CannotJoin:
            return False
        return True

    def _join(self, connection: Connection, values: dict[str, Any]) -> None:
        # With the lock, every piece with a lower id than a new one is visible.
        if connection.execute(statements.LOCKED_OPEN_FILE, values).first() is None:
            raise _CannotJoin
        connection.execute(statements.DISCARD_JOINED, values)
        if connection.execute(statements.DELETE_JOINED, values).rowcount != len(values["joined"]):
            raise _CannotJoin
        if connection.execute(statements.BETWEEN, values).first() is not None:
            raise _CannotJoin
        if connection.execute(statements.REPLACE_JOINED, values).rowcount != 1:
            raise _CannotJoin

    def pieces(self, key: str, cell: int) -> list[Piece]:
        """Stored pieces of a cell, oldest first."""
        with self._database.read() as connection:
            found = connection.execute(statements.PIECES, {"of_key": key, "in_cell": cell})
            return [_piece(row) for row in found]

    def loose(self, key: str) -> list[Piece]:
        """Stored pieces that are newer than their cell's part, if it has one."""
        with self._database.read() as connection:
            return [_piece(row) for row in connection.execute(statements.LOOSE, {"of_key": key})]

    def claim(self, key: str, cell: int, token: str, lease: timedelta) -> Claim | None:
        """Insert the cell, or take over an unclaimed one with the next epoch."""
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
        """Extend the lease if the row still has the claim's token; returns whether it did."""
        values = {**_of(claim), "until": self._clock() + lease}
        with self._database.one_statement() as connection:
            return connection.execute(statements.RENEW, values).rowcount == 1

    def seal(self, claim: Claim, length: int, stamp: Stamp) -> bool:
        """Store the cell's part if the row still has the claim's token; returns whether it did."""
        part = {"number": claim.number, "bytes": length, "last_piece": claim.through}
        values = {**part, "tag": stamp.etag, "checksum": stamp.crc32c}
        with self._database.one_statement() as connection:
            return connection.execute(statements.SEAL, {**_of(claim), **values}).rowcount == 1

    def release(self, claim: Claim) -> None:
        """Clear the token."""
        with self._database.one_statement() as connection:
            connection.execute(statements.RELEASE, _of(claim))

    def offer(self, key: str, cells: Collection[int], *, seconds: float) -> set[int]:
        """Insert the missing cells, unclaimed; returns those that it inserted.

        If there are any, the file counts as active until `seconds` from now.
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
        """Insert cells with their parts, or replace the parts of existing cells."""
        now = self._clock()
        try:
            with self._database.write() as connection:
                placing = statements.placing(connection.dialect.name)
                rows = [
                    connection.execute(placing, _placed(key, part, now)).first()
                    # A fixed order prevents a deadlock between two nodes.
                    for part in sorted(parts, key=lambda part: part.cell)
                ]
                return None not in rows
        except IntegrityError:  # The file was removed as this ran.
            return False

    def parts(self, key: str) -> list[Part]:
        """The parts of cells that have an ETag, in order."""
        with self._database.read() as connection:
            return [_part(row) for row in connection.execute(statements.PARTS, {"of_key": key})]

    def part(self, key: str, cell: int) -> Part | None:
        """The part of a cell, if it has an ETag."""
        with self._database.read() as connection:
            row = connection.execute(statements.PART, {"of_key": key, "in_cell": cell}).first()
        return None if row is None else _part(row)

    def add_whole(self, wholes: Sequence[tuple[str, str, int]]) -> None:
        """Insert files with their object names, or add the names to reserved files."""
        common = {"is_published": False, "active_at": self._clock()}
        rows = [
            {"key": key, "name": name, "length": length, "cell_bytes": 0, **common}
            for key, name, length in sorted(wholes)
        ]
        with self._database.one_statement() as connection:
            new = self._insert(connection, files)
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
        """Store the object's name; all other objects of the file become garbage."""
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
        """Mark files as published; returns how many, including those already published."""
        change = update(files).where(files.c.key.in_(keys), files.c.name.is_not(None))
        with self._database.one_statement() as connection:
            return connection.execute(change.values(is_published=True)).rowcount

    def remove(self, key: str, *, also_published: bool) -> list[Garbage]:
        """Delete the rows of a file; returns the garbage this leaves that is due now."""
        now = self._clock()
        values = {"of_key": key, "kept": "", "now": now, "lease_end": now + PIECE_LEASE}
        with self._database.write() as connection:
            # The lock keeps others from adding a piece or claim until the commit.
            found = connection.execute(statements.FILE.with_for_update(), values).first()
            if found is None or (found.is_published and not also_published):
                return []
            before = connection.execute(select(func.coalesce(func.max(garbage.c.id), 0))).scalar()
            values["kept"] = found.name or ""
            for statement in statements.REMOVE:
                connection.execute(statement, values)
            query = select(garbage).where(garbage.c.id > before, garbage.c.due_at <= now)
            own = query.where(garbage.c.name.contains(key)).order_by(garbage.c.id)
            return [_garbage(row) for row in connection.execute(own)]

    def remove_unused(self, key: str) -> None:
        """Delete the file's row unless another row refers to it."""
        try:
            with self._database.one_statement() as connection:
                connection.execute(statements.DELETE_UNUSED, {"of_key": key})
        except IntegrityError:  # Another transaction has just added such a row.
            return

    def discard(self, name: str, multipart_id: str | None = None) -> None:
        """Insert a garbage row that is due now."""
        row = {"name": name, "multipart_id": multipart_id, "due_at": self._clock()}
        with self._database.one_statement() as connection:
            connection.execute(insert(garbage), row)

    def garbage(self, limit: int) -> list[Garbage]:
        """Turn pieces with an expired lease into garbage; returns the oldest due garbage."""
        now = {"now": self._clock()}
        late = select(pieces.c.name, statements.NOW).where(statements.IS_LATE)
        due = select(garbage).where(garbage.c.due_at <= now["now"]).order_by(garbage.c.id)
        with self._database.write() as connection:
            # Lock first: a piece committed right now either stays, or its commit finds no row.
            found = connection.execute(
                select(pieces.c.id)
                .where(statements.IS_LATE)
                .limit(limit)
                .with_for_update(skip_locked=True),
                now,
            )
            gone = [row.id for row in found]
            connection.execute(
                insert(garbage).from_select(["name", "due_at"], late.where(pieces.c.id.in_(gone))),
                now,
            )
            connection.execute(delete(pieces).where(pieces.c.id.in_(gone)))
            return [_garbage(row) for row in connection.execute(due.limit(limit))]

    def collected(self, removed: Collection[Garbage], failed: Collection[Garbage] = ()) -> None:
        """Delete the rows of removed garbage; postpone those that could not be removed."""
        gone, kept = (garbage.c.id.in_([each.id for each in some]) for some in (removed, failed))
        with self._database.write() as connection:
            connection.execute(delete(garbage).where(gone))
            if failed:
                due_at = self._clock() + RETRY_DELAY
                connection.execute(update(garbage).where(kept).values(due_at=due_at))

    def mend(self, key: str, part: Part, stamp: Stamp | None) -> None:
        """Replace the stamp of a part if the row still has the old stamp."""
        new = Stamp("", "") if stamp is None else stamp
        values = {"of_key": key, "in_cell": part.cell, "number": part.number}
        values |= {"old_tag": part.stamp.etag, "tag": new.etag or None, "checksum": new.crc32c}
        with self._database.one_statement() as connection:
            connection.execute(statements.MEND, values)

    def _insert(self, connection: Connection, table: Any) -> Any:
        """Returns an INSERT with ON CONFLICT; SQLAlchemy has a separate class for each database."""
        return statements.upsert_into(table, connection.dialect.name)


def _of(claim: Claim) -> dict[str, object]:
    return {"of_key": claim.key, "in_cell": claim.cell, "claimed_by": claim.token}


def _between(key: str, joined: Sequence[Piece]) -> dict[str, Any]:
    """Parameters of the statements that join pieces."""
    ids, span = [piece.id for piece in joined], span_of(joined)
    ages = {"joined": ids, "oldest": min(ids), "newest": max(ids)}
    return {"of_key": key, **ages, "begin": span.start, "stop": span.end}


def _placed(key: str, part: Part, now: datetime) -> dict[str, object]:
    place = {"of_key": key, "in_cell": part.cell, "number": part.number, "now": now}
    return {**place, "bytes": part.length, "tag": part.stamp.etag, "checksum": part.stamp.crc32c}


def _file(row: Row[Any]) -> StoredFile:
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


def _piece(row: Row[Any]) -> Piece:
    span = ByteRange(row.start, row.end)
    return Piece(row.id, row.cell, span, row.name, Stamp(row.etag, row.crc32c))


def _part(row: Row[Any]) -> Part:
    stamp = Stamp(row.etag, row.crc32c)
    return Part(row.cell, row.part_number, row.length, stamp, int(row.through))


def _garbage(row: Row[Any]) -> Garbage:
    return Garbage(row.id, row.name, row.multipart_id)
