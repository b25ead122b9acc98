"""The statements of every chunk, built once: SQLAlchemy takes as long to build one as to run it."""

from __future__ import annotations

from sqlalchemy import String, bindparam, cast, delete, func, insert, select, update

from app.records.tables import received_ranges, uploads

_bounds = [cast(column, String) for column in (received_ranges.c.start, received_ranges.c.end)]

_upload_and_ranges = select(
    uploads,
    select(func.aggregate_strings(_bounds[0] + "," + _bounds[1], ","))
    .where(received_ranges.c.upload_id == uploads.c.id)
    .scalar_subquery()
    .label("received"),
)

BY_ID = _upload_and_ranges.where(uploads.c.id == bindparam("upload_id"))
"""One row; `received` is its ranges as "0,100,200,300", in any order, or None. Likewise below.

A row for each range would cost 10 us for each of them, and a chunk reads three times.
"""

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
