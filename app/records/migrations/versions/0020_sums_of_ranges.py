"""Checksums of what has arrived of each upload."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Add the column."""
    op.add_column("uploads", sa.Column("sums", sa.LargeBinary))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("uploads", "sums")
