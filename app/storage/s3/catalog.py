"""Catalog of a bucket: the rows of files, their pieces and parts, and of garbage.

Several nodes may share them. Object names are never reused: the transaction that replaces or
removes a row also records the object to delete. An object is announced as garbage before it is
put, and the transaction that adds its row takes the announcement back, so that an interruption at
any point leaves no unknown object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app.core.pieces import (
    MOST_LONG_PIECES,
    UNKNOWN_ID,
    URL_SECONDS,
    Checksums,
    Garbage,
    Multipart,
    Part,
    Piece,
    StoredFile,
    piece_bytes,
)
from app.core.ranges import ByteRange
from app.db.engine import Database
from app.db.nodes import Clock, utc_now
from app.db.sql import begins_with, upsert_into
from app.db.tables import Instant
from app.db.tables import stored_files as files
from app.db.tables import stored_garbage as garbage
from app.db.tables import stored_parts as parts
from app.db.tables import stored_pieces as pieces
from app.storage.base import BytesLost
from app.storage.s3.inventory import GARBAGE, BucketInventory

ANNOUNCED_FOR = timedelta(hours=1)
"""An object whose row is not added within this time is garbage."""

FILES = "files/"
"""Prefix of the objects that have a whole file."""

PIECES = "pieces/"
DIRECT = "direct/"
"""Prefixes of the objects that have some bytes of a file; clients put the second kind themselves,
and could replace them while their URL is valid."""

PUT_FOR = timedelta(seconds=URL_SECONDS) + ANNOUNCED_FOR
"""How long an object that a client puts itself is not deleted: it could put it again."""

READ_FOR = timedelta(minutes=5)
"""How long the pieces of a file stay after it has become one object: they may still be read."""

SURE = timedelta(minutes=1)
"""An announcement that ends so soon counts as ended: nodes' clocks may differ a little."""

PAGE = 1000
"""Page size, in rows, for reading a table of any length."""

_KEY: sa.BindParameter[Any] = sa.bindparam("of_key", type_=files.c.key.type)
_IS_OPEN = sa.and_(files.c.key == _KEY, files.c.name.is_(None))
_IS_LEASED = sa.and_(_IS_OPEN, files.c.leased_by == sa.bindparam("token"))

# ---- statements ----------------------------------------------------------------------------------


def _insert(table: sa.Table, *columns: str, condition: Any, locks: bool = False) -> sa.Insert:
    """Inserts a row if there is a file that meets a condition; a value is `new_` and its column."""
    values = [sa.bindparam(f"new_{name}", type_=table.c[name].type) for name in columns]
    file = sa.select(*values).select_from(files).where(condition)
    if locks:  # The file cannot be changed before the commit.
        file = file.with_for_update(read=True)
    counted = sa.insert(table).from_select(columns, file)
    # Without this option, the number of inserted rows is unknown on PostgreSQL.
    return counted.execution_options(preserve_rowcount=True)


_FILE = sa.select(files).where(files.c.key == _KEY)

_ANNOUNCE = _insert(garbage, "name", "due_at", condition=_IS_OPEN)

_CONFIRM = sa.delete(garbage).where(
    garbage.c.name == sa.bindparam("object", type_=garbage.c.name.type),
    ~garbage.c.is_claimed,
    garbage.c.due_at > sa.bindparam("sure", type_=Instant),
)

_ADD_PIECE = _insert(
    pieces, "key", "start", "end", "name", "crc32c", condition=_IS_OPEN, locks=True
)

_longest = sa.bindparam("longest", type_=files.c.length.type)
_longest_by_length = files.c.length // MOST_LONG_PIECES + 1
_LONGEST_PIECE = (
    sa.select(sa.case((_longest_by_length > _longest, _longest_by_length), else_=_longest))
    .where(files.c.key == _KEY)
    .scalar_subquery()
)
"""No piece before a position is longer: `longest` is for those that were stored while the length
was not known, and the rest is `piece_bytes` of the length."""

_PIECES = (
    sa.select(pieces)
    .where(pieces.c.key == _KEY)
    .where(pieces.c.start > sa.bindparam("position") - _LONGEST_PIECE)
    .where(pieces.c.start < sa.bindparam("stop", type_=pieces.c.start.type))
    .where(pieces.c.end > sa.bindparam("position"))
    .order_by(pieces.c.start, pieces.c.id)
    .limit(PAGE)
)
"""Pieces with bytes of a range, in the order of their first ones."""

_position = sa.bindparam("position", type_=pieces.c.start.type)
_SHARE_PIECES = sa.insert(pieces).from_select(
    ["key", "start", "end", "name", "crc32c"],
    sa.select(
        sa.bindparam("new_key", type_=pieces.c.key.type),
        pieces.c.start + _position,
        pieces.c.end + _position,
        pieces.c.name,
        pieces.c.crc32c,
    )
    .where(pieces.c.key == _KEY)
    .order_by(pieces.c.id),
)
"""New ids have the order of the old ones, so that the same pieces win."""

_ADD_PART = _insert(parts, "key", "number", "end", "etag", "crc32c", condition=_IS_LEASED)

_LOCK_SHARED = (
    sa.select(pieces.c.id)
    .where(pieces.c.name.in_(sa.select(pieces.c.name).where(pieces.c.key == _KEY)))
    .order_by(pieces.c.id)
    .with_for_update()
)
"""Locks all rows of the objects of a file: of two files that share one, the last deletes it."""

_other = pieces.alias("other")
_IS_SHARED = (
    sa.select(_other.c.id).where(_other.c.name == pieces.c.name, _other.c.key != _KEY).exists()
)
_IS_KEPT = pieces.c.name == sa.bindparam("kept", type_=pieces.c.name.type)

_DISCARD_PIECES = sa.insert(garbage).from_select(
    ["name", "due_at"],
    sa.select(
        pieces.c.name,
        sa.case(
            (pieces.c.name.startswith(DIRECT), sa.bindparam("late", type_=Instant)),
            else_=sa.bindparam("due", type_=Instant),
        ),
    ).where(pieces.c.key == _KEY, ~_IS_KEPT, ~_IS_SHARED),
)

_DISCARD_MULTIPART = sa.insert(garbage).from_select(
    ["name", "multipart_id", "due_at"],
    sa.select(
        files.c.multipart_name, files.c.multipart_id, sa.bindparam("now", type_=Instant)
    ).where(
        files.c.key == _KEY,
        files.c.multipart_id.is_not(None),
        files.c.multipart_name != sa.bindparam("kept", type_=files.c.name.type),
    ),
)

_DELETE_PIECES = sa.delete(pieces).where(
    pieces.c.key == _KEY,
    ~sa.and_(_IS_KEPT, _IS_SHARED),  # Its row keeps it from going with another file.
)
_DELETE_PARTS = sa.delete(parts).where(parts.c.key == _KEY)
_DELETE_FILE = sa.delete(files).where(files.c.key == _KEY)


class LeaseLost(Exception):
    """Another node makes the object now."""


# ---- catalog -------------------------------------------------------------------------------------


class BucketCatalog:
    """Each call is atomic, on any node; `clock` decides when leases end.

    Nodes must share the clock (`app.db.nodes`). If clocks differ by a lease, work is done twice.
    """

    def __init__(self, database: Database, clock: Clock = utc_now) -> None:
        self.database = database
        self.inventory = BucketInventory(database, clock)
        self._clock = clock

    # ---- files

    def reserve(self, key: str, length: int | None) -> None:
        """Add a file, unless it is known; None if its length is not known yet."""
        values = {"key": key, "length": length, "is_published": False, "active_at": self._clock()}
        with self.database.one_statement() as connection:
            new = upsert_into(files, connection.dialect.name).values(values)
            connection.execute(new.on_conflict_do_nothing(index_elements=[files.c.key]))

    def file(self, key: str) -> StoredFile | None:
        """Returns a file; None if there is none."""
        rows = self._read(_FILE, {"of_key": key})
        if not rows:
            return None
        row = rows[0]
        is_begun = row.multipart_id is not None
        multipart = Multipart(row.multipart_name, row.multipart_id) if is_begun else None
        return StoredFile(row.key, row.length, row.name, row.is_published, multipart)

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

    def add_whole(self, wholes: Sequence[tuple[str, str, int]]) -> None:
        """Add files of one object each, as key, name and length, before the objects are put.

        Does not change files that are one object already. If the put fails, the caller must remove
        the file.
        """
        common = {"is_published": False, "active_at": self._clock()}
        rows = [
            {"key": key, "name": name, "length": length, **common}
            for key, name, length in sorted(wholes)
        ]
        with self.database.one_statement() as connection:
            new = upsert_into(files, connection.dialect.name)
            known = {name: new.excluded[name] for name in ("name", "length")}
            connection.execute(
                new.on_conflict_do_update(
                    index_elements=[files.c.key], set_=known, where=files.c.name.is_(None)
                ),
                rows,
            )

    def finish(self, key: str, name: str, length: int, token: str | None = None) -> bool:
        """Publish the object that has the whole file; False if another one was recorded before.

        With a token, the object is that of the file's multipart upload, and the call returns False
        as well if the lease or the multipart upload is another one by now. Without, it is a single
        piece or was announced. The file's pieces, parts and multipart upload become garbage, except
        the object itself. Raises `BytesLost` if it may have been deleted as garbage.
        """
        now = self._clock()
        change = sa.update(files).where(_IS_OPEN)
        if token is not None:
            change = change.where(files.c.leased_by == token, files.c.multipart_name == name)
        change = change.values(name=name, length=length, is_published=True, leased_by=None)
        values = {"of_key": key, "kept": name, "now": now, "due": now + READ_FOR}
        values["late"] = now + PUT_FOR
        with self.database.write() as connection:
            if not connection.execute(change, {"of_key": key}).rowcount:
                return False
            if token is None:
                has_piece = sa.select(pieces.c.id).where(
                    pieces.c.key == _KEY, pieces.c.name == name
                )
                is_piece = connection.execute(has_piece, {"of_key": key}).first() is not None
                confirmed = connection.execute(_CONFIRM, {"object": name, "sure": now + SURE})
                if not is_piece and not confirmed.rowcount:
                    raise BytesLost(key)
            _discard_rest(connection, values)
        return True

    def publish(self, keys: Sequence[str]) -> int:
        """Publish files that are one object each; returns how many of them are now published."""
        change = sa.update(files).where(files.c.key.in_(keys), files.c.name.is_not(None))
        return self._run(change.values(is_published=True), {})

    def remove(self, key: str, *, also_published: bool) -> list[Garbage]:
        """Delete a file's rows; returns the garbage to remove from the bucket now. Repeatable."""
        now = self._clock()
        with self.database.write() as connection:
            # The lock keeps others from adding a piece until the commit.
            found = connection.execute(_FILE.with_for_update(), {"of_key": key}).first()
            if found is None or (found.is_published and not also_published):
                return []
            newest = sa.select(sa.func.coalesce(sa.func.max(garbage.c.id), 0))
            before = connection.execute(newest).scalar()
            if found.leased_by is not None:  # Its holder may still store a part.
                late = {"of_key": key, "kept": "", "now": now + ANNOUNCED_FOR}
                connection.execute(_DISCARD_MULTIPART, late)
            values = {"of_key": key, "kept": "", "now": now, "due": now, "late": now + PUT_FOR}
            _discard_rest(connection, values)
            is_shared = sa.select(pieces.c.id).where(pieces.c.name == found.name).limit(1)
            if found.name is not None and connection.execute(is_shared).first() is None:
                rows = [{"name": found.name, "due_at": now}]
                if not found.is_published:  # Its row is added before its object is put.
                    rows.append({"name": found.name, "due_at": now + ANNOUNCED_FOR})
                connection.execute(sa.insert(garbage), rows)
            connection.execute(_DELETE_FILE, {"of_key": key})
            due = GARBAGE.where(garbage.c.id > before, garbage.c.due_at <= now)
            own = due.where(garbage.c.name.contains(key)).order_by(garbage.c.id)
            return [Garbage(*row) for row in connection.execute(own)]

    # ---- pieces

    def announce(self, key: str, name: str, *, seconds: float = 0) -> None:
        """Announce an object of a file, to be recorded within `ANNOUNCED_FOR` and `seconds`.

        Raises `BytesLost` if the file is gone or is one object already.
        """
        due = self._clock() + ANNOUNCED_FOR + timedelta(seconds=seconds)
        if not self._run(_ANNOUNCE, {"of_key": key, "new_name": name, "new_due_at": due}):
            raise BytesLost(key)

    def announced(self, prefix: str) -> list[str]:
        """Names of announced objects that begin with `prefix` and may still be recorded."""
        may_be = sa.and_(garbage.c.due_at > self._clock(), ~garbage.c.is_claimed)
        query = sa.select(garbage.c.name).where(may_be)
        with self.database.read() as connection:
            is_named = begins_with(connection, garbage.c.name, prefix)
            return list(connection.scalars(query.where(is_named).order_by(garbage.c.id)))

    def touch(self, key: str, seconds: float = 0) -> None:
        """Count an unfinished file as active now, and for that long."""
        until = self._clock() + timedelta(seconds=seconds)
        change = sa.update(files).where(_IS_OPEN, files.c.active_at < until)
        self._run(change.values(active_at=until), {"of_key": key})

    def add(self, connection: sa.Connection, key: str, found: Sequence[Piece]) -> None:
        """Add the rows of stored objects, in a transaction that holds the lock of the upload.

        Rows of one file are thus added one after another, and each byte keeps the value that the
        first one gave it. Raises `BytesLost` if the file is gone or is one object, or if it is so
        late that an object may have been deleted as garbage.
        """
        sure = self._clock() + SURE
        for piece in found:
            known = {"object": piece.name, "sure": sure}
            is_known = connection.execute(_CONFIRM, known).rowcount
            if not is_known or not connection.execute(_ADD_PIECE, _row(key, piece)).rowcount:
                raise BytesLost(key)

    def add_alone(self, key: str, found: Sequence[Piece]) -> None:
        """Add rows in a transaction of their own, for a file that no other request writes."""
        with self.database.write() as connection:
            self.add(connection, key, found)

    def share(self, key: str, sources: Sequence[tuple[str, int]]) -> None:
        """Add the rows of other files to a file; each comes with the position of its first byte.

        A source may be longer than what is wanted of it: the rows of later ones come first, so that
        these win. Raises `BytesLost` if one is gone or is one object, which has no rows. Does
        nothing if the file itself is one object already.
        """
        is_open = sa.select(files.c.key).where(_IS_OPEN)
        locked = is_open.with_for_update(read=True)  # Until the commit, it stays in pieces.
        with self.database.write() as connection:
            if connection.execute(is_open.with_for_update(), {"of_key": key}).first() is None:
                return
            for of_key, position in reversed(sources):
                if connection.execute(locked, {"of_key": of_key}).first() is None:
                    raise BytesLost(of_key)
                moved = {"of_key": of_key, "new_key": key, "position": position}
                connection.execute(_SHARE_PIECES, moved)

    def pieces(self, key: str, span: ByteRange) -> tuple[list[Piece], int]:
        """Pieces with bytes from `span.start` on, and how far the list is complete.

        At most `PAGE` of them; the second value is `span.end` if there are no more.
        """
        place = {"of_key": key, "position": span.start, "stop": span.end}
        place["longest"] = piece_bytes(None, span.start)
        rows = self._read(_PIECES, place)
        found = [Piece(row.id, ByteRange(row.start, row.end), row.name, row.crc32c) for row in rows]
        if len(found) < PAGE:
            return found, span.end
        return found, max(found[-1].span.start, span.start + 1)

    def end(self, key: str) -> int:
        """The end of a file's last bytes; 0 if it has none."""
        query = sa.select(sa.func.max(pieces.c.end)).where(pieces.c.key == _KEY)
        return int(self._read(query, {"of_key": key})[0][0] or 0)

    # ---- one object

    def lease(self, key: str, token: str, seconds: float) -> bool:
        """Take the right to make a file one object; False while another token has it."""
        now = self._clock()
        is_free = sa.or_(
            files.c.leased_by.is_(None),
            files.c.leased_by == token,
            files.c.leased_until < now,
        )
        return self._lease(_IS_OPEN, is_free, key=key, token=token, seconds=seconds)

    def renew(self, key: str, token: str, seconds: float) -> bool:
        """Renew a lease; False once another token has had it."""
        return self._lease(_IS_LEASED, key=key, token=token, seconds=seconds)

    def leased(self, keys: Sequence[str]) -> set[str]:
        """Those of the files that a lease holder makes one object now."""
        is_held = sa.and_(files.c.leased_by.is_not(None), files.c.leased_until >= self._clock())
        query = sa.select(files.c.key).where(files.c.key.in_(keys), files.c.name.is_(None), is_held)
        return {row.key for row in self._read(query, {})}

    def release(self, key: str, token: str) -> None:
        """End a lease; does nothing if another token has it."""
        self._run(sa.update(files).where(_IS_LEASED).values(leased_by=None), _of(key, token))

    def announce_multipart(self, name: str) -> None:
        """Announce a multipart upload; it is garbage unless `begin_multipart` records it."""
        due_at = self._clock() + ANNOUNCED_FOR
        self._run(sa.insert(garbage), {"name": name, "multipart_id": UNKNOWN_ID, "due_at": due_at})

    def begin_multipart(self, key: str, token: str, multipart: Multipart) -> None:
        """Record the multipart upload of a file; raises `LeaseLost`, also if it is too late."""
        change = sa.update(files).where(_IS_LEASED, files.c.multipart_id.is_(None))
        values = change.values(multipart_name=multipart.name, multipart_id=multipart.id)
        known = {"object": multipart.name, "sure": self._clock() + SURE}
        with self.database.write() as connection:
            if not connection.execute(_CONFIRM, known).rowcount:
                raise LeaseLost
            if not connection.execute(values, _of(key, token)).rowcount:
                raise LeaseLost  # Which keeps the announcement.

    def forget_multipart(self, key: str, token: str) -> None:
        """Make garbage of the multipart upload of a file and its parts."""
        with self.database.write() as connection:
            is_held = sa.select(files).where(_IS_LEASED).with_for_update()
            if connection.execute(is_held, _of(key, token)).first() is None:
                return
            # Another node may be about to complete it.
            late = {"of_key": key, "kept": "", "now": self._clock() + ANNOUNCED_FOR}
            connection.execute(_DISCARD_MULTIPART, late)
            connection.execute(_DELETE_PARTS, {"of_key": key})
            none = {"multipart_name": None, "multipart_id": None}
            connection.execute(sa.update(files).where(_IS_LEASED).values(none), _of(key, token))

    def add_parts(self, key: str, token: str, found: Sequence[Part]) -> None:
        """Record stored parts, all or none; raises `LeaseLost`."""
        rows = [
            {
                **_of(key, token),
                "new_key": key,
                "new_number": part.number,
                "new_end": part.end,
                "new_etag": part.checksums.etag,
                "new_crc32c": part.checksums.crc32c,
            }
            for part in found
        ]
        try:
            with self.database.write() as connection:
                if not all(connection.execute(_ADD_PART, row).rowcount for row in rows):
                    raise LeaseLost
        except IntegrityError as error:  # Another holder of the lease has made one of them.
            raise LeaseLost from error

    def parts(self, key: str) -> list[Part]:
        """The stored parts of a file, in order."""
        query = sa.select(parts).where(parts.c.key == _KEY).order_by(parts.c.number)
        return [_part(row) for row in self._read(query, {"of_key": key})]

    def last_part(self, key: str) -> Part | None:
        """The stored part of a file with the highest number."""
        query = sa.select(parts).where(parts.c.key == _KEY).order_by(parts.c.number.desc())
        rows = self._read(query.limit(1), {"of_key": key})
        return _part(rows[0]) if rows else None

    def _lease(self, *conditions: Any, key: str, token: str, seconds: float) -> bool:
        until = self._clock() + timedelta(seconds=seconds)
        change = sa.update(files).where(*conditions)
        values = change.values(leased_by=sa.bindparam("token"), leased_until=until)
        return self._run(values, _of(key, token)) == 1

    def _read(self, query: sa.Select[Any], values: Mapping[str, object]) -> Sequence[sa.Row[Any]]:
        with self.database.read() as connection:
            return connection.execute(query, values).all()

    def _run(self, statement: sa.UpdateBase, values: Mapping[str, object]) -> int:
        """Run a statement in a transaction of its own; returns how many rows it changed."""
        with self.database.one_statement() as connection:
            return connection.execute(statement, values).rowcount


def _of(key: str, token: str) -> dict[str, object]:
    return {"of_key": key, "token": token}


def _row(key: str, piece: Piece) -> dict[str, object]:
    return {
        "of_key": key,
        "new_key": key,
        "new_start": piece.span.start,
        "new_end": piece.span.end,
        "new_name": piece.name,
        "new_crc32c": piece.crc32c,
    }


def _discard_rest(connection: sa.Connection, values: Mapping[str, object]) -> None:
    """Make garbage of a file's pieces and multipart upload, except the object `kept`."""
    connection.execute(_LOCK_SHARED, values)
    connection.execute(_DISCARD_MULTIPART, values)
    connection.execute(_DISCARD_PIECES, values)
    connection.execute(_DELETE_PIECES, values)
    connection.execute(_DELETE_PARTS, values)


def _part(row: sa.Row[Any]) -> Part:
    return Part(row.number, row.end, Checksums(row.etag, row.crc32c))
