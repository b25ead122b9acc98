"""The statements of every chunk, built once: SQLAlchemy takes as long to build one as to run it."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, insert, select, update

from app.records.tables import received_ranges, uploads

_upload_and_ranges = (
    select(uploads, received_ranges.c.start, received_ranges.c.end)
    .outerjoin(received_ranges)
    .order_by(received_ranges.c.start)
)

BY_ID = _upload_and_ranges.where(uploads.c.id == bindparam("upload_id"))
"""A row for each received range of the upload, or one without a range; likewise below."""

BY_ID_FOR_UPDATE = BY_ID.with_for_update(of=uploads)

BY_CLIENT_KEY = _upload_and_ranges.where(
    uploads.c.owner == bindparam("owner"), uploads.c.client_key == bindparam("client_key")
)

INSERT_UPLOAD = insert(uploads)

UPDATE_UPLOAD = (
    update(uploads)
    .where(uploads.c.id == bindparam("upload_id"))
    .values({name: bindparam(name) for name in ("length", "state", "active_at", "published_at")})
)
"""Everything about an upload that changes while it is under way, but for its ranges."""

INSERT_RANGE = insert(received_ranges)

DELETE_RANGE = delete(received_ranges).where(
    received_ranges.c.upload_id == bindparam("range_of"),
    received_ranges.c.start == bindparam("range_start"),
)
