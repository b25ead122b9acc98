"""Checksums of each upload's received bytes, and whether its SHA-256 is wanted."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

IS_SHA256_WANTED = sa.text("is_sha256_wanted")


def upgrade() -> None:
    """Add the columns."""
    op.add_column("uploads", sa.Column("sums", sa.LargeBinary))
    op.add_column(
        "uploads",
        sa.Column("is_sha256_wanted", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_index(
        "uploads_wanting_sha256",
        "uploads",
        ["active_at"],
        sqlite_where=IS_SHA256_WANTED,
        postgresql_where=IS_SHA256_WANTED,
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_index("uploads_wanting_sha256", "uploads")
    op.drop_column("uploads", "is_sha256_wanted")
    op.drop_column("uploads", "sums")
