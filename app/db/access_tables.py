"""The tables of identity. Every change here needs a migration in `../migrations/versions/`."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
)

from app.db.tables import Instant, metadata

ID = String(32)
DIGEST = String(64)
"""SHA-256 of a secret, in hexadecimal: who reads the database cannot use it."""


def _in_project(*, is_key: bool = False) -> Column[str]:
    reference = ForeignKey("projects.id", ondelete="CASCADE")
    return Column("project_id", ID, reference, nullable=False, primary_key=is_key)


def _of_person(*, is_key: bool = False) -> Column[str]:
    reference = ForeignKey("people.id", ondelete="CASCADE")
    return Column("person_id", ID, reference, nullable=False, primary_key=is_key)


projects = Table(
    "projects",
    metadata,
    Column("id", ID, primary_key=True),
    Column("name", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("used_bytes", BigInteger, nullable=False),
    Column("quota_bytes", BigInteger),
    Column("video_seconds", Float),
)
"""`used_bytes` is the length of every upload that has not ended: what is stored and what is
reserved. `video_seconds` is how long a finished video is kept; without it, for ever."""

people = Table(
    "people",
    metadata,
    Column("id", ID, primary_key=True),
    Column("email", String(254), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("password_hash", Text),
    Column("is_admin", Boolean, nullable=False),
    Column("is_blocked", Boolean, nullable=False),
    Column("is_proven", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("visited_at", Instant),
)
"""`email` is in lower case. `is_proven` says that it is known to be the person's."""

members = Table(
    "members",
    metadata,
    _in_project(is_key=True),
    _of_person(is_key=True),
    Column("role", String(16), nullable=False),
    Column("added_at", Instant, nullable=False),
    Index("members_of_person", "person_id"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("digest", DIGEST, primary_key=True),
    Column("id", ID, nullable=False, unique=True),
    _of_person(),
    Column("project_id", ID),
    Column("method", String(16), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("active_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("address", String(64), nullable=False),
    Column("agent", Text, nullable=False),
    Index("sessions_of_person", "person_id"),
)
"""`digest` is that of the cookie's value. `project_id` is the project the person last chose."""

invitations = Table(
    "invitations",
    metadata,
    Column("digest", DIGEST, primary_key=True),
    Column("purpose", String(16), nullable=False),
    Column("person_id", ID, ForeignKey("people.id", ondelete="CASCADE")),
    Column("project_id", ID, ForeignKey("projects.id", ondelete="CASCADE")),
    Column("role", String(16)),
    Column("email", String(254)),
    Column("created_by", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("used_at", Instant),
)
"""Links that work once: to set up the server, to join a project, to choose a new password."""

attempts = Table(
    "attempts",
    metadata,
    Column("subject", String(300), primary_key=True),
    Column("failures", Integer, nullable=False),
    Column("last_at", Instant, nullable=False),
)
"""Failed sign-ins of late, by account and by address."""

passkeys = Table(
    "passkeys",
    metadata,
    Column("id", ID, primary_key=True),
    Column("credential_id", LargeBinary, nullable=False, unique=True),
    _of_person(),
    Column("public_key", LargeBinary, nullable=False),
    Column("sign_count", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("used_at", Instant),
    Index("passkeys_of_person", "person_id"),
)

second_factors = Table(
    "second_factors",
    metadata,
    _of_person(is_key=True),
    Column("secret", String(64), nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("created_at", Instant, nullable=False),
)
"""One-time codes beside passwords; `last_step` is the time step of the last code that was used."""

recovery_codes = Table(
    "recovery_codes",
    metadata,
    Column("digest", DIGEST, primary_key=True),
    _of_person(),
    Index("recovery_codes_of_person", "person_id"),
)
"""Codes for a lost device; each is deleted when it is used."""

provider_accounts = Table(
    "provider_accounts",
    metadata,
    Column("issuer", String(300), primary_key=True),
    Column("subject", String(255), primary_key=True),
    _of_person(),
    Column("created_at", Instant, nullable=False),
    Index("provider_accounts_of_person", "person_id"),
)
"""Accounts of an OpenID provider, and whose they are."""

spent_tokens = Table(
    "spent_tokens",
    metadata,
    Column("id", ID, primary_key=True),
    Column("expires_at", Instant, nullable=False),
)
"""Signed tokens that work once, and were used: none of them is taken again before it expires."""

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", ID, primary_key=True),
    _in_project(),
    Column("digest", DIGEST, nullable=False, unique=True),
    Column("hint", String(16), nullable=False),
    Column("name", Text, nullable=False),
    Column("role", String(16), nullable=False),
    Column("created_by", Text, nullable=False),
    Column("made_with", ID),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant),
    Column("used_at", Instant),
    Column("revoked_at", Instant),
    Index("api_keys_of_project", "project_id"),
)
"""`hint` is the beginning of the key, by which people tell keys apart. `made_with` is the key by
which a program has made it."""

upload_links = Table(
    "upload_links",
    metadata,
    Column("id", ID, primary_key=True),
    _in_project(),
    Column("code", String(64), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("max_files", Integer),
    Column("max_bytes", BigInteger),
    Column("max_file_bytes", BigInteger),
    Column("extensions", Text, nullable=False),
    Column("asks_name", Boolean, nullable=False),
    Column("password_hash", Text),
    Column("files", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant),
    Column("closed_at", Instant),
    Index("upload_links_of_project", "project_id"),
)
"""`files` and `bytes` count what was sent through it, and what is on its way. The code is kept as
it is: whoever manages the project may look at the link again."""

link_senders = Table(
    "link_senders",
    metadata,
    Column("link_id", ID, ForeignKey("upload_links.id", ondelete="CASCADE"), primary_key=True),
    Column("visitor", ID, primary_key=True),
    Column("name", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
)
"""What the visitors of upload links say they are called."""

share_links = Table(
    "share_links",
    metadata,
    Column("id", ID, primary_key=True),
    _in_project(),
    Column("code", String(64), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("can_download", Boolean, nullable=False),
    Column("password_hash", Text),
    Column("max_views", Integer),
    Column("views", Integer, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant),
    Column("revoked_at", Instant),
    Index("share_links_of_project", "project_id"),
)

shared_videos = Table(
    "shared_videos",
    metadata,
    Column("link_id", ID, ForeignKey("share_links.id", ondelete="CASCADE"), primary_key=True),
    Column("upload_id", ID, ForeignKey("uploads.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, nullable=False),
    Index("shared_videos_of_upload", "upload_id"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at", Instant, nullable=False),
    Column("project_id", ID),
    Column("action", String(64), nullable=False),
    Column("actor", String(100), nullable=False),
    Column("actor_name", Text, nullable=False),
    Column("address", String(64), nullable=False),
    Column("subject", String(100), nullable=False),
    Column("details", Text, nullable=False),
    Index("audit_of_project", "project_id", "id"),
)
"""What happened; rows are only added. Without a project it concerns the server."""

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", ID, primary_key=True),
    _in_project(),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("events", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("paused_at", Instant),
    Column("old_secret", Text),
    Column("old_secret_until", Instant),
    Index("webhooks_of_project", "project_id"),
)

webhook_events = Table(
    "webhook_events",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("id", ID, nullable=False, unique=True),
    Column("project_id", ID, nullable=False),
    Column("subject", String(32), nullable=False),
    Column("type", String(64), nullable=False),
    Column("payload", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Index("webhook_events_of_subject", "subject", "number"),
)
"""The outbox: a row is written in the transaction of the change that it tells of."""

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", ID, primary_key=True),
    Column("webhook_id", ID, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column(
        "event_number",
        Integer,
        ForeignKey("webhook_events.number", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("subject", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("token", ID),
    Column("attempts", Integer, nullable=False),
    Column("status", Integer),
    Column("problem", Text),
    Column("created_at", Instant, nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("delivered_at", Instant),
    Index("webhook_deliveries_due", "webhook_id", "state", "due_at", "event_number"),
    Index("webhook_deliveries_in_order", "webhook_id", "subject", "event_number"),
    Index("webhook_deliveries_of_webhook", "webhook_id", "event_number"),
    Index("webhook_deliveries_of_event", "event_number"),
)
"""`token` is that of whoever is sending it: see `DeliveryQueue`."""
