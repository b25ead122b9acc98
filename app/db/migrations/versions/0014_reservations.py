"""Reservations of uploads through links, which no longer hold their whole length."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

uploads = sa.table(
    "uploads",
    *(sa.column(name) for name in ("id", "owner", "sender", "kind", "state", "length")),
    sa.column("reserved", sa.BigInteger),
    sa.column("is_stalled", sa.Boolean),
)
parts = sa.table("parts", sa.column("upload_id"), sa.column("part_id"))
links = sa.table("upload_links", *(sa.column(name) for name in ("id", "files", "bytes")))
projects = sa.table("projects", *(sa.column(name) for name in ("id", "used_bytes")))

SENDER = "upload_link:"
IS_RESERVING = sa.text("reserved IS NOT NULL AND state IN ('receiving', 'held')")


def upgrade() -> None:
    """Reserve the whole length of unfinished uploads, since they hold it already.

    Links count the bytes of parts, and the concatenated file once it is assembled.
    """
    op.add_column("uploads", sa.Column("reserved", sa.BigInteger))
    op.add_column(
        "uploads", sa.Column("progress", sa.BigInteger, nullable=False, server_default=sa.text("0"))
    )
    op.add_column(
        "uploads", sa.Column("is_stalled", sa.Boolean, nullable=False, server_default=sa.false())
    )
    connection = op.get_bind()
    is_through_link = uploads.c.sender.like(f"{SENDER}%")
    is_unfinished = uploads.c.state.in_(["receiving", "held"])
    connection.execute(
        sa.update(uploads)
        .where(is_through_link, is_unfinished, uploads.c.kind != "concatenation")
        .values(reserved=uploads.c.length)
    )
    files, sizes = Counter[str](), Counter[str]()
    for link, row in _unfinished():
        if row.kind == "partial" and not _is_in_whole(row.id):
            sizes[link] -= row.length or 0
        elif row.kind == "concatenation":
            files[link] -= 1
    _count(files, sizes)
    op.create_index(
        "uploads_reserving",
        "uploads",
        ["sender", "reserved", "id"],
        sqlite_where=IS_RESERVING,
        postgresql_where=IS_RESERVING,
    )


def downgrade() -> None:
    """Count whole lengths again, even if that exceeds a quota or a link's limit."""
    files, sizes = Counter[str](), Counter[str]()
    for link, row in _unfinished():
        length = row.length or 0
        if row.reserved is not None:
            more = projects.c.used_bytes + length - row.reserved
            change = sa.update(projects).where(projects.c.id == row.owner)
            op.get_bind().execute(change.values(used_bytes=more))
        if row.kind == "partial":
            sizes[link] += 0 if _is_in_whole(row.id) else length
        elif row.kind == "concatenation":
            files[link] += 1
        elif row.reserved is not None:
            sizes[link] += length - row.reserved
            files[link] += 1 if row.is_stalled else 0
    _count(files, sizes)
    op.drop_index("uploads_reserving", "uploads")
    for column in ("is_stalled", "progress", "reserved"):
        op.drop_column("uploads", column)


def _unfinished() -> Iterator[tuple[str, Any]]:
    """Yields unfinished uploads with their links' ids, without concatenations of known length."""
    is_whole = (uploads.c.kind == "concatenation") & uploads.c.length.is_not(None)
    query = sa.select(uploads).where(
        uploads.c.sender.like(f"{SENDER}%"), uploads.c.state.in_(["receiving", "held"]), ~is_whole
    )
    for row in op.get_bind().execute(query).all():
        yield row.sender.split(":")[1], row


def _is_in_whole(part_id: str) -> bool:
    query = (
        sa.select(sa.literal(1))
        .join_from(parts, uploads, uploads.c.id == parts.c.upload_id)
        .where(parts.c.part_id == part_id, uploads.c.length.is_not(None))
    )
    return op.get_bind().execute(query).first() is not None


def _count(files: Counter[str], sizes: Counter[str]) -> None:
    for link in {*files, *sizes}:
        change = sa.update(links).where(links.c.id == link)
        more = {"files": links.c.files + files[link], "bytes": links.c.bytes + sizes[link]}
        op.get_bind().execute(change.values(more))
