"""The tables of the first release: where the migrations begin.

A new database is not migrated: it gets the tables as `app.db.tables` declares them.
"""

revision = "0020"
down_revision = None


def upgrade() -> None:
    """Does nothing: see above."""


def downgrade() -> None:
    """Does nothing: older tables have no migration."""
