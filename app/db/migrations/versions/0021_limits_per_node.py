"""Nodes no longer tell each other about their clients: limits hold on each node."""

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Drop what nodes told each other; the rows themselves are renewed every second."""
    op.drop_column("nodes", "traffic")


def downgrade() -> None:
    """Does nothing: a newer database is refused by an older version."""
