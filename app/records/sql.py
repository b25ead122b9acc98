"""Records in a relational database, through SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Select,
    case,
    delete,
    func,
    insert,
    literal,
    select,
    tuple_,
    type_coerce,
    update,
)
from sqlalchemy.exc import IntegrityError

from app.domain.errors import UploadNotFound
from app.domain.lifecycle import ACTIVE, GONE, IllegalTransition, UploadState
from app.domain.ranges import ByteRange, RangeSet
from app.domain.upload import Part, Upload, UploadId, UploadKind
from app.domain.video_list import Position, VideoList, search_form, sort_form
from app.records.base import moved_one_by_one
from app.records.driver import fetch, run
from app.records.engine import Database
from app.records.statements import (
    BY_CLIENT_KEY,
    BY_FINGERPRINT,
    BY_ID,
    BY_ID_FOR_UPDATE,
    CHANGING,
    INSERT_UPLOAD,
    RELEASE_KEY,
    UPDATE_UPLOAD,
)
from app.records.tables import IS_VIDEO, UPLOAD, Instant, uploads
from app.records.tables import parts as parts_table

_NOT_COMPLETE = [state for state in UploadState if state is not UploadState.COMPLETE]

COLUMNS = tuple(column.name for column in UPLOAD)


class SqlRecords:
    """`UploadRecords` over one `Database`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, upload: Upload, parts: Sequence[Part] = (), *, renews_key: bool = False
    ) -> tuple[Upload, bool]:
        """See `UploadRecords.add`."""
        try:
            return self._add(upload, parts, renews_key=renews_key)
        except IntegrityError:
            existing = self.find(upload.owner, upload.client_key)
        if existing is not None:
            return existing, False
        # It was removed since, as there was no room for it: the key is free.
        return self._add(upload, parts, renews_key=renews_key)

    def _add(
        self, upload: Upload, parts: Sequence[Part], *, renews_key: bool
    ) -> tuple[Upload, bool]:
        with self._database.write() as connection:
            if renews_key:
                _release_key(connection, upload.owner, upload.client_key)
            connection.execute(INSERT_UPLOAD, _to_row(upload))
            _store_parts(connection, upload, parts)
        return upload, True

    def add_all(self, uploads: Sequence[Upload]) -> list[tuple[Upload, bool]]:
        """See `UploadRecords.add_all`."""
        with self._database.write() as connection:
            return [_add_new(connection, upload) for upload in uploads]

    def release_key(self, owner: str, client_key: str) -> None:
        """See `UploadRecords.release_key`."""
        with self._database.write() as connection:
            _release_key(connection, owner, client_key)

    def remove(self, upload_id: UploadId) -> None:
        """See `UploadRecords.remove`."""
        with self._database.write() as connection:
            connection.execute(delete(uploads).where(uploads.c.id == upload_id))

    def get(self, upload_id: UploadId) -> Upload:
        """See `UploadRecords.get`."""
        with self._database.read() as connection:
            return _get(connection, upload_id)

    def find(self, owner: str, client_key: str) -> Upload | None:
        """See `UploadRecords.find`."""
        with self._database.read() as connection:
            return _first(connection, BY_CLIENT_KEY, {"owner": owner, "client_key": client_key})

    def find_fingerprint(self, owner: str, fingerprint: str, length: int) -> Upload | None:
        """See `UploadRecords.find_fingerprint`."""
        file = {"owner": owner, "fingerprint": fingerprint, "length": length}
        with self._database.read() as connection:
            return _first(connection, BY_FINGERPRINT, file)

    def add_received(self, upload_id: UploadId, span: ByteRange, now: datetime) -> Upload:
        """See `UploadRecords.add_received`."""
        with self._database.write() as connection:
            before = _get(connection, upload_id, for_update=True).require_present()
            after = before.with_received(span, now)
            _store(connection, after)
            return after

    def add_parts(self, upload_id: UploadId, length: int, now: datetime) -> Upload:
        """See `UploadRecords.add_parts`."""
        with self._database.write() as connection:
            before = _get(connection, upload_id, for_update=True).require_present()
            if before.state is not UploadState.RECEIVING:
                return before
            after = before.with_parts(length, now)
            _store(connection, after)
            return after

    def parts(self, upload_id: UploadId) -> list[Part]:
        """See `UploadRecords.parts`."""
        query = (
            select(parts_table)
            .where(parts_table.c.upload_id == upload_id)
            .order_by(parts_table.c.position)
        )
        with self._database.read() as connection:
            return [Part(row.part_id, row.reference) for row in connection.execute(query)]

    def waiting_for(self, part_id: UploadId) -> list[Upload]:
        """See `UploadRecords.waiting_for`."""
        return self._wholes_of(part_id, UploadState.RECEIVING, UploadState.VERIFYING)

    def made_of(self, part_id: UploadId) -> list[Upload]:
        """See `UploadRecords.made_of`."""
        return self._wholes_of(part_id, UploadState.COMPLETE)

    def forget_received(self) -> None:
        """See `UploadRecords.forget_received`."""
        with self._database.write() as connection:
            connection.execute(
                update(uploads).where(uploads.c.state.in_(ACTIVE)).values(received=RangeSet())
            )
            connection.execute(
                update(uploads)
                .where(uploads.c.state.in_([UploadState.HELD, UploadState.VERIFYING]))
                .values(state=UploadState.RECEIVING)
            )

    def touch(self, upload_id: UploadId, now: datetime) -> None:
        """See `UploadRecords.touch`."""
        with self._database.write() as connection:
            connection.execute(
                update(uploads)
                .where(
                    uploads.c.id == upload_id,
                    uploads.c.state.in_(ACTIVE),
                    uploads.c.active_at < now,
                )
                .values(active_at=now)
            )

    def shift_activity(self, later: timedelta, now: datetime) -> None:
        """See `UploadRecords.shift_activity`."""
        active_at = uploads.c.active_at
        change = update(uploads).where(uploads.c.state.in_(_NOT_COMPLETE))
        if not later:
            change = change.where(active_at > now)
        shifted = type_coerce(active_at, BigInteger) + later // timedelta(microseconds=1)
        latest = case((active_at > now - later, literal(now, Instant)), else_=shifted)
        with self._database.write() as connection:
            connection.execute(change.values(active_at=latest))

    def declare_length(self, upload_id: UploadId, length: int, now: datetime) -> Upload:
        """See `UploadRecords.declare_length`."""
        with self._database.write() as connection:
            before = _get(connection, upload_id, for_update=True).require_present()
            after = before.with_length(length, now)
            _store(connection, after)
            return after

    def move(
        self,
        upload_id: UploadId,
        target: UploadState,
        now: datetime,
        *,
        idle_since: datetime | None = None,
    ) -> Upload:
        """See `UploadRecords.move`."""
        with self._database.write() as connection:
            before = _get(connection, upload_id, for_update=True)
            if idle_since is not None and before.active_at > idle_since:
                raise IllegalTransition(f"the upload was active at {before.active_at}")
            after = before.moved_to(target, now)
            _store(connection, after)
            return after

    def move_all(
        self, upload_ids: Sequence[UploadId], target: UploadState, now: datetime
    ) -> list[Upload]:
        """See `UploadRecords.move_all`."""
        with self._database.write() as connection:
            before = [_get(connection, upload_id, for_update=True) for upload_id in upload_ids]
            moved = moved_one_by_one(before, target, now)
            for upload in moved:
                _store(connection, upload)
            return moved

    def rename(self, upload_id: UploadId, filename: str) -> Upload:
        """See `UploadRecords.rename`."""
        with self._database.write() as connection:
            before = _get(connection, upload_id, for_update=True).require_present()
            connection.execute(
                update(uploads).where(uploads.c.id == upload_id).values(_names(filename))
            )
            return replace(before, filename=filename)

    def forget_key(self, upload_id: UploadId) -> None:
        """See `UploadRecords.forget_key`."""
        with self._database.write() as connection:
            connection.execute(
                update(uploads).where(uploads.c.id == upload_id).values(client_key=upload_id)
            )

    def set_sha256(self, upload_id: UploadId, digest: str) -> None:
        """See `UploadRecords.set_sha256`."""
        with self._database.write() as connection:
            connection.execute(
                update(uploads).where(uploads.c.id == upload_id).values(sha256=digest)
            )

    def active(self, owner: str, limit: int) -> list[Upload]:
        """See `UploadRecords.active`."""
        return self._list(
            select(*UPLOAD)
            .where(uploads.c.owner == owner, uploads.c.state.in_(ACTIVE))
            .order_by(uploads.c.created_at.desc(), uploads.c.id)
            .limit(limit)
        )

    def count_active(self) -> dict[UploadState, int]:
        """See `UploadRecords.count_active`."""
        states = uploads.c.state
        query = select(states, func.count().label("number")).where(states.in_(ACTIVE))
        with self._database.read() as connection:
            rows = connection.execute(query.group_by(states)).all()
        found = {row.state: row.number for row in rows}
        return {state: found.get(state, 0) for state in sorted(ACTIVE)}

    def videos(
        self, owner: str, wanted: VideoList, limit: int, after: Position | None = None
    ) -> list[Upload]:
        """See `UploadRecords.videos`."""
        key, is_descending = uploads.c[wanted.order.column], wanted.order.is_descending
        query = select(*UPLOAD).where(uploads.c.owner == owner, IS_VIDEO)
        for word in wanted.words:
            query = query.where(uploads.c.search_name.contains(word, autoescape=True))
        if after is not None:
            place = tuple_(key, uploads.c.id)
            start = tuple_(literal(after.key, key.type), literal(after.upload_id))
            query = query.where(place < start if is_descending else place > start)
        order = [column.desc() if is_descending else column for column in (key, uploads.c.id)]
        return self._list(query.order_by(*order).limit(limit))

    def in_state(
        self, state: UploadState, limit: int, *, idle_since: datetime | None = None
    ) -> list[Upload]:
        """See `UploadRecords.in_state`."""
        query = select(*UPLOAD).where(uploads.c.state == state)
        if idle_since is not None:
            query = query.where(uploads.c.active_at <= idle_since)
        return self._list(query.order_by(uploads.c.active_at).limit(limit))

    def without_sha256(self, limit: int) -> list[Upload]:
        """See `UploadRecords.without_sha256`."""
        return self._list(
            select(*UPLOAD)
            .where(uploads.c.state == UploadState.COMPLETE, uploads.c.sha256.is_(None))
            .order_by(uploads.c.active_at)
            .limit(limit)
        )

    def states(self, upload_ids: Collection[UploadId]) -> dict[UploadId, UploadState]:
        """See `UploadRecords.states`."""
        query = select(uploads.c.id, uploads.c.state).where(uploads.c.id.in_(upload_ids))
        with self._database.read() as connection:
            return {UploadId(row.id): UploadState(row.state) for row in connection.execute(query)}

    def _wholes_of(self, part_id: UploadId, *states: UploadState) -> list[Upload]:
        made_of_it = select(parts_table.c.upload_id).where(parts_table.c.part_id == part_id)
        return self._list(
            select(*UPLOAD).where(uploads.c.id.in_(made_of_it), uploads.c.state.in_(states))
        )

    def _list(self, query: Select[Any]) -> list[Upload]:
        with self._database.read() as connection:
            return [_from_row(row) for row in connection.execute(query)]


def _get(connection: Connection, upload_id: UploadId, *, for_update: bool = False) -> Upload:
    statement = BY_ID_FOR_UPDATE if for_update else BY_ID
    upload = _first(connection, statement, {"upload_id": upload_id})
    if upload is None:
        raise UploadNotFound("No upload has this id.")
    return upload


def _first(
    connection: Connection, statement: Select[Any], values: Mapping[str, object]
) -> Upload | None:
    rows = fetch(connection, statement, values)
    return _from_row(rows[0]) if rows else None


def _add_new(connection: Connection, upload: Upload) -> tuple[Upload, bool]:
    key = {"owner": upload.owner, "client_key": upload.client_key}
    existing = _first(connection, BY_CLIENT_KEY, key)
    if existing is not None and (existing.state not in GONE or existing.id == upload.id):
        return existing, False
    if existing is not None:
        _release_key(connection, upload.owner, upload.client_key)
    run(connection, INSERT_UPLOAD, _to_row(upload))
    return upload, True


def _release_key(connection: Connection, owner: str, client_key: str) -> None:
    run(connection, RELEASE_KEY, {"owner_of_key": owner, "released": client_key})


def _store_parts(connection: Connection, upload: Upload, parts: Sequence[Part]) -> None:
    for position, part in enumerate(parts):
        row = {
            "upload_id": upload.id,
            "position": position,
            "part_id": part.upload_id,
            "reference": part.reference,
        }
        connection.execute(insert(parts_table), row)


def _store(connection: Connection, upload: Upload) -> None:
    values = {name: getattr(upload, name) for name in CHANGING}
    run(connection, UPDATE_UPLOAD, {"upload_id": upload.id, **values})


def _to_row(upload: Upload) -> dict[str, Any]:
    return {name: getattr(upload, name) for name in COLUMNS} | _names(upload.filename)


def _names(filename: str) -> dict[str, str | bytes]:
    return {
        "filename": filename,
        "search_name": search_form(filename),
        "sort_name": sort_form(filename),
    }


def _from_row(row: Sequence[Any]) -> Upload:
    values = dict(zip(COLUMNS, row, strict=True))
    values["state"] = UploadState(values["state"])
    values["kind"] = UploadKind(values["kind"])
    return Upload(**values)
