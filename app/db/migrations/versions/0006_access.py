"""People, projects, keys and links, their audit log and webhooks; each upload has a sender."""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

HAS_SENDER = sa.text("sender <> ''")
IS_WITHOUT_LENGTH = sa.text("state = 'receiving' AND length IS NULL")
IS_VIDEO = sa.text("state = 'complete'")

FIRST_PROJECT = "local"
"""Owner of all existing uploads."""


def upgrade() -> None:
    """Create the tables and the first project, which owns all existing uploads."""
    op.add_column("uploads", sa.Column("sender", sa.String(100), nullable=False, server_default=""))
    op.create_index(
        "uploads_by_sender",
        "uploads",
        ["sender", "state"],
        sqlite_where=HAS_SENDER,
        postgresql_where=HAS_SENDER,
    )
    op.create_index(
        "uploads_without_length",
        "uploads",
        ["owner"],
        sqlite_where=IS_WITHOUT_LENGTH,
        postgresql_where=IS_WITHOUT_LENGTH,
    )
    op.create_index(
        "uploads_by_age",
        "uploads",
        ["owner", "active_at", "id"],
        sqlite_where=IS_VIDEO,
        postgresql_where=IS_VIDEO,
    )
    for create in (
        *(_create_projects, _create_members, _create_sessions, _create_passkeys),
        *(_create_upload_links, _create_share_links, _create_audit),
        *(_create_webhooks, _create_deliveries),
    ):
        create()
    _add_first_project()


def downgrade() -> None:
    """Drop them: afterwards any client that reaches the server has full access again."""
    for name in (
        *("webhook_deliveries", "webhook_events", "webhooks", "audit"),
        *("shared_videos", "share_links", "link_senders", "upload_links"),
        *("spent_tokens", "provider_accounts", "passkeys", "attempts", "invitations", "sessions"),
        *("api_keys", "members", "people", "projects"),
    ):
        op.drop_table(name)
    op.drop_index("uploads_by_age", "uploads")
    op.drop_index("uploads_without_length", "uploads")
    op.drop_index("uploads_by_sender", "uploads")
    op.drop_column("uploads", "sender")


def _add_first_project() -> None:
    uploads = sa.table("uploads", sa.column("length"), sa.column("state"))
    has_ended = uploads.c.state.in_(["cancelled", "expired", "deleted"])
    used = sa.select(sa.func.coalesce(sa.func.sum(uploads.c.length), 0)).where(~has_ended)
    projects = sa.table("projects", *map(sa.column, ("id", "name", "created_at", "used_bytes")))
    now = int(datetime.now(UTC).timestamp()) * 1_000_000
    op.execute(
        sa.insert(projects).values(
            id=FIRST_PROJECT, name="Videos", created_at=now, used_bytes=used.scalar_subquery()
        )
    )


def _create_projects() -> None:
    op.create_table(
        "projects",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("used_bytes", sa.BigInteger, nullable=False),
        sa.Column("quota_bytes", sa.BigInteger),
        sa.Column("video_seconds", sa.Float),
    )
    op.create_table(
        "people",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("email", sa.String(254), nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("password_hash", sa.Text),
        sa.Column("is_admin", sa.Boolean, nullable=False),
        sa.Column("is_blocked", sa.Boolean, nullable=False),
        sa.Column("is_proven", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )


def _create_members() -> None:
    op.create_table(
        "members",
        sa.Column(
            "project_id",
            sa.String(32),
            sa.ForeignKey("projects.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column(
            "person_id",
            sa.String(32),
            sa.ForeignKey("people.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("added_at", sa.BigInteger, nullable=False),
    )
    op.create_index("members_of_person", "members", ["person_id"])
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column(
            "project_id",
            sa.String(32),
            sa.ForeignKey("projects.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("hint", sa.String(16), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("made_with", sa.String(32)),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("used_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
    )
    op.create_index("api_keys_of_project", "api_keys", ["project_id"])


def _create_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("id", sa.String(32), nullable=False, unique=True),
        sa.Column(
            "person_id",
            sa.String(32),
            sa.ForeignKey("people.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("project_id", sa.String(32)),
        sa.Column("method", sa.String(16), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("active_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
    )
    op.create_index("sessions_of_person", "sessions", ["person_id"])
    op.create_table(
        "invitations",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("purpose", sa.String(16), nullable=False),
        sa.Column("person_id", sa.String(32), sa.ForeignKey("people.id", ondelete="CASCADE")),
        sa.Column("project_id", sa.String(32), sa.ForeignKey("projects.id", ondelete="CASCADE")),
        sa.Column("role", sa.String(16)),
        sa.Column("email", sa.String(254)),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.BigInteger),
    )
    op.create_table(
        "attempts",
        sa.Column("subject", sa.String(300), primary_key=True),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("last_at", sa.BigInteger, nullable=False),
    )


def _create_passkeys() -> None:
    op.create_table(
        "passkeys",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("credential_id", sa.LargeBinary, nullable=False, unique=True),
        sa.Column(
            "person_id",
            sa.String(32),
            sa.ForeignKey("people.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("public_key", sa.LargeBinary, nullable=False),
        sa.Column("sign_count", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.BigInteger),
    )
    op.create_index("passkeys_of_person", "passkeys", ["person_id"])
    op.create_table(
        "provider_accounts",
        sa.Column("issuer", sa.String(300), primary_key=True),
        sa.Column("subject", sa.String(255), primary_key=True),
        sa.Column(
            "person_id",
            sa.String(32),
            sa.ForeignKey("people.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("provider_accounts_of_person", "provider_accounts", ["person_id"])
    op.create_table(
        "spent_tokens",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )


def _create_upload_links() -> None:
    op.create_table(
        "upload_links",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column(
            "project_id",
            sa.String(32),
            sa.ForeignKey("projects.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("code", sa.String(64), nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("max_files", sa.Integer),
        sa.Column("max_bytes", sa.BigInteger),
        sa.Column("max_file_bytes", sa.BigInteger),
        sa.Column("extensions", sa.Text, nullable=False),
        sa.Column("asks_name", sa.Boolean, nullable=False),
        sa.Column("password_hash", sa.Text),
        sa.Column("files", sa.Integer, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("closed_at", sa.BigInteger),
    )
    op.create_index("upload_links_of_project", "upload_links", ["project_id"])
    op.create_table(
        "link_senders",
        sa.Column(
            "link_id",
            sa.String(32),
            sa.ForeignKey("upload_links.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("visitor", sa.String(32), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )


def _create_share_links() -> None:
    op.create_table(
        "share_links",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column(
            "project_id",
            sa.String(32),
            sa.ForeignKey("projects.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("code", sa.String(64), nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("can_download", sa.Boolean, nullable=False),
        sa.Column("password_hash", sa.Text),
        sa.Column("max_views", sa.Integer),
        sa.Column("views", sa.Integer, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
    )
    op.create_index("share_links_of_project", "share_links", ["project_id"])
    op.create_table(
        "shared_videos",
        sa.Column(
            "link_id",
            sa.String(32),
            sa.ForeignKey("share_links.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column(
            "upload_id",
            sa.String(32),
            sa.ForeignKey("uploads.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("position", sa.Integer, nullable=False),
    )
    op.create_index("shared_videos_of_upload", "shared_videos", ["upload_id"])


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("project_id", sa.String(32)),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("actor", sa.String(100), nullable=False),
        sa.Column("actor_name", sa.Text, nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(100), nullable=False),
        sa.Column("details", sa.Text, nullable=False),
    )
    op.create_index("audit_of_project", "audit", ["project_id", "id"])


def _create_webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column(
            "project_id",
            sa.String(32),
            sa.ForeignKey("projects.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("paused_at", sa.BigInteger),
    )
    op.create_index("webhooks_of_project", "webhooks", ["project_id"])
    op.create_table(
        "webhook_events",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("id", sa.String(32), nullable=False, unique=True),
        sa.Column("project_id", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(32), nullable=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("webhook_events_of_subject", "webhook_events", ["subject", "number"])


def _create_deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column(
            "webhook_id",
            sa.String(32),
            sa.ForeignKey("webhooks.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column(
            "event_number",
            sa.Integer,
            sa.ForeignKey("webhook_events.number", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("subject", sa.String(32), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("token", sa.String(32)),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("problem", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("delivered_at", sa.BigInteger),
    )
    for name, columns in {
        "due": ["webhook_id", "state", "due_at", "event_number"],
        "in_order": ["webhook_id", "subject", "event_number"],
        "of_webhook": ["webhook_id", "event_number"],
        "of_event": ["event_number"],
    }.items():
        op.create_index(f"webhook_deliveries_{name}", "webhook_deliveries", columns)
