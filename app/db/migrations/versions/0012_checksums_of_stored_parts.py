"""The CRC32C of files that clients sent straight to the bucket."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the columns, empty; the index finds files that have neither SHA-256 nor CRC32C."""
    for table in ("uploads", "stored_files"):
        op.add_column(table, sa.Column("crc32c", sa.String(8)))
    op.drop_index("uploads_by_digest", "uploads")
    op.create_index("uploads_by_digest", "uploads", ["state", "sha256", "crc32c", "active_at"])


def downgrade() -> None:
    """Drop them: the background worker reads these files for their SHA-256."""
    op.drop_index("uploads_by_digest", "uploads")
    op.create_index("uploads_by_digest", "uploads", ["state", "sha256", "active_at"])
    for table in ("uploads", "stored_files"):
        op.drop_column(table, "crc32c")
