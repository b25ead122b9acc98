"""The time of the next attempt to publish an upload."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0014"


def upgrade() -> None:
    """Add the column, empty: each is tried at the next sweep."""
    op.add_column("uploads", sa.Column("retry_at", sa.BigInteger))


def downgrade() -> None:
    """Drop it: each is tried at every sweep."""
    op.drop_column("uploads", "retry_at")
