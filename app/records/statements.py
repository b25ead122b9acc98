"""SQL statements that run for every chunk or file, and the functions that run them.

The statements are built once: SQLAlchemy takes as long to build a statement as to run it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from app.core.errors import UploadNotFound
from app.core.lifecycle import ACTIVE, GONE, UploadState
from app.core.upload import Upload, UploadId, UploadKind, UploadPart
from app.core.video_list import search_form, sort_form
from app.db.sql import InsertUnlessKnown, fetch, run, run_together
from app.db.tables import UPLOAD, uploads
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

USABLE = sorted([*ACTIVE, UploadState.COMPLETE])

_BY_ID = sa.select(*UPLOAD).where(uploads.c.id == sa.bindparam("upload_id"))

_BY_ID_FOR_UPDATE = _BY_ID.with_for_update()

BY_CLIENT_KEY = sa.select(*UPLOAD).where(
    uploads.c.owner == sa.bindparam("owner"), uploads.c.client_key == sa.bindparam("client_key")
)

BY_FINGERPRINT = (
    sa.select(*UPLOAD)
    .where(
        uploads.c.owner == sa.bindparam("owner"),
        uploads.c.fingerprint == sa.bindparam("fingerprint"),
        uploads.c.length == sa.bindparam("length"),
        uploads.c.state.in_(sa.literal_column(f"'{state}'") for state in USABLE),
    )
    .order_by(uploads.c.created_at.desc())
    .limit(sa.literal_column("1"))
    # For SQLite, SQLAlchemy would otherwise add an offset parameter without a value.
    .offset(sa.literal_column("0"))
)

BY_FINGERPRINT_AND_SENDER = BY_FINGERPRINT.where(uploads.c.sender == sa.bindparam("sender"))


_VALUES: dict[str, Any] = {
    column.name: sa.bindparam(column.name)
    for column in uploads.columns
    if column.name not in {"retry_at", "is_sha256_wanted"}
}

_INSERT = sa.insert(uploads).values(_VALUES)


_INSERT_UNLESS_KNOWN = InsertUnlessKnown(uploads).values(_VALUES)

_RELEASE_KEY = (
    sa.update(uploads)
    .where(
        uploads.c.owner == sa.bindparam("owner_of_key"),
        uploads.c.client_key == sa.bindparam("released"),
        uploads.c.state.in_(sa.literal_column(f"'{state}'") for state in sorted(GONE)),
    )
    # No client's key contains a space.
    .values(client_key=sa.literal_column("'ended '").concat(uploads.c.id))
)

_UPDATE = (
    sa.update(uploads)
    .where(uploads.c.id == sa.bindparam("upload_id"))
    .values({name: sa.bindparam(name) for name in _CHANGING})
)

_IS_UNCHANGED = [
    uploads.c[name].is_not_distinct_from(sa.bindparam(f"old_{name}")) for name in _COMPARED
]

_UPDATE_ALL = _UPDATE.values({name: sa.bindparam(name) for name in _RESERVATION})

_UPDATE_IF_UNCHANGED = _UPDATE.where(*_IS_UNCHANGED)

_UNCHANGED_AND_FREE = (
    sa.select(uploads.c.id)
    .where(uploads.c.id == sa.bindparam("upload_id"), *_IS_UNCHANGED)
    .with_for_update(skip_locked=True)
)

_UPDATE_UNLESS_LOCKED = (
    sa.update(uploads)
    .where(uploads.c.id.in_(_UNCHANGED_AND_FREE))
    .values({name: sa.bindparam(name) for name in _CHANGING})
)


def get(connection: sa.Connection, upload_id: UploadId, *, for_update: bool = False) -> Upload:
    """The upload; raises `UploadNotFound`."""
    statement = _BY_ID_FOR_UPDATE if for_update else _BY_ID
    upload = first(connection, statement, {"upload_id": upload_id})
    if upload is None:
        raise UploadNotFound("No upload has this id.")
    return upload


def lock(connection: sa.Connection, upload_ids: Collection[UploadId]) -> None:
    """Lock several uploads in a fixed order, so that two transactions never deadlock."""
    ids = sa.select(uploads.c.id).where(uploads.c.id.in_(upload_ids)).order_by(uploads.c.id)
    connection.execute(ids.with_for_update(key_share=True))


def first(
    connection: sa.Connection, statement: sa.Select[Any], values: Mapping[str, object]
) -> Upload | None:
    """Returns the first upload that a query of this module finds."""
    rows = fetch(connection, statement, values)
    return from_row(rows[0]) if rows else None


def add(connection: sa.Connection, upload: Upload) -> None:
    """Insert an upload; raises the database's error if its id or key is taken."""
    run(connection, _INSERT, _row(upload))


def add_unless_known(connection: sa.Connection, upload: Upload) -> tuple[Upload, bool]:
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
    connection: sa.Connection, uploads: Sequence[Upload]
) -> list[tuple[Upload, bool]]:
    """Insert several uploads like `add_unless_known`; of two with the same key, the first.

    Inserts in the order of the keys, so that two batches never deadlock.
    """
    keys = [(upload.owner, upload.client_key) for upload in uploads]
    places = sorted(range(len(uploads)), key=keys.__getitem__)
    stored = {place: add_unless_known(connection, uploads[place]) for place in places}
    return [stored[place] for place in range(len(uploads))]


def add_parts(connection: sa.Connection, upload: Upload, parts: Sequence[UploadPart]) -> None:
    """Insert the parts of a concatenation."""
    for position, part in enumerate(parts):
        row = {
            "upload_id": upload.id,
            "position": position,
            "part_id": part.upload_id,
            "reference": part.reference,
        }
        connection.execute(sa.insert(parts_table), row)


def release_key(connection: sa.Connection, owner: str, client_key: str) -> None:
    """Take the key from an upload that has ended."""
    run(connection, _RELEASE_KEY, {"owner_of_key": owner, "released": client_key})


def store(connection: sa.Connection, upload: Upload) -> None:
    """Write the changes of an upload."""
    reservation = {name: getattr(upload, name) for name in _RESERVATION}
    run(connection, _UPDATE_ALL, {**_changed(upload), **reservation})


def store_if_unchanged(connection: sa.Connection, upload: Upload, old: Upload) -> bool:
    """Write the changes of an upload if the record still equals `old`; returns whether it did."""
    return run(connection, _UPDATE_IF_UNCHANGED, _changed_from(upload, old)) == 1


def store_unchanged(
    connection: sa.Connection, changes: Sequence[tuple[Upload, Upload]]
) -> list[bool]:
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


def _row(upload: Upload) -> dict[str, object]:
    return {name: getattr(upload, name) for name in _COLUMNS} | names(upload.filename)


def _changed_from(upload: Upload, old: Upload) -> dict[str, object]:
    compared = {f"old_{name}": getattr(old, name) for name in _COMPARED}
    return {**_changed(upload), **compared}


def _changed(upload: Upload) -> dict[str, object]:
    values = {name: getattr(upload, name) for name in _CHANGING}
    return {"upload_id": upload.id, **values}
