"""Files derived from videos, if they are stored in a bucket."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

IS_KEPT = sa.text("due_at IS NULL")
IS_LEFT = sa.text("due_at IS NOT NULL")


def upgrade() -> None:
    """Create the table. On a local disk it stays empty."""
    op.create_table(
        "made_files",
        sa.Column("version", sa.String(32), primary_key=True),
        sa.Column("upload_id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("folder", sa.String(200), nullable=False),
        sa.Column("length", sa.BigInteger, nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.BigInteger),
    )
    op.create_index(
        "made_files_kept",
        "made_files",
        ["upload_id", "folder", "name"],
        unique=True,
        sqlite_where=IS_KEPT,
        postgresql_where=IS_KEPT,
    )
    op.create_index(
        "made_files_left",
        "made_files",
        ["due_at"],
        sqlite_where=IS_LEFT,
        postgresql_where=IS_LEFT,
    )


def downgrade() -> None:
    """Drop it. The objects stay in the bucket, unknown to the server."""
    op.drop_table("made_files")
