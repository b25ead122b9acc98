"""The time each person last used a session."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0016"


def upgrade() -> None:
    """Add the column, filled from the existing sessions."""
    op.add_column("people", sa.Column("visited_at", sa.BigInteger))
    op.execute(
        "UPDATE people SET visited_at = "
        "(SELECT MAX(active_at) FROM sessions WHERE sessions.person_id = people.id)"
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_column("people", "visited_at")
