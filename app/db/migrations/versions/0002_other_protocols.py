"""Columns for more upload protocols: metadata, digests to verify, parts of concatenations."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns and the table of parts."""
    op.add_column(
        "uploads", sa.Column("kind", sa.String(16), nullable=False, server_default="file")
    )
    op.add_column("uploads", sa.Column("metadata", sa.Text))
    op.add_column("uploads", sa.Column("repr_digest", sa.String(200)))
    op.create_table(
        "parts",
        sa.Column(
            "upload_id",
            sa.String(32),
            sa.ForeignKey("uploads.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("part_id", sa.String(32), nullable=False),
        sa.Column("reference", sa.Text, nullable=False),
    )
    op.create_index("ix_parts_part_id", "parts", ["part_id"])


def downgrade() -> None:
    """Drop them. Expires parts, because without these columns they would become videos."""
    op.execute(
        "UPDATE uploads SET state = 'expired' "
        "WHERE kind <> 'file' AND state IN ('receiving', 'held', 'verifying')"
    )
    op.drop_table("parts")
    for column in ("repr_digest", "metadata", "kind"):
        op.drop_column("uploads", column)
