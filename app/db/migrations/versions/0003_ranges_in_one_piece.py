"""Stores an upload's received ranges in its own row instead of one row per range."""

import sys
from array import array
from collections import defaultdict

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

uploads = sa.table("uploads", sa.column("id"), sa.column("received", sa.LargeBinary))
received_ranges = sa.table(
    "received_ranges", sa.column("upload_id"), sa.column("start"), sa.column("end")
)


def upgrade() -> None:
    """Merge the rows of each upload."""
    op.add_column(
        "uploads", sa.Column("received", sa.LargeBinary, nullable=False, server_default="")
    )
    connection = op.get_bind()
    connection.execute(sa.update(uploads).values(received=b""))  # SQLite's default is text.
    bounds: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
    in_order = sa.select(received_ranges).order_by("upload_id", "start")
    for upload_id, start, end in connection.execute(in_order):
        bounds[upload_id].extend((start, end))
    for upload_id, numbers in bounds.items():
        connection.execute(
            sa.update(uploads)
            .where(uploads.c.id == upload_id)
            .values(received=_little_endian(numbers).tobytes())
        )
    op.drop_table("received_ranges")


def downgrade() -> None:
    """Store each range in its own row again."""
    op.create_table(
        "received_ranges",
        sa.Column(
            "upload_id",
            sa.String(32),
            sa.ForeignKey("uploads.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("end", sa.BigInteger, nullable=False),
    )
    connection = op.get_bind()
    for upload_id, received in connection.execute(sa.select(uploads)).all():
        bounds = iter(_little_endian(array("q", received)))
        for start, end in zip(bounds, bounds, strict=True):
            row = {"upload_id": upload_id, "start": start, "end": end}
            connection.execute(sa.insert(received_ranges).values(row))
    op.drop_column("uploads", "received")


def _little_endian(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
