"""One table for all jobs of the background worker.

The jobs of videos move into it. Jobs no longer refer to the table of uploads, since some are not
about a video. Leases on periodic work and on deliveries go: they are those of jobs.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

UNFINISHED = "state IN ('queued', 'running')"
SHOWN = "state IN ('queued', 'running', 'failed')"


def upgrade() -> None:
    """Copy the jobs of videos into the new table, and drop the tables that it replaces."""
    same: list[sa.Column[Any]] = [
        sa.Column("argument", sa.String(200), primary_key=True),
        sa.Column("lane", sa.String(16), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("client", sa.String(100), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("is_renewed", sa.Boolean(), nullable=False),
        sa.Column("progress", sa.Float(), nullable=False),
        sa.Column("worker", sa.String(64)),
        sa.Column("problem_code", sa.String(64)),
        sa.Column("problem_detail", sa.Text()),
        sa.Column("queued_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
    ]
    names = [column.name for column in same]
    subject, kind = (
        sa.Column(name, sa.String(32), primary_key=True) for name in ("subject", "kind")
    )
    op.create_table("jobs", subject, kind, *same)
    old = sa.table("media_jobs", *map(sa.column, ("upload_id", "step", *names)))
    new = sa.table("jobs", *map(sa.column, ("subject", "kind", *names)))
    op.execute(sa.insert(new).from_select(list(new.columns), sa.select(old)))
    op.drop_table("media_jobs")
    op.drop_table("turns")
    op.drop_column("webhook_deliveries", "token")
    for name, columns, where in (
        ("jobs_unfinished", ["lane", "priority", "turn", "queued_at"], UNFINISHED),
        ("jobs_by_client", ["lane", "client", "priority", "turn"], UNFINISHED),
        ("jobs_shown", ["state", "lane"], SHOWN),
    ):
        condition = sa.text(where)
        op.create_index(name, "jobs", columns, sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    """Does nothing: a newer database is refused by an older version."""
