"""Locations of files in a bucket: objects, parts and claims of a store that nodes share."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

IS_UNPUBLISHED = sa.text("is_published = false")
IS_INTENT = sa.text("etag IS NULL")

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create empty tables: files in folders have no rows there."""
    _create_files()
    _create_pieces()
    _create_cells()
    op.create_table(
        "stored_garbage",
        sa.Column("id", NUMBER, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("multipart_id", sa.Text),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_stored_garbage_due_at", "stored_garbage", ["due_at"])


def downgrade() -> None:
    """Drop them: files in the bucket can no longer be found."""
    for name in ("stored_garbage", "stored_cells", "stored_pieces", "stored_files"):
        op.drop_table(name)


def _create_files() -> None:
    op.create_table(
        "stored_files",
        sa.Column("key", sa.String(32), primary_key=True),
        sa.Column("cell_bytes", sa.BigInteger, nullable=False),
        sa.Column("length", sa.BigInteger),
        sa.Column("name", sa.String(200)),
        sa.Column("is_published", sa.Boolean, nullable=False),
        sa.Column("multipart_name", sa.String(200)),
        sa.Column("multipart_id", sa.Text),
        sa.Column("active_at", sa.BigInteger, nullable=False),
    )
    op.create_index(
        "stored_files_unpublished",
        "stored_files",
        ["active_at", "key"],
        sqlite_where=IS_UNPUBLISHED,
        postgresql_where=IS_UNPUBLISHED,
    )


def _create_pieces() -> None:
    op.create_table(
        "stored_pieces",
        sa.Column("id", NUMBER, primary_key=True),
        sa.Column("key", sa.String(32), sa.ForeignKey("stored_files.key"), nullable=False),
        sa.Column("cell", sa.Integer, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        sa.Column("end", sa.BigInteger, nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("etag", sa.String(200)),
        sa.Column("crc32c", sa.String(8)),
        sa.Column("leased_until", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("stored_pieces_of_cell", "stored_pieces", ["key", "cell", "id"])
    op.create_index(
        "stored_pieces_intended",
        "stored_pieces",
        ["leased_until"],
        sqlite_where=IS_INTENT,
        postgresql_where=IS_INTENT,
    )


def _create_cells() -> None:
    op.create_table(
        "stored_cells",
        sa.Column("key", sa.String(32), sa.ForeignKey("stored_files.key"), primary_key=True),
        sa.Column("cell", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("token", sa.String(32)),
        sa.Column("leased_until", sa.BigInteger, nullable=False),
        sa.Column("part_number", sa.Integer),
        sa.Column("length", sa.BigInteger),
        sa.Column("etag", sa.String(200)),
        sa.Column("crc32c", sa.String(8)),
        sa.Column("through", sa.BigInteger),
    )
