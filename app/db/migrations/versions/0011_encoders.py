"""The encoding speed of a fleet's media workers."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create the table; each worker adds its row."""
    op.create_table(
        "encoders",
        sa.Column("worker", sa.String(64), primary_key=True),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("told_at", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop it: each machine offers only its own capabilities."""
    op.drop_table("encoders")
