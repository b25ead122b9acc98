"""SQL statements that run for every chunk or file, and the functions that run them.

The statements are built once: SQLAlchemy takes as long to build a statement as to run it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Select,
    Update,
    bindparam,
    case,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
    type_coerce,
    update,
)

from app.core.errors import UploadNotFound
from app.core.lifecycle import ACTIVE, GONE, UploadState
from app.core.upload import Upload, UploadId, UploadKind, UploadPart
from app.core.video_list import Position, VideoList, search_form, sort_form
from app.db.sql import InsertUnlessKnown, fetch, run, run_together
from app.db.tables import HAS_SENDER, IS_VIDEO, UPLOAD, Instant, uploads
from app.db.tables import parts as parts_table

_COLUMNS = tuple(column.name for column in UPLOAD)

_CHANGING = (
    *("length", "state", "active_at", "published_at"),
    *("received", "sums", "crc32c", "progress"),
)
"""The columns that change when bytes arrive."""

_RESERVATION = ("reserved", "is_stalled")
"""More columns that change in transactions that observers see."""

_COMPARED = ("filename", "length", "state", "received", "reserved")
"""Columns compared to detect that an upload has changed since it was read."""

_VIDEOS = select(*UPLOAD).where(IS_VIDEO)

_USABLE = sorted([*ACTIVE, UploadState.COMPLETE])

_BY_ID = select(*UPLOAD).where(uploads.c.id == bindparam("upload_id"))

_BY_ID_FOR_UPDATE = _BY_ID.with_for_update()

BY_CLIENT_KEY = select(*UPLOAD).where(
    uploads.c.owner == bindparam("owner"), uploads.c.client_key == bindparam("client_key")
)

BY_FINGERPRINT = (
    select(*UPLOAD)
    .where(
        uploads.c.owner == bindparam("owner"),
        uploads.c.fingerprint == bindparam("fingerprint"),
        uploads.c.length == bindparam("length"),
        uploads.c.state.in_(literal_column(f"'{state}'") for state in _USABLE),
    )
    .order_by(uploads.c.created_at.desc())
    .limit(literal_column("1"))
    # For SQLite, SQLAlchemy would otherwise add an offset parameter without a value.
    .offset(literal_column("0"))
)

BY_FINGERPRINT_AND_SENDER = BY_FINGERPRINT.where(uploads.c.sender == bindparam("sender"))


def by_fingerprints(owner: str, fingerprints: Collection[str], sender: str | None) -> Select[Any]:
    """Like `BY_FINGERPRINT`, for several files of any length; newest upload last."""
    query = select(*UPLOAD).where(
        uploads.c.owner == owner,
        uploads.c.fingerprint.in_(fingerprints),
        uploads.c.state.in_(_USABLE),
    )
    if sender is not None:
        query = query.where(uploads.c.sender == sender)
    return query.order_by(uploads.c.created_at)


_VALUES: dict[str, Any] = {
    column.name: bindparam(column.name)
    for column in uploads.columns
    if column.name not in {"retry_at", "is_sha256_wanted"}
}

_INSERT = insert(uploads).values(_VALUES)


_INSERT_UNLESS_KNOWN = InsertUnlessKnown(uploads).values(_VALUES)

_RELEASE_KEY = (
    update(uploads)
    .where(
        uploads.c.owner == bindparam("owner_of_key"),
        uploads.c.client_key == bindparam("released"),
        uploads.c.state.in_(literal_column(f"'{state}'") for state in sorted(GONE)),
    )
    # No client's key contains a space.
    .values(client_key=literal_column("'ended '").concat(uploads.c.id))
)

_UPDATE = (
    update(uploads)
    .where(uploads.c.id == bindparam("upload_id"))
    .values({name: bindparam(name) for name in _CHANGING})
)

_IS_UNCHANGED = [
    uploads.c[name].is_not_distinct_from(bindparam(f"old_{name}")) for name in _COMPARED
]

_UPDATE_ALL = _UPDATE.values({name: bindparam(name) for name in _RESERVATION})

_UPDATE_IF_UNCHANGED = _UPDATE.where(*_IS_UNCHANGED)

_UNCHANGED_AND_FREE = (
    select(uploads.c.id)
    .where(uploads.c.id == bindparam("upload_id"), *_IS_UNCHANGED)
    .with_for_update(skip_locked=True)
)

_UPDATE_UNLESS_LOCKED = (
    update(uploads)
    .where(uploads.c.id.in_(_UNCHANGED_AND_FREE))
    .values({name: bindparam(name) for name in _CHANGING})
)


def get(connection: Connection, upload_id: UploadId, *, for_update: bool = False) -> Upload:
    """The upload; raises `UploadNotFound`."""
    upload = first(
        connection, _BY_ID_FOR_UPDATE if for_update else _BY_ID, {"upload_id": upload_id}
    )
    if upload is None:
        raise UploadNotFound("No upload has this id.")
    return upload


def lock(connection: Connection, upload_ids: Collection[UploadId]) -> None:
    """Lock several uploads in a fixed order, so that two transactions never deadlock."""
    ids = select(uploads.c.id).where(uploads.c.id.in_(upload_ids)).order_by(uploads.c.id)
    connection.execute(ids.with_for_update(key_share=True))


def first(
    connection: Connection, statement: Select[Any], values: Mapping[str, object]
) -> Upload | None:
    """Returns the first upload that a query of this module finds."""
    rows = fetch(connection, statement, values)
    return from_row(rows[0]) if rows else None


def active(owner: str | None, sender: str | None) -> Select[Any]:
    """Unfinished uploads, newest first; of all owners or senders where those are None."""
    query = select(*UPLOAD).where(uploads.c.state.in_(ACTIVE))
    if owner is not None:
        query = query.where(uploads.c.owner == owner)
    if sender is not None:
        query = query.where(uploads.c.sender == sender)
    return query.order_by(uploads.c.created_at.desc(), uploads.c.id)


def arrived(owner: str, sender: str) -> Select[Any]:
    """Files received from a sender, including those deleted later."""
    query = select(*UPLOAD).where(HAS_SENDER) if sender else select(*UPLOAD)  # Has an index.
    return query.where(
        uploads.c.owner == owner,
        uploads.c.sender == sender,
        uploads.c.state.in_((UploadState.COMPLETE, UploadState.DELETED)),
        uploads.c.published_at.is_not(None),
        uploads.c.kind != UploadKind.PARTIAL,
    )


def totals_of(found: Select[Any]) -> Select[int, Any]:
    """The number of uploads that a query of this module finds, and their total length."""
    rows = found.order_by(None).subquery()
    return select(func.count(), func.sum(rows.c.length))


def videos(owner: str | None, wanted: VideoList, after: Position | None) -> Select[Any]:
    """Complete uploads that match `wanted`, in its order, after a position.

    Without an owner, those of all owners.
    """
    key, is_descending = uploads.c[wanted.order.column], wanted.order.is_descending
    query = _VIDEOS
    if owner is not None:
        query = query.where(uploads.c.owner == owner)
    for word in wanted.words:
        query = query.where(uploads.c.search_name.contains(word, autoescape=True))
    if after is not None:
        place = tuple_(key, uploads.c.id)
        start = tuple_(literal(after.key, key.type), literal(after.upload_id))
        query = query.where(place < start if is_descending else place > start)
    order = [column.desc() if is_descending else column for column in (key, uploads.c.id)]
    return query.order_by(*order)


def older_videos(owner: str, cutoff: datetime) -> Select[Any]:
    """The owner's complete uploads last active at or before `cutoff`, oldest first."""
    active_at = uploads.c.active_at
    query = select(*UPLOAD).where(uploads.c.owner == owner, IS_VIDEO, active_at <= cutoff)
    return query.order_by(active_at, uploads.c.id)


def in_state(state: UploadState, idle_since: datetime | None) -> Select[Any]:
    """Uploads in a state, longest idle first, as `UploadRecords.in_state` says."""
    query = select(*UPLOAD).where(uploads.c.state == state)
    if idle_since is not None:
        query = query.where(uploads.c.active_at <= idle_since)
    return query.order_by(uploads.c.active_at)


def to_publish(idle_since: datetime, now: datetime, longest: timedelta) -> Select[Any]:
    """Uploads in `verifying` that are due, as `UploadRecords.to_publish` says."""
    retry_at = uploads.c.retry_at
    is_due = or_(retry_at.is_(None), retry_at <= now, retry_at > now + longest)
    query = in_state(UploadState.VERIFYING, idle_since).where(is_due)
    return query.order_by(None).order_by(retry_at.is_not(None), retry_at, uploads.c.active_at)


def shifted_activity(later: timedelta, now: datetime, *, of_videos: bool) -> Update:
    """Shifts the last activity of all videos, or of all other uploads; see `shift_activity`."""
    active_at = uploads.c.active_at
    states = [each for each in UploadState if (each is UploadState.COMPLETE) == of_videos]
    change = update(uploads).where(uploads.c.state.in_(states))  # The index needs a state.
    if not later:
        change = change.where(active_at > now)
    shifted = type_coerce(active_at, BigInteger) + later // timedelta(microseconds=1)
    latest = case((active_at > now - later, literal(now, Instant)), else_=shifted)
    return change.values(active_at=latest)


def beside(owner: str, stem: str, endings: Sequence[str]) -> Select[Any]:
    """Complete uploads named `stem` plus an ending, with an optional part between the two.

    That part begins with a letter: "film.srt" and "film.en.srt" match. Ignores case and accents.
    """
    first, last = sort_form(f"{stem}.a"), sort_form(f"{stem}.z") + b"\xff"
    has_ending = [uploads.c.search_name.endswith(each, autoescape=True) for each in endings]
    is_near = uploads.c.sort_name.between(first, last)
    query = select(*UPLOAD).where(uploads.c.owner == owner, IS_VIDEO, is_near, or_(*has_ending))
    return query.order_by(uploads.c.sort_name, uploads.c.id)


def add(connection: Connection, upload: Upload) -> None:
    """Insert an upload; raises the database's error if its id or key is taken."""
    run(connection, _INSERT, _row(upload))


def add_unless_known(connection: Connection, upload: Upload) -> tuple[Upload, bool]:
    """Insert an upload unless its key belongs to one that has not ended.

    Returns the stored upload and whether it is new.
    """
    key = {"owner": upload.owner, "client_key": upload.client_key}
    while True:
        existing = first(connection, BY_CLIENT_KEY, key)
        if existing is not None and (existing.state not in GONE or existing.id == upload.id):
            return existing, False
        if existing is not None:
            release_key(connection, upload.owner, upload.client_key)
        if run(connection, _INSERT_UNLESS_KNOWN, _row(upload)) == 1:
            return upload, True
        # Another transaction has just committed an upload with that key.


def add_all_unless_known(
    connection: Connection, uploads: Sequence[Upload]
) -> list[tuple[Upload, bool]]:
    """Insert several uploads like `add_unless_known`; of two with the same key, the first.

    Inserts in the order of the keys, so that two batches never deadlock.
    """
    places = sorted(range(len(uploads)), key=lambda place: _key(uploads[place]))
    stored = {place: add_unless_known(connection, uploads[place]) for place in places}
    return [stored[place] for place in range(len(uploads))]


def add_parts(connection: Connection, upload: Upload, parts: Sequence[UploadPart]) -> None:
    """Insert the parts of a concatenation."""
    for position, part in enumerate(parts):
        row = {
            "upload_id": upload.id,
            "position": position,
            "part_id": part.upload_id,
            "reference": part.reference,
        }
        connection.execute(insert(parts_table), row)


def release_key(connection: Connection, owner: str, client_key: str) -> None:
    """Take the key from an upload that has ended."""
    run(connection, _RELEASE_KEY, {"owner_of_key": owner, "released": client_key})


def store(connection: Connection, upload: Upload) -> None:
    """Write the changes of an upload."""
    reservation = {name: getattr(upload, name) for name in _RESERVATION}
    run(connection, _UPDATE_ALL, {**_changed(upload), **reservation})


def store_if_unchanged(connection: Connection, upload: Upload, old: Upload) -> bool:
    """Write the changes of an upload if the record still equals `old`; returns whether it did."""
    return run(connection, _UPDATE_IF_UNCHANGED, _changed_from(upload, old)) == 1


def store_unchanged(connection: Connection, changes: Sequence[tuple[Upload, Upload]]) -> list[bool]:
    """Like `store_if_unchanged`, for several uploads on a server, each with its earlier state.

    Returns whether each was written. Uploads with locked rows are not.
    """
    values = [_changed_from(upload, old) for upload, old in changes]
    return [count == 1 for count in run_together(connection, _UPDATE_UNLESS_LOCKED, values)]


def names(filename: str) -> dict[str, str | bytes]:
    """The columns that hold a file's name: as given, for searching and for sorting."""
    return {
        "filename": filename,
        "search_name": search_form(filename),
        "sort_name": sort_form(filename),
    }


def from_row(row: Sequence[Any]) -> Upload:
    """The upload in a row of the table."""
    values = dict(zip(_COLUMNS, row, strict=True))
    values["state"] = UploadState(values["state"])
    values["kind"] = UploadKind(values["kind"])
    return Upload(**values)


def _key(upload: Upload) -> tuple[str, str]:
    return upload.owner, upload.client_key


def _row(upload: Upload) -> dict[str, object]:
    return {name: getattr(upload, name) for name in _COLUMNS} | names(upload.filename)


def _changed_from(upload: Upload, old: Upload) -> dict[str, object]:
    compared = {f"old_{name}": getattr(old, name) for name in _COMPARED}
    return {**_changed(upload), **compared}


def _changed(upload: Upload) -> dict[str, object]:
    values = {name: getattr(upload, name) for name in _CHANGING}
    return {"upload_id": upload.id, **values}
