"""Values and leases shared by all servers of the records."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the tables; servers fill them."""
    op.create_table(
        "facts",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "turns",
        sa.Column("work", sa.String(64), primary_key=True),
        sa.Column("due_at", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop them: a server creates a new secret, and earlier signatures become invalid."""
    op.drop_table("turns")
    op.drop_table("facts")
