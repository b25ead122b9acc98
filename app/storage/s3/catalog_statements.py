"""The statements of a bucket's catalog, built once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from app.core.cells import UNKNOWN_ID
from app.db.sql import upsert_into
from app.db.tables import Instant
from app.db.tables import stored_cells as cells
from app.db.tables import stored_files as files
from app.db.tables import stored_garbage as garbage
from app.db.tables import stored_pieces as pieces

_KEY: sa.BindParameter[Any] = sa.bindparam("of_key")
_CELL: sa.BindParameter[Any] = sa.bindparam("in_cell", type_=cells.c.cell.type)
_UNTIL = sa.bindparam("until", type_=Instant)
NOW = sa.bindparam("now", type_=Instant)
_IS_OPEN = sa.and_(files.c.key == _KEY, files.c.name.is_(None))

FILE = sa.select(files).where(files.c.key == _KEY)
KEEP = sa.update(files).where(_IS_OPEN).values(active_at=_UNTIL)
LOCKED_OPEN_FILE = sa.select(files.c.key).where(_IS_OPEN).with_for_update()

_OF_INTENT = sa.and_(
    garbage.c.name == sa.bindparam("multipart", type_=garbage.c.name.type),
    garbage.c.multipart_id == UNKNOWN_ID,
)
FORGET_INTENT = sa.delete(garbage).where(_OF_INTENT)

NOTE_MULTIPART = (
    sa.update(files)
    .where(_IS_OPEN, files.c.multipart_id.is_(None))
    # Once the intent is due, a sweep may have read it and may abort the multipart upload.
    .where(sa.select(garbage.c.id).where(_OF_INTENT, garbage.c.due_at > NOW).exists())
    .values(multipart_name=sa.bindparam("multipart"), multipart_id=sa.bindparam("multipart_number"))
)

INTEND = (
    sa.insert(pieces)
    .from_select(
        ["key", "cell", "start", "end", "name", "leased_until"],
        sa.select(
            files.c.key,
            _CELL,
            sa.bindparam("begin", type_=pieces.c.start.type),
            sa.bindparam("stop", type_=pieces.c.end.type),
            sa.bindparam("object", type_=pieces.c.name.type),
            _UNTIL,
        ).where(_IS_OPEN),
    )
    .returning(pieces.c.id)
)

COMMIT = (
    sa.update(pieces)
    .where(pieces.c.id == sa.bindparam("piece"), pieces.c.etag.is_(None))
    .where(
        sa.select(files.c.key).where(files.c.key == pieces.c.key, files.c.name.is_(None)).exists()
    )
    .values(etag=sa.bindparam("tag"), crc32c=sa.bindparam("checksum"))
    .returning(pieces.c.end - pieces.c.start)
)

_JOINED = sa.and_(pieces.c.key == _KEY, pieces.c.id.in_(sa.bindparam("joined", expanding=True)))
DISCARD_JOINED = sa.insert(garbage).from_select(
    ["name", "due_at"],
    sa.select(pieces.c.name, _UNTIL).where(_JOINED, pieces.c.etag.is_not(None)),
)
DELETE_JOINED = sa.delete(pieces).where(_JOINED)

BETWEEN = (
    sa.select(pieces.c.id)
    .where(pieces.c.key == _KEY, pieces.c.id > sa.bindparam("oldest"))
    .where(pieces.c.id < sa.bindparam("newest"))
    .where(pieces.c.start < sa.bindparam("stop"), pieces.c.end > sa.bindparam("begin"))
    .where(pieces.c.id.not_in(sa.bindparam("joined", expanding=True)))
    .limit(1)
)
"""Selects other pieces, stored or being stored, that overlap the joined ones and came between."""

REPLACE_JOINED = (
    sa.update(pieces)
    .where(pieces.c.id == sa.bindparam("piece"), pieces.c.etag.is_(None))
    .values(id=sa.bindparam("newest"), etag=sa.bindparam("tag"), crc32c=sa.bindparam("checksum"))
)

_OF_CELL = sa.and_(pieces.c.key == _KEY, pieces.c.cell == _CELL)
TOTALS = sa.select(
    sa.func.count().label("count"), sa.func.coalesce(sa.func.sum(pieces.c.end - pieces.c.start), 0)
).where(_OF_CELL, pieces.c.etag.is_not(None))

PIECES = sa.select(pieces).where(_OF_CELL, pieces.c.etag.is_not(None)).order_by(pieces.c.id)

LOOSE = (
    sa.select(pieces)
    .join_from(
        pieces,
        cells,
        sa.and_(cells.c.key == pieces.c.key, cells.c.cell == pieces.c.cell),
        isouter=True,
    )
    .where(pieces.c.key == _KEY, pieces.c.etag.is_not(None))
    .where(sa.or_(cells.c.etag.is_(None), pieces.c.id > cells.c.through))
    .order_by(pieces.c.cell, pieces.c.id)
)

_LAST_PIECE = sa.select(sa.func.coalesce(sa.func.max(pieces.c.id), 0)).where(_OF_CELL)

_NEW_CLAIM = sa.select(
    files.c.key,
    _CELL,
    sa.literal_column("0"),
    sa.bindparam("claimed_by", type_=cells.c.token.type),
    _UNTIL,
).where(_IS_OPEN)

_OFFERED = sa.select(files.c.key, _CELL, sa.literal_column("0"), NOW).where(_IS_OPEN)

_OF_CLAIM = sa.and_(
    cells.c.key == _KEY, cells.c.cell == _CELL, cells.c.token == sa.bindparam("claimed_by")
)

SEAL = (
    sa.update(cells)
    .where(_OF_CLAIM)
    .values(
        token=None,
        part_number=sa.bindparam("number"),
        length=sa.bindparam("bytes"),
        etag=sa.bindparam("tag"),
        crc32c=sa.bindparam("checksum"),
        through=sa.bindparam("last_piece"),
    )
)

_PLACED = sa.select(
    files.c.key,
    _CELL,
    sa.literal_column("0"),
    NOW,
    sa.bindparam("number", type_=cells.c.part_number.type),
    sa.bindparam("bytes", type_=cells.c.length.type),
    sa.bindparam("tag", type_=cells.c.etag.type),
    sa.bindparam("checksum", type_=cells.c.crc32c.type),
    _LAST_PIECE.scalar_subquery(),
).where(_IS_OPEN)

RENEW = sa.update(cells).where(_OF_CLAIM).values(leased_until=_UNTIL)

RELEASE = sa.update(cells).where(_OF_CLAIM).values(token=None)

PARTS = (
    sa.select(cells).where(cells.c.key == _KEY, cells.c.etag.is_not(None)).order_by(cells.c.cell)
)

PART = PARTS.where(cells.c.cell == _CELL)

FINISH = (
    sa.update(files)
    .where(_IS_OPEN)
    .values(
        name=sa.bindparam("object"),
        length=sa.bindparam("bytes"),
        is_published=sa.bindparam("published"),
        crc32c=sa.bindparam("checksum"),
    )
)

_LATER = sa.case((pieces.c.etag.is_(None), pieces.c.leased_until), else_=NOW)
"""When a piece's object may be removed: the request that stores it may still be running."""

DISCARD_PIECES = sa.insert(garbage).from_select(
    ["name", "due_at"],
    sa.select(pieces.c.name, _LATER).where(
        pieces.c.key == _KEY, pieces.c.name != sa.bindparam("kept")
    ),
)

DISCARD_MULTIPART = sa.insert(garbage).from_select(
    ["name", "multipart_id", "due_at"],
    sa.select(files.c.multipart_name, files.c.multipart_id, NOW).where(
        files.c.key == _KEY,
        files.c.multipart_id.is_not(None),
        files.c.multipart_name != sa.bindparam("kept"),
    ),
)

_DISCARD_OBJECT = sa.insert(garbage).from_select(
    ["name", "due_at"],
    sa.select(files.c.name, NOW).where(files.c.key == _KEY, files.c.name.is_not(None)),
)

_DISCARD_AGAIN = sa.insert(garbage).from_select(
    ["name", "due_at"],
    sa.select(files.c.name, sa.bindparam("lease_end", type_=Instant)).where(
        files.c.key == _KEY, files.c.name.is_not(None), files.c.is_published.is_(False)
    ),
)
"""A file received whole gets its row before its object, which may be stored after this runs."""

DELETE_PIECES = sa.delete(pieces).where(pieces.c.key == _KEY)
DELETE_CELLS = sa.delete(cells).where(cells.c.key == _KEY)
_DELETE_FILE = sa.delete(files).where(files.c.key == _KEY)
REMOVE: Sequence[sa.Executable] = (
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
    ~sa.select(pieces.c.id).where(pieces.c.key == _KEY).exists(),
    ~sa.select(cells.c.cell).where(cells.c.key == _KEY).exists(),
)

IS_LATE = sa.and_(pieces.c.etag.is_(None), pieces.c.leased_until < NOW)


@cache
def claim(dialect: str) -> Any:
    """Insert a first claim, or take over an expired claim with the next epoch."""
    new = upsert_into(cells, dialect).from_select(
        ["key", "cell", "epoch", "token", "leased_until"], _NEW_CLAIM
    )
    is_free = sa.or_(cells.c.token.is_(None), cells.c.leased_until < NOW)
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


NEEDED = sa.union_all(
    sa.select(files.c.name).where(files.c.is_published),
    sa.select(pieces.c.name).where(pieces.c.etag.is_not(None)),
).subquery()
"""Names of objects that must be in the bucket."""

POSSIBLE = sa.union_all(
    sa.select(files.c.name).where(files.c.name.is_not(None), files.c.is_published.is_(False)),
    sa.select(files.c.multipart_name).where(
        files.c.multipart_name.is_not(None), files.c.multipart_name.is_distinct_from(files.c.name)
    ),
    sa.select(pieces.c.name).where(pieces.c.etag.is_(None)),
    sa.select(garbage.c.name),
).subquery()
"""Names of objects that are being stored or are to be removed."""

MEND = (
    sa.update(cells)
    .where(cells.c.key == _KEY, cells.c.cell == _CELL)
    .where(cells.c.part_number == sa.bindparam("number"), cells.c.etag == sa.bindparam("old_tag"))
    .values(etag=sa.bindparam("tag"), crc32c=sa.bindparam("checksum"))
)
