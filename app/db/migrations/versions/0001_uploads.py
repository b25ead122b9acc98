"""Uploads and their received ranges."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("client_key", sa.String(200), nullable=False),
        sa.Column("filename", sa.Text, nullable=False),
        sa.Column("length", sa.BigInteger),
        sa.Column("fingerprint", sa.String(200)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("active_at", sa.BigInteger, nullable=False),
        sa.Column("published_at", sa.BigInteger),
        sa.Column("sha256", sa.String(64)),
        sa.UniqueConstraint("owner", "client_key", name="uploads_client_key"),
    )
    op.create_index("uploads_by_fingerprint", "uploads", ["owner", "fingerprint"])
    op.create_index("uploads_by_activity", "uploads", ["state", "active_at"])
    op.create_index("uploads_by_digest", "uploads", ["state", "sha256", "active_at"])
    op.create_index("uploads_by_publication", "uploads", ["owner", "state", "published_at", "id"])
    op.create_table(
        "received_ranges",
        sa.Column(
            "upload_id",
            sa.String(32),
            sa.ForeignKey("uploads.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("end", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop both tables."""
    op.drop_table("received_ranges")
    op.drop_table("uploads")
