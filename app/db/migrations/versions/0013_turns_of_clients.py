"""The client of a job's file, and the job's turn: round robin over clients."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

IS_UNFINISHED = sa.text("state IN ('queued', 'running')")


def upgrade() -> None:
    """Add the columns; waiting jobs keep their order, as jobs of a single client."""
    client = sa.Column("client", sa.String(100), nullable=False, server_default="")
    op.add_column("media_jobs", client)
    op.add_column("media_jobs", sa.Column("turn", sa.Integer, nullable=False, server_default="0"))
    op.drop_index("media_jobs_unfinished", "media_jobs")
    _index("media_jobs_unfinished", ["lane", "priority", "turn", "queued_at"])
    _index("media_jobs_by_client", ["lane", "client", "priority", "turn"])


def downgrade() -> None:
    """Drop them: the longest waiting job comes first."""
    op.drop_index("media_jobs_by_client", "media_jobs")
    op.drop_index("media_jobs_unfinished", "media_jobs")
    _index("media_jobs_unfinished", ["lane", "priority", "queued_at"])
    for column in ("turn", "client"):
        op.drop_column("media_jobs", column)


def _index(name: str, columns: list[str]) -> None:
    op.create_index(
        name,
        "media_jobs",
        columns,
        sqlite_where=IS_UNFINISHED,
        postgresql_where=IS_UNFINISHED,
    )
