"""The playback state of each video, and the jobs that prepare it."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

IS_UNFINISHED = sa.text("state IN ('queued', 'running')")
IS_SHOWN = sa.text("state IN ('queued', 'running', 'failed')")


def upgrade() -> None:
    """Create both tables. The media worker fills them from the complete uploads."""
    op.create_table(
        "media",
        _upload_id(),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("facts", sa.Text),
        sa.Column("problem_code", sa.String(64)),
        sa.Column("problem_detail", sa.Text),
        sa.Column("is_planned", sa.Boolean, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "media_jobs",
        _upload_id(),
        sa.Column("step", sa.String(32), primary_key=True),
        sa.Column("argument", sa.String(200), primary_key=True),
        sa.Column("lane", sa.String(16), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("is_renewed", sa.Boolean, nullable=False),
        sa.Column("progress", sa.Float, nullable=False),
        sa.Column("worker", sa.String(64)),
        sa.Column("problem_code", sa.String(64)),
        sa.Column("problem_detail", sa.Text),
        sa.Column("queued_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
    )
    for name, columns, where in (
        ("media_jobs_unfinished", ["lane", "priority", "queued_at"], IS_UNFINISHED),
        ("media_jobs_shown", ["state", "lane"], IS_SHOWN),
    ):
        op.create_index(name, "media_jobs", columns, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    """Drop them: all of their content can be recreated."""
    op.drop_table("media_jobs")
    op.drop_table("media")


def _upload_id() -> "sa.Column[str]":
    reference = sa.ForeignKey("uploads.id", ondelete="CASCADE")
    return sa.Column("upload_id", sa.String(32), reference, primary_key=True)
