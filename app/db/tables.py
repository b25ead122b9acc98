"""The tables. Each change here needs a migration, for databases that have the tables already."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TextClause,
    TypeDecorator,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex
from sqlalchemy.sql.compiler import DDLCompiler

from app.core.crc32c import RangeSums
from app.core.ranges import RangeSet
from app.db.sql import KNOWN_BY

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Instant(TypeDecorator[datetime]):
    """A moment in UTC, kept as microseconds since 1970 so that every database sorts it alike."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> int | None:
        """To the database."""
        return None if value is None else (value - _EPOCH) // timedelta(microseconds=1)

    def process_result_value(self, value: Any | None, dialect: Any) -> datetime | None:
        """From the database."""
        return None if value is None else _EPOCH + timedelta(microseconds=value)


class Ranges(TypeDecorator[RangeSet]):
    """A set of byte ranges, in the format of `RangeSet.to_bytes`.

    A row for each range would cost 10 us per range each time the upload is read.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: RangeSet | None, dialect: Any) -> bytes | None:
        """To the database."""
        return None if value is None else value.to_bytes()

    def process_result_value(self, value: Any | None, dialect: Any) -> RangeSet | None:
        """From the database."""
        return None if value is None else RangeSet.from_bytes(value)


_NO_SUMS = RangeSums()


class Sums(TypeDecorator[RangeSums]):
    """Checksums of parts of a file, in the format of `RangeSums.to_bytes`; NULL for none."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: RangeSums | None, dialect: Any) -> bytes | None:
        """To the database."""
        return (value.to_bytes() or None) if value is not None else None

    def process_result_value(self, value: Any | None, dialect: Any) -> RangeSums:
        """From the database."""
        return _NO_SUMS if value is None else RangeSums.from_bytes(value)


IS_VIDEO = text("state = 'complete'")
HAS_SENDER = text("sender <> ''")
IS_WITHOUT_LENGTH = text("state = 'receiving' AND length IS NULL")
IS_SHA256_WANTED = text("is_sha256_wanted")
IS_RESERVING = text("reserved IS NOT NULL AND state IN ('receiving', 'held')")


def _partial_index(name: str, *columns: str, where: TextClause, unique: bool = False) -> Index:
    """An index of some rows. SQLite uses it only for a query with the same expression.

    SQLAlchemy's own `sqlite_where` and `postgresql_where` would import both dialects: 40 ms, and
    several MiB in every process. Migrations state them: Alembic does not know `info`.
    """
    return Index(name, *columns, unique=unique, info={_WHERE: where})


_WHERE = "where"


@compiles(CreateIndex)
def _create_index(create: CreateIndex, compiler: DDLCompiler, **options: Any) -> str:
    words: str = compiler.visit_create_index(create, **options)  # type: ignore[no-untyped-call]  # SQLAlchemy has no types here
    where: TextClause | None = create.element.info.get(_WHERE)
    return words if where is None else f"{words} WHERE {where.text}"


metadata = MetaData()

uploads = Table(
    "uploads",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("sender", String(100), nullable=False),
    Column("client_key", String(200), nullable=False),
    Column("filename", Text, nullable=False),
    Column("length", BigInteger),
    Column("fingerprint", String(200)),
    Column("state", String(16), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("active_at", Instant, nullable=False),
    Column("published_at", Instant),
    Column("sha256", String(64)),
    Column("crc32c", String(8)),
    Column("is_sha256_wanted", Boolean, nullable=False, server_default=false()),
    Column("kind", String(16), nullable=False),
    Column("metadata", Text),
    Column("repr_digest", String(200)),
    Column("received", Ranges, nullable=False),
    Column("sums", Sums),
    Column("reserved", BigInteger),
    Column("progress", BigInteger, nullable=False, server_default=text("0")),
    Column("is_stalled", Boolean, nullable=False, server_default=false()),
    Column("search_name", Text, nullable=False),
    Column("sort_name", LargeBinary, nullable=False),
    Column("retry_at", Instant),
    UniqueConstraint("owner", "client_key", name="uploads_client_key"),
    Index("uploads_by_fingerprint", "owner", "fingerprint"),
    Index("uploads_by_activity", "state", "active_at"),
    _partial_index("uploads_by_sender", "sender", "state", where=HAS_SENDER),
    _partial_index("uploads_without_length", "owner", where=IS_WITHOUT_LENGTH),
    _partial_index("uploads_reserving", "sender", "reserved", "id", where=IS_RESERVING),
    _partial_index("uploads_wanting_sha256", "active_at", where=IS_SHA256_WANTED),
    Index("uploads_by_digest", "state", "sha256", "crc32c", "active_at"),
    # For the sort orders of videos.
    _partial_index("uploads_by_publication", "owner", "published_at", "id", where=IS_VIDEO),
    _partial_index("uploads_by_name", "owner", "sort_name", "id", where=IS_VIDEO),
    _partial_index("uploads_by_length", "owner", "length", "id", where=IS_VIDEO),
    _partial_index("uploads_by_age", "owner", "active_at", "id", where=IS_VIDEO),
    info={KNOWN_BY: ("owner", "client_key")},
)

"""`owner` is the id of a project, `sender` identifies who sent the upload: see `Caller.sender`.
`retry_at` is the time of the next attempt to publish an upload that could not be published."""

UPLOAD = tuple(
    column
    for column in uploads.columns
    if column.name not in {"search_name", "sort_name", "retry_at", "is_sha256_wanted"}
)
"""The columns of an `Upload`. Two of the rest are derived from its name, and only searched.
"""

parts = Table(
    "parts",
    metadata,
    Column("upload_id", String(32), ForeignKey("uploads.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("part_id", String(32), nullable=False, index=True),
    Column("reference", Text, nullable=False),
)
"""The parts of concatenations, in order; a part may be deleted before the concatenation."""


media = Table(
    "media",
    metadata,
    Column("upload_id", String(32), ForeignKey("uploads.id", ondelete="CASCADE"), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("facts", Text),
    Column("problem_code", String(64)),
    Column("problem_detail", Text),
    Column("is_planned", Boolean, nullable=False),
    Column("updated_at", Instant, nullable=False),
)
"""The playback state of each video. `is_planned` says that the jobs of the complete file were
queued: a video that is watched while it arrives has a row before that."""

IS_UNFINISHED = text("state IN ('queued', 'running')")
IS_SHOWN = text("state IN ('queued', 'running', 'failed')")

jobs = Table(
    "jobs",
    metadata,
    # In this order: most queries are for the jobs of one video.
    Column("subject", String(32), primary_key=True),
    Column("kind", String(32), primary_key=True),
    Column("argument", String(200), primary_key=True),
    Column("lane", String(16), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("client", String(100), nullable=False),
    Column("turn", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("is_renewed", Boolean, nullable=False),
    Column("progress", Float, nullable=False),
    Column("worker", String(64)),
    Column("problem_code", String(64)),
    Column("problem_detail", Text),
    Column("queued_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("due_at", Instant, nullable=False),
    _partial_index("jobs_unfinished", "lane", "priority", "turn", "queued_at", where=IS_UNFINISHED),
    _partial_index("jobs_by_client", "lane", "client", "priority", "turn", where=IS_UNFINISHED),
    _partial_index("jobs_shown", "state", "lane", where=IS_SHOWN),
)
"""The queue of the background worker. Jobs that are done are not in its indexes.

`subject` is what the job is about, such as the id of an upload. `client` sent the file, see
`jobs.client_of`. Among jobs of the same lane and priority the lowest `turn` comes first.
"""

IS_KEPT = text("due_at IS NULL")
IS_LEFT = text("due_at IS NOT NULL")
IS_EVICTABLE = text("is_evictable AND due_at IS NULL")

derived_files = Table(
    "derived_files",
    metadata,
    Column("version", String(32), primary_key=True),
    Column("upload_id", String(32), nullable=False),
    Column("name", String(200), nullable=False),
    Column("folder", String(200), nullable=False),
    Column("length", BigInteger, nullable=False),
    Column("made_at", Instant, nullable=False),
    Column("used_at", Instant, nullable=False),
    Column("due_at", Instant),
    Column("is_evictable", Boolean, nullable=False, server_default=false()),
    _partial_index("derived_files_kept", "upload_id", "folder", "name", unique=True, where=IS_KEPT),
    _partial_index("derived_files_left", "due_at", where=IS_LEFT),
    _partial_index("derived_files_evictable", "upload_id", where=IS_EVICTABLE),
)
"""Objects that were derived from videos, in a folder or a bucket. An object with `due_at` is
invisible, since it is not stored yet or was discarded, and is deleted at that time. Rows outlive
their videos until then."""

encoders = Table(
    "encoders",
    metadata,
    Column("worker", String(64), primary_key=True),
    Column("facts", Text, nullable=False),
    Column("told_at", Instant, nullable=False),
)
"""The capabilities of a fleet's background workers; empty with SQLite."""

nodes = Table(
    "nodes",
    metadata,
    Column("name", String(100), primary_key=True),
    Column("address", Text, nullable=False),
    Column("version", String(32), nullable=False),
    Column("is_leaving", Boolean, nullable=False),
    Column("counts", Text, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("lease_until", Instant, nullable=False),
)
"""The nodes of the fleet that shares the database; empty with SQLite."""

shared_values = Table(
    "facts",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)
"""Values that all nodes share, such as the signing secret."""

IS_UNPUBLISHED = text("is_published = false")

_NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""SQLite generates row numbers only for an INTEGER key."""

stored_files = Table(
    "stored_files",
    metadata,
    Column("key", String(32), primary_key=True),
    Column("length", BigInteger),
    Column("name", String(200)),
    Column("is_published", Boolean, nullable=False),
    Column("multipart_name", String(200)),
    Column("multipart_id", Text),
    Column("leased_by", String(32)),
    Column("leased_until", Instant),
    Column("active_at", Instant, nullable=False),
    _partial_index("stored_files_unpublished", "active_at", "key", where=IS_UNPUBLISHED),
)
"""Files in a bucket. The key is an upload's id; the upload's own record may be added later. The
holder of the lease makes the file one object."""

stored_pieces = Table(
    "stored_pieces",
    metadata,
    Column("id", _NUMBER, primary_key=True),
    Column("key", String(32), ForeignKey("stored_files.key"), nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("name", String(200), nullable=False, index=True),
    Column("crc32c", String(8), nullable=False),
    Index("stored_pieces_of_file", "key", "start"),
    sqlite_autoincrement=True,
)
"""Objects with some bytes of a file each, added with the record of those bytes."""

stored_parts = Table(
    "stored_parts",
    metadata,
    Column("key", String(32), ForeignKey("stored_files.key"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("end", BigInteger, nullable=False),
    Column("etag", String(200), nullable=False),
    Column("crc32c", String(8), nullable=False),
)
"""Parts of the multipart uploads of files, up to the byte `end` of the file."""

stored_garbage = Table(
    "stored_garbage",
    metadata,
    Column("id", _NUMBER, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("multipart_id", Text),
    Column("due_at", Instant, nullable=False, index=True),
    Column("is_claimed", Boolean, nullable=False, server_default=false()),
    Index("ix_stored_garbage_name", "name", postgresql_ops={"name": "varchar_pattern_ops"}),
    sqlite_autoincrement=True,
)
"""Objects and unfinished multipart uploads to be removed from the bucket, and those that are about
to be recorded. Once a row is claimed, its object may be gone, and can no longer be recorded."""


# ---- access tables -------------------------------------------------------------------------------

# The tables for access control.


ID = String(32)
DIGEST = String(64)
"""SHA-256 of a secret, in hexadecimal: a reader of the database cannot use it."""


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
"""`used_bytes` is the total length of uploads that have not ended: stored and reserved bytes.
`video_seconds` is how long a finished video is kept; NULL means forever."""

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
"""`email` is in lower case. `is_proven` says that the address is verified."""

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
"""`digest` is that of the cookie's value. `project_id` is the project the person chose last."""

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
"""Single-use links: to set up the server, to join a project, to choose a new password."""

attempts = Table(
    "attempts",
    metadata,
    Column("subject", String(300), primary_key=True),
    Column("failures", Integer, nullable=False),
    Column("last_at", Instant, nullable=False),
)
"""Recent failed sign-ins, by account and by address."""

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
"""One-time codes as a second factor; `last_step` is the time step of the last used code."""

recovery_codes = Table(
    "recovery_codes",
    metadata,
    Column("digest", DIGEST, primary_key=True),
    _of_person(),
    Index("recovery_codes_of_person", "person_id"),
)
"""Recovery codes for a lost device; each is deleted when it is used."""

provider_accounts = Table(
    "provider_accounts",
    metadata,
    Column("issuer", String(300), primary_key=True),
    Column("subject", String(255), primary_key=True),
    _of_person(),
    Column("created_at", Instant, nullable=False),
    Index("provider_accounts_of_person", "person_id"),
)
"""Accounts of an OpenID provider, and the people they belong to."""

spent_tokens = Table(
    "spent_tokens",
    metadata,
    Column("id", ID, primary_key=True),
    Column("expires_at", Instant, nullable=False),
)
"""Signed single-use tokens that were used: none is accepted again before it expires."""

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
"""`hint` is the beginning of the key, so that people can tell keys apart. `made_with` is the key
with which a program created this one."""

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
"""`files` and `bytes` count what was sent through the link or is being sent. The code is stored in
plain text, so that managers of the project can view the link again."""

link_senders = Table(
    "link_senders",
    metadata,
    Column("link_id", ID, ForeignKey("upload_links.id", ondelete="CASCADE"), primary_key=True),
    Column("visitor", ID, primary_key=True),
    Column("name", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
)
"""Names that users of upload links have given."""

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
"""The audit log: append-only. Entries without a project concern the server."""

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
"""The outbox: a row is written in the transaction of the change that it reports."""

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
