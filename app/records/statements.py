"""The statements of every chunk and file.

They are built once: SQLAlchemy takes as long to build one as to run it.
"""

from __future__ import annotations

from sqlalchemy import bindparam, insert, literal_column, select, update

from app.domain.lifecycle import ACTIVE, GONE, UploadState
from app.records.base import released_key
from app.records.tables import UPLOAD, uploads

BY_ID = select(*UPLOAD).where(uploads.c.id == bindparam("upload_id"))

BY_ID_FOR_UPDATE = BY_ID.with_for_update()

BY_CLIENT_KEY = select(*UPLOAD).where(
    uploads.c.owner == bindparam("owner"), uploads.c.client_key == bindparam("client_key")
)

_USABLE = sorted([*ACTIVE, UploadState.COMPLETE])

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
    .offset(literal_column("0"))  # Else one is added as a parameter for SQLite, without its value.
)

INSERT_UPLOAD = insert(uploads).values({name: bindparam(name) for name in uploads.columns.keys()})  # noqa: SIM118

RELEASE_KEY = (
    update(uploads)
    .where(
        uploads.c.owner == bindparam("owner_of_key"),
        uploads.c.client_key == bindparam("released"),
        uploads.c.state.in_(literal_column(f"'{state}'") for state in sorted(GONE)),
    )
    .values(client_key=literal_column(f"'{released_key('')}'").concat(uploads.c.id))
)

CHANGING = ("length", "state", "active_at", "published_at", "received")
"""Everything about an upload that changes while it is under way."""

UPDATE_UPLOAD = (
    update(uploads)
    .where(uploads.c.id == bindparam("upload_id"))
    .values({name: bindparam(name) for name in CHANGING})
)
