"""Where files lie in a bucket: the rows behind a store that several nodes share.

A chunk runs two or three of these statements, whatever the size of its file. Names of objects are
never used twice, so a row that is replaced or removed leaves a name to be removed from the bucket,
in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from app.domain.cells import (
    Claim,
    Garbage,
    Grid,
    Multipart,
    Part,
    Piece,
    Stamp,
    StoredFile,
    part_number,
)
from app.domain.ranges import ByteRange
from app.records.engine import Database
from app.records.tables import Instant
from app.records.tables import stored_cells as cells
from app.records.tables import stored_files as files
from app.records.tables import stored_garbage as garbage
from app.records.tables import stored_pieces as pieces

PIECE_LEASE = timedelta(hours=1)
"""An object that was not stored by then is garbage. Nobody waits for this lease to end."""

PAGE = 1000
"""Rows read at once from a table of any length."""

_KEY = bindparam("of_key")
_NOW = bindparam("now", type_=Instant)
_IS_OPEN = and_(files.c.key == _KEY, files.c.name.is_(None))

_FILE = select(files).where(files.c.key == _KEY)

_NOTE_MULTIPART = (
    update(files)
    .where(_IS_OPEN, files.c.multipart_id.is_(None))
    .values(multipart_name=bindparam("multipart"), multipart_id=bindparam("multipart_number"))
)

_INTEND = (
    insert(pieces)
    .from_select(
        ["key", "cell", "start", "end", "name", "leased_until"],
        select(
            files.c.key,
            bindparam("in_cell", type_=cells.c.cell.type),
            bindparam("begin", type_=pieces.c.start.type),
            bindparam("stop", type_=pieces.c.end.type),
            bindparam("object", type_=pieces.c.name.type),
            bindparam("until", type_=Instant),
        ).where(_IS_OPEN),
    )
    .returning(pieces.c.id)
)

_COMMIT = (
    update(pieces)
    .where(pieces.c.id == bindparam("piece"), pieces.c.etag.is_(None))
    .values(etag=bindparam("tag"), crc32c=bindparam("checksum"))
    .returning(pieces.c.end - pieces.c.start)
)

_OF_CELL = and_(pieces.c.key == _KEY, pieces.c.cell == bindparam("in_cell"))
_BYTES = select(func.coalesce(func.sum(pieces.c.end - pieces.c.start), 0)).where(
    _OF_CELL, pieces.c.etag.is_not(None)
)

_PIECES = select(pieces).where(_OF_CELL, pieces.c.etag.is_not(None)).order_by(pieces.c.id)

_LOOSE = (
    select(pieces)
    .join_from(
        pieces, cells, and_(cells.c.key == pieces.c.key, cells.c.cell == pieces.c.cell), isouter=True
    )
    .where(pieces.c.key == _KEY, pieces.c.etag.is_not(None))
    .where(or_(cells.c.etag.is_(None), pieces.c.id > cells.c.through))
    .order_by(pieces.c.cell, pieces.c.id)
)

_LAST_PIECE = select(func.coalesce(func.max(pieces.c.id), 0)).where(_OF_CELL)

_NEW_CLAIM = select(
    files.c.key,
    bindparam("in_cell", type_=cells.c.cell.type),
    literal_column("0"),
    bindparam("claimed_by", type_=cells.c.token.type),
    bindparam("until", type_=Instant),
).where(_IS_OPEN)

_OF_CLAIM = and_(
    cells.c.key == _KEY,
    cells.c.cell == bindparam("in_cell"),
    cells.c.token == bindparam("claimed_by"),
)

_SEAL = (
    update(cells)
    .where(_OF_CLAIM)
    .values(
        token=None,
        part_number=bindparam("number"),
        length=bindparam("bytes"),
        etag=bindparam("tag"),
        crc32c=bindparam("checksum"),
        through=bindparam("last_piece"),
    )
)

_RELEASE = update(cells).where(_OF_CLAIM).values(token=None)

_PARTS = (
    select(cells).where(cells.c.key == _KEY, cells.c.etag.is_not(None)).order_by(cells.c.cell)
)

_FINISH = (
    update(files)
    .where(_IS_OPEN)
    .values(
        name=bindparam("object"),
        length=bindparam("bytes"),
        is_published=bindparam("published"),
    )
)

_LATER = case((pieces.c.etag.is_(None), pieces.c.leased_until), else_=_NOW)
"""When the object of a piece may be removed: it may still be on its way."""

_DISCARD_PIECES = insert(garbage).from_select(
    ["name", "due_at"],
    select(pieces.c.name, _LATER).where(pieces.c.key == _KEY, pieces.c.name != bindparam("kept")),
)

_DISCARD_MULTIPART = insert(garbage).from_select(
    ["name", "multipart_id", "due_at"],
    select(files.c.multipart_name, files.c.multipart_id, _NOW).where(
        files.c.key == _KEY,
        files.c.multipart_id.is_not(None),
        files.c.multipart_name != bindparam("kept"),
    ),
)

_DISCARD_OBJECT = insert(garbage).from_select(
    ["name", "due_at"],
    select(files.c.name, _NOW).where(files.c.key == _KEY, files.c.name.is_not(None)),
)

_DELETE_PIECES = delete(pieces).where(pieces.c.key == _KEY)
_DELETE_CELLS = delete(cells).where(cells.c.key == _KEY)
_DELETE_FILE = delete(files).where(files.c.key == _KEY)
_DELETE_UNUSED = _DELETE_FILE.where(
    files.c.name.is_(None),
    ~select(pieces.c.id).where(pieces.c.key == _KEY).exists(),
    ~select(cells.c.cell).where(cells.c.key == _KEY).exists(),
)

_IS_LATE = and_(pieces.c.etag.is_(None), pieces.c.leased_until < _NOW)

Clock = Callable[[], datetime]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class BucketCatalog:
    """`Catalog` of the store in a bucket; `clock` is the machine's, which leases are held against.

    Clocks of nodes may differ by less than a lease: beyond that, work is done twice.
    """

    def __init__(self, database: Database, clock: Clock = _utc_now) -> None:
        self._database = database
        self._clock = clock

    def reserve(self, key: str, grid: Grid, length: int | None) -> None:
        """Insert the file, or let its length grow."""
        values = {"key": key, "cell_bytes": grid.cell_bytes, "length": length}
        values |= {"is_published": False, "active_at": self._clock()}
        with self._one_statement() as connection:
            new = self._insert(connection, files).values(values)
            connection.execute(
                new.on_conflict_do_update(
                    index_elements=[files.c.key],
                    set_={"length": new.excluded.length},
                    where=and_(files.c.name.is_(None), files.c.length < new.excluded.length),
                )
            )

    def file(self, key: str) -> StoredFile | None:
        """The row of a file."""
        with self._database.read() as connection:
            row = connection.execute(_FILE, {"of_key": key}).first()
        return None if row is None else _file(row)

    def begin_multipart(self, key: str, multipart: Multipart) -> Multipart | None:
        """Note it unless another was."""
        values = {"multipart": multipart.name, "multipart_number": multipart.id}
        with self._one_statement() as connection:
            if connection.execute(_NOTE_MULTIPART, {"of_key": key, **values}).rowcount:
                return multipart
        found = self.file(key)
        return None if found is None or found.name is not None else found.multipart

    def intend(self, key: str, cell: int, span: ByteRange, name: str) -> int | None:
        """Insert a piece without an ETag, if the file is open."""
        place = {"of_key": key, "in_cell": cell, "begin": span.start, "stop": span.end}
        values = {**place, "object": name, "until": self._clock() + PIECE_LEASE}
        try:
            with self._one_statement() as connection:
                found: int | None = connection.execute(_INTEND, values).scalar()
        except IntegrityError:  # The file was removed as this ran.
            return None
        return found

    def commit(self, piece_id: int, key: str, cell: int, stamp: Stamp) -> int | None:
        """Give the piece its ETag."""
        values = {"piece": piece_id, "tag": stamp.etag, "checksum": stamp.crc32c}
        with self._one_statement() as connection:
            if connection.execute(_COMMIT, values).first() is None:
                return None
            total: int = connection.execute(_BYTES, {"of_key": key, "in_cell": cell}).scalar_one()
        return int(total)

    def pieces(self, key: str, cell: int) -> list[Piece]:
        """Stored pieces of a cell, oldest first."""
        with self._database.read() as connection:
            found = connection.execute(_PIECES, {"of_key": key, "in_cell": cell})
            return [_piece(row) for row in found]

    def loose(self, key: str) -> list[Piece]:
        """Stored pieces that came after the part of their cell, if there is one."""
        with self._database.read() as connection:
            return [_piece(row) for row in connection.execute(_LOOSE, {"of_key": key})]

    def claim(self, key: str, cell: int, token: str, lease: timedelta) -> Claim | None:
        """Insert the cell, or take it over with the next epoch once nobody has it."""
        now = self._clock()
        values = {"of_key": key, "in_cell": cell, "claimed_by": token, "until": now + lease}
        try:
            with self._one_statement() as connection:
                row = connection.execute(self._claim(connection), {**values, "now": now}).first()
        except IntegrityError:  # The file was removed as this ran.
            return None
        if row is None:
            return None
        epoch, through = row
        return Claim(key, cell, token, part_number(cell, epoch), int(through))

    def seal(self, claim: Claim, length: int, stamp: Stamp) -> bool:
        """Give the cell its part, if the token is still there."""
        values = {"number": claim.number, "bytes": length, "last_piece": claim.through}
        values |= {"tag": stamp.etag, "checksum": stamp.crc32c}
        with self._one_statement() as connection:
            return connection.execute(_SEAL, {**_of(claim), **values}).rowcount == 1

    def release(self, claim: Claim) -> None:
        """Take the token away."""
        with self._one_statement() as connection:
            connection.execute(_RELEASE, _of(claim))

    def parts(self, key: str) -> list[Part]:
        """Cells with an ETag, in order."""
        with self._database.read() as connection:
            return [_part(row) for row in connection.execute(_PARTS, {"of_key": key})]

    def add_whole(self, wholes: Sequence[tuple[str, str, int]]) -> None:
        """Insert files with their names, or replace what was reserved for them."""
        common = {"is_published": False, "active_at": self._clock()}
        rows = [
            {"key": key, "name": name, "length": length, "cell_bytes": 0, **common}
            for key, name, length in sorted(wholes)
        ]
        with self._one_statement() as connection:
            new = self._insert(connection, files)
            known = {name: new.excluded[name] for name in ("name", "length")}
            connection.execute(
                new.on_conflict_do_update(index_elements=[files.c.key], set_=known), rows
            )

    def finish(self, key: str, name: str, length: int, *, is_published: bool) -> bool:
        """Name the object; pieces that are not that object become garbage."""
        values = {"object": name, "bytes": length, "published": is_published}
        with self._database.write() as connection:
            if not connection.execute(_FINISH, {"of_key": key, **values}).rowcount:
                return False
            kept = {"of_key": key, "kept": name, "now": self._clock()}
            connection.execute(_DISCARD_MULTIPART, kept)
            connection.execute(_DISCARD_PIECES, kept)
            connection.execute(_DELETE_PIECES, kept)
            connection.execute(_DELETE_CELLS, kept)
        return True

    def publish(self, keys: Sequence[str]) -> int:
        """Mark them; those that were count too."""
        change = update(files).where(files.c.key.in_(keys), files.c.name.is_not(None))
        with self._one_statement() as connection:
            return connection.execute(change.values(is_published=True)).rowcount

    def remove(self, key: str, *, also_published: bool) -> list[Garbage]:
        """Delete the rows of a file; the garbage that this makes, as far as it is due."""
        now = self._clock()
        values = {"of_key": key, "kept": "", "now": now}
        with self._database.write() as connection:
            # Locked, so that no piece or claim is added meanwhile.
            found = connection.execute(_FILE.with_for_update(), values).first()
            if found is None or (found.is_published and not also_published):
                return []
            before = connection.execute(select(func.coalesce(func.max(garbage.c.id), 0))).scalar()
            values["kept"] = found.name or ""
            for statement in (_DISCARD_MULTIPART, _DISCARD_OBJECT, _DISCARD_PIECES):
                connection.execute(statement, values)
            for statement in (_DELETE_PIECES, _DELETE_CELLS, _DELETE_FILE):
                connection.execute(statement, values)
            query = select(garbage).where(garbage.c.id > before, garbage.c.due_at <= now)
            own = query.where(garbage.c.name.contains(key)).order_by(garbage.c.id)
            return [_garbage(row) for row in connection.execute(own)]

    def remove_unused(self, key: str) -> None:
        """Delete the file, unless something refers to it."""
        try:
            with self._one_statement() as connection:
                connection.execute(_DELETE_UNUSED, {"of_key": key})
        except IntegrityError:  # Something came as this ran.
            return

    def discard(self, name: str, multipart_id: str | None = None) -> None:
        """Insert garbage that is due now."""
        row = {"name": name, "multipart_id": multipart_id, "due_at": self._clock()}
        with self._one_statement() as connection:
            connection.execute(insert(garbage), row)

    def garbage(self, limit: int) -> list[Garbage]:
        """The oldest garbage that is due, after pieces whose lease has ended joined it."""
        now = {"now": self._clock()}
        late = select(pieces.c.name, _NOW).where(_IS_LATE)
        due = select(garbage).where(garbage.c.due_at <= now["now"]).order_by(garbage.c.id)
        with self._database.write() as connection:
            # Locked first: one that is stored this moment stays, or is found too late.
            found = connection.execute(
                select(pieces.c.id).where(_IS_LATE).limit(limit).with_for_update(skip_locked=True),
                now,
            )
            gone = [row.id for row in found]
            connection.execute(
                insert(garbage).from_select(["name", "due_at"], late.where(pieces.c.id.in_(gone))),
                now,
            )
            connection.execute(delete(pieces).where(pieces.c.id.in_(gone)))
            return [_garbage(row) for row in connection.execute(due.limit(limit))]

    def collected(self, removed: Sequence[Garbage]) -> None:
        """Delete the rows."""
        with self._one_statement() as connection:
            connection.execute(
                delete(garbage).where(garbage.c.id.in_([each.id for each in removed]))
            )

    def staged(self) -> Iterator[tuple[str, float]]:
        """Unpublished files with their ages in seconds."""
        now = self._clock()
        for row in self._pages(files.c.is_published.is_(False)):
            yield row.key, (now - row.active_at).total_seconds()

    def published(self) -> Iterator[str]:
        """Keys of published files."""
        return (row.key for row in self._pages(files.c.is_published))

    def shift_activity(self, later: timedelta) -> None:
        """Move the times, but not beyond now."""
        now, active_at = self._clock(), files.c.active_at
        shifted = active_at + literal(later // timedelta(microseconds=1))
        latest = case((active_at > now - later, literal(now, Instant)), else_=shifted)
        change = update(files).where(files.c.is_published.is_(False)).values(active_at=latest)
        with self._one_statement() as connection:
            connection.execute(change)

    def names(self) -> Iterator[str]:
        """Names of objects, of pieces, of multipart uploads and of garbage, in order."""
        all_names = union_all(
            select(files.c.name).where(files.c.name.is_not(None)),
            select(files.c.multipart_name).where(files.c.multipart_name.is_not(None)),
            select(pieces.c.name),
            select(garbage.c.name),
        ).subquery()
        with self._database.snapshot() as connection:
            streamed = connection.execution_options(yield_per=PAGE)
            yield from streamed.execute(select(all_names.c[0])).scalars()

    def _pages(self, condition: Any) -> Iterator[Row[Any]]:
        last = ""
        while True:
            query = select(files.c.key, files.c.active_at).where(condition, files.c.key > last)
            with self._database.read() as connection:
                rows = connection.execute(query.order_by(files.c.key).limit(PAGE)).all()
            yield from rows
            if len(rows) < PAGE:
                return
            last = rows[-1].key

    def _one_statement(self) -> AbstractContextManager[Connection]:
        """A connection for a single change: on a server without round trips to begin and end."""
        return self._database.read() if self._database.is_remote else self._database.write()

    def _insert(self, connection: Connection, table: Any) -> Any:
        """An INSERT that knows ON CONFLICT; SQLAlchemy has a class of it for each database."""
        return _DIALECTS[connection.dialect.name].insert(table)

    def _claim(self, connection: Connection) -> Any:
        return _CLAIMS[connection.dialect.name]


_DIALECTS: Mapping[str, Any] = {"sqlite": sqlite, "postgresql": postgresql}


def _claim_of(dialect: Any) -> Any:
    """A claim where there was none, or one epoch after another whose lease has ended."""
    new = dialect.insert(cells).from_select(
        ["key", "cell", "epoch", "token", "leased_until"], _NEW_CLAIM
    )
    is_free = or_(cells.c.token.is_(None), cells.c.leased_until < _NOW)
    taken = {
        "epoch": cells.c.epoch + 1,
        "token": new.excluded.token,
        "leased_until": new.excluded.leased_until,
    }
    upsert = new.on_conflict_do_update(
        index_elements=[cells.c.key, cells.c.cell], set_=taken, where=is_free
    )
    return upsert.returning(cells.c.epoch, _LAST_PIECE.scalar_subquery())


_CLAIMS = {name: _claim_of(dialect) for name, dialect in _DIALECTS.items()}


def _of(claim: Claim) -> dict[str, object]:
    return {"of_key": claim.key, "in_cell": claim.cell, "claimed_by": claim.token}


def _file(row: Row[Any]) -> StoredFile:
    is_begun = row.multipart_id is not None
    return StoredFile(
        key=row.key,
        grid=Grid(row.cell_bytes),
        length=row.length,
        name=row.name,
        is_published=row.is_published,
        multipart=Multipart(row.multipart_name, row.multipart_id) if is_begun else None,
    )


def _piece(row: Row[Any]) -> Piece:
    span = ByteRange(row.start, row.end)
    return Piece(row.id, row.cell, span, row.name, Stamp(row.etag, row.crc32c))


def _part(row: Row[Any]) -> Part:
    stamp = Stamp(row.etag, row.crc32c)
    return Part(row.cell, row.part_number, row.length, stamp, int(row.through))


def _garbage(row: Row[Any]) -> Garbage:
    return Garbage(row.id, row.name, row.multipart_id)
