"""What all servers that share the records agree on, and whose turn it is."""

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
    """Drop them: a server makes a new secret, and what was signed is worth nothing."""
    op.drop_table("turns")
    op.drop_table("facts")
