"""The statements of a bucket's catalog, built once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

from sqlalchemy import (
    BindParameter,
    Executable,
    Table,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    union_all,
    update,
)

from app.core.cells import UNKNOWN_ID
from app.db.tables import Instant
from app.db.tables import stored_cells as cells
from app.db.tables import stored_files as files
from app.db.tables import stored_garbage as garbage
from app.db.tables import stored_pieces as pieces

_KEY: BindParameter[Any] = bindparam("of_key")
_CELL: BindParameter[Any] = bindparam("in_cell", type_=cells.c.cell.type)
_UNTIL = bindparam("until", type_=Instant)
NOW = bindparam("now", type_=Instant)
_IS_OPEN = and_(files.c.key == _KEY, files.c.name.is_(None))

FILE = select(files).where(files.c.key == _KEY)
KEEP = update(files).where(_IS_OPEN).values(active_at=_UNTIL)
LOCKED_OPEN_FILE = select(files.c.key).where(_IS_OPEN).with_for_update()

_OF_INTENT = and_(
    garbage.c.name == bindparam("multipart", type_=garbage.c.name.type),
    garbage.c.multipart_id == UNKNOWN_ID,
)
FORGET_INTENT = delete(garbage).where(_OF_INTENT)

NOTE_MULTIPART = (
    update(files)
    .where(_IS_OPEN, files.c.multipart_id.is_(None))
    # Once the intent is due, a sweep may have read it and may abort the multipart upload.
    .where(select(garbage.c.id).where(_OF_INTENT, garbage.c.due_at > NOW).exists())
    .values(multipart_name=bindparam("multipart"), multipart_id=bindparam("multipart_number"))
)

INTEND = (
    insert(pieces)
    .from_select(
        ["key", "cell", "start", "end", "name", "leased_until"],
        select(
            files.c.key,
            _CELL,
            bindparam("begin", type_=pieces.c.start.type),
            bindparam("stop", type_=pieces.c.end.type),
            bindparam("object", type_=pieces.c.name.type),
            _UNTIL,
        ).where(_IS_OPEN),
    )
    .returning(pieces.c.id)
)

COMMIT = (
    update(pieces)
    .where(pieces.c.id == bindparam("piece"), pieces.c.etag.is_(None))
    .where(select(files.c.key).where(files.c.key == pieces.c.key, files.c.name.is_(None)).exists())
    .values(etag=bindparam("tag"), crc32c=bindparam("checksum"))
    .returning(pieces.c.end - pieces.c.start)
)

_JOINED = and_(pieces.c.key == _KEY, pieces.c.id.in_(bindparam("joined", expanding=True)))
DISCARD_JOINED = insert(garbage).from_select(
    ["name", "due_at"],
    select(pieces.c.name, _UNTIL).where(_JOINED, pieces.c.etag.is_not(None)),
)
DELETE_JOINED = delete(pieces).where(_JOINED)

BETWEEN = (
    select(pieces.c.id)
    .where(pieces.c.key == _KEY, pieces.c.id > bindparam("oldest"))
    .where(pieces.c.id < bindparam("newest"))
    .where(pieces.c.start < bindparam("stop"), pieces.c.end > bindparam("begin"))
    .where(pieces.c.id.not_in(bindparam("joined", expanding=True)))
    .limit(1)
)
"""Selects other pieces, stored or being stored, that overlap the joined ones and came between."""

REPLACE_JOINED = (
    update(pieces)
    .where(pieces.c.id == bindparam("piece"), pieces.c.etag.is_(None))
    .values(id=bindparam("newest"), etag=bindparam("tag"), crc32c=bindparam("checksum"))
)

_OF_CELL = and_(pieces.c.key == _KEY, pieces.c.cell == _CELL)
TOTALS = select(
    func.count().label("count"), func.coalesce(func.sum(pieces.c.end - pieces.c.start), 0)
).where(_OF_CELL, pieces.c.etag.is_not(None))

PIECES = select(pieces).where(_OF_CELL, pieces.c.etag.is_not(None)).order_by(pieces.c.id)

LOOSE = (
    select(pieces)
    .join_from(
        pieces,
        cells,
        and_(cells.c.key == pieces.c.key, cells.c.cell == pieces.c.cell),
        isouter=True,
    )
    .where(pieces.c.key == _KEY, pieces.c.etag.is_not(None))
    .where(or_(cells.c.etag.is_(None), pieces.c.id > cells.c.through))
    .order_by(pieces.c.cell, pieces.c.id)
)

_LAST_PIECE = select(func.coalesce(func.max(pieces.c.id), 0)).where(_OF_CELL)

_NEW_CLAIM = select(
    files.c.key,
    _CELL,
    literal_column("0"),
    bindparam("claimed_by", type_=cells.c.token.type),
    _UNTIL,
).where(_IS_OPEN)

_OFFERED = select(files.c.key, _CELL, literal_column("0"), NOW).where(_IS_OPEN)

_OF_CLAIM = and_(
    cells.c.key == _KEY,
    cells.c.cell == _CELL,
    cells.c.token == bindparam("claimed_by"),
)

SEAL = (
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

_PLACED = select(
    files.c.key,
    _CELL,
    literal_column("0"),
    NOW,
    bindparam("number", type_=cells.c.part_number.type),
    bindparam("bytes", type_=cells.c.length.type),
    bindparam("tag", type_=cells.c.etag.type),
    bindparam("checksum", type_=cells.c.crc32c.type),
    _LAST_PIECE.scalar_subquery(),
).where(_IS_OPEN)

RENEW = update(cells).where(_OF_CLAIM).values(leased_until=_UNTIL)

RELEASE = update(cells).where(_OF_CLAIM).values(token=None)

PARTS = select(cells).where(cells.c.key == _KEY, cells.c.etag.is_not(None)).order_by(cells.c.cell)

PART = PARTS.where(cells.c.cell == _CELL)

FINISH = (
    update(files)
    .where(_IS_OPEN)
    .values(
        name=bindparam("object"),
        length=bindparam("bytes"),
        is_published=bindparam("published"),
        crc32c=bindparam("checksum"),
    )
)

_LATER = case((pieces.c.etag.is_(None), pieces.c.leased_until), else_=NOW)
"""When a piece's object may be removed: the request that stores it may still be running."""

DISCARD_PIECES = insert(garbage).from_select(
    ["name", "due_at"],
    select(pieces.c.name, _LATER).where(pieces.c.key == _KEY, pieces.c.name != bindparam("kept")),
)

DISCARD_MULTIPART = insert(garbage).from_select(
    ["name", "multipart_id", "due_at"],
    select(files.c.multipart_name, files.c.multipart_id, NOW).where(
        files.c.key == _KEY,
        files.c.multipart_id.is_not(None),
        files.c.multipart_name != bindparam("kept"),
    ),
)

_DISCARD_OBJECT = insert(garbage).from_select(
    ["name", "due_at"],
    select(files.c.name, NOW).where(files.c.key == _KEY, files.c.name.is_not(None)),
)

_DISCARD_AGAIN = insert(garbage).from_select(
    ["name", "due_at"],
    select(files.c.name, bindparam("lease_end", type_=Instant)).where(
        files.c.key == _KEY, files.c.name.is_not(None), files.c.is_published.is_(False)
    ),
)
"""A file received whole gets its row before its object, which may be stored after this runs."""

DELETE_PIECES = delete(pieces).where(pieces.c.key == _KEY)
DELETE_CELLS = delete(cells).where(cells.c.key == _KEY)
_DELETE_FILE = delete(files).where(files.c.key == _KEY)
REMOVE: Sequence[Executable] = (
    DISCARD_MULTIPART,
    _DISCARD_OBJECT,
    _DISCARD_AGAIN,
    DISCARD_PIECES,
    DELETE_PIECES,
    DELETE_CELLS,
    _DELETE_FILE,
)
"""Delete a file and all its rows; its object names become garbage, except `kept`."""

DELETE_UNUSED = _DELETE_FILE.where(
    files.c.name.is_(None),
    files.c.multipart_id.is_(None),  # Otherwise a client may be storing cells in the bucket.
    ~select(pieces.c.id).where(pieces.c.key == _KEY).exists(),
    ~select(cells.c.cell).where(cells.c.key == _KEY).exists(),
)

IS_LATE = and_(pieces.c.etag.is_(None), pieces.c.leased_until < NOW)


def upsert_into(table: Table, dialect: str) -> Any:
    """Returns SQLAlchemy's `Insert` for "sqlite" or "postgresql"; importing both takes 0.04 s."""
    return import_module(f"sqlalchemy.dialects.{dialect}").insert(table)


@cache
def claim(dialect: str) -> Any:
    """Insert a first claim, or take over an expired claim with the next epoch."""
    new = upsert_into(cells, dialect).from_select(
        ["key", "cell", "epoch", "token", "leased_until"], _NEW_CLAIM
    )
    is_free = or_(cells.c.token.is_(None), cells.c.leased_until < NOW)
    taken = {
        "epoch": cells.c.epoch + 1,
        "token": new.excluded.token,
        "leased_until": new.excluded.leased_until,
    }
    upsert = new.on_conflict_do_update(
        index_elements=[cells.c.key, cells.c.cell], set_=taken, where=is_free
    )
    return upsert.returning(cells.c.epoch, _LAST_PIECE.scalar_subquery())


@cache
def placing(dialect: str) -> Any:
    """Set the part of a cell, replacing an earlier one; keeps any claim."""
    part = ("part_number", "length", "etag", "crc32c", "through")
    new = upsert_into(cells, dialect).from_select(
        ["key", "cell", "epoch", "leased_until", *part], _PLACED
    )
    upsert = new.on_conflict_do_update(
        index_elements=[cells.c.key, cells.c.cell], set_={name: new.excluded[name] for name in part}
    )
    return upsert.returning(cells.c.cell)


@cache
def offer(dialect: str) -> Any:
    """Insert a cell unless it already has a row."""
    new = upsert_into(cells, dialect).from_select(
        ["key", "cell", "epoch", "leased_until"], _OFFERED
    )
    return new.on_conflict_do_nothing().returning(cells.c.cell)


NEEDED = union_all(
    select(files.c.name).where(files.c.is_published),
    select(pieces.c.name).where(pieces.c.etag.is_not(None)),
).subquery()
"""Names of objects that must be in the bucket."""

POSSIBLE = union_all(
    select(files.c.name).where(files.c.name.is_not(None), files.c.is_published.is_(False)),
    select(files.c.multipart_name).where(
        files.c.multipart_name.is_not(None), files.c.multipart_name.is_distinct_from(files.c.name)
    ),
    select(pieces.c.name).where(pieces.c.etag.is_(None)),
    select(garbage.c.name),
).subquery()
"""Names of objects that are being stored or are to be removed."""

MEND = (
    update(cells)
    .where(cells.c.key == _KEY, cells.c.cell == _CELL)
    .where(cells.c.part_number == bindparam("number"), cells.c.etag == bindparam("old_tag"))
    .values(etag=bindparam("tag"), crc32c=bindparam("checksum"))
)
