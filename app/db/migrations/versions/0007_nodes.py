"""The servers that share the records."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table; each server adds its row."""
    op.create_table(
        "nodes",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("version", sa.String(32), nullable=False),
        sa.Column("is_leaving", sa.Boolean, nullable=False),
        sa.Column("counts", sa.Text, nullable=False),
        sa.Column("traffic", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("lease_until", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop it: servers no longer know about each other."""
    op.drop_table("nodes")
