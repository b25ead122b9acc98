"""Webhooks: the URLs of a project that are sent its events, and what was delivered to them.

The queue, the sender and the worker are in `webhook_delivery`.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit

import sqlalchemy as sa

from app.access import audit
from app.access.audit import AuditAction
from app.core.errors import EntryNotFound, InvalidRequest, UploadNotFound
from app.core.lifecycle import UploadState
from app.core.moments import instant, optional_instant
from app.core.numbers import parse_bounded
from app.core.playback import Playback, PlaybackState
from app.core.upload import Upload, UploadKind
from app.db.context import Context, RequestContext
from app.db.sql import insert_row, lock_row
from app.db.tables import Instant, projects, webhook_deliveries, webhook_events, webhooks
from app.db.waking import Waker
from app.records import statements

MAX_WEBHOOKS = 20
"""Of one project: each costs a row for every event."""

MAX_PAGE = 100

OLD_SECRET_KEPT = timedelta(days=1)
"""How long events are signed with both secrets, so that receivers have time to change theirs."""

BATCH = 500
"""Events removed in one transaction."""

# ---- rules ---------------------------------------------------------------------------------------

MAX_URL_CHARACTERS = 2000

SECRET_PREFIX = "whsec_"
SECRET_BYTES = 32
"""The Standard Webhooks specification allows 24 to 64."""

KEPT = timedelta(days=30)
"""How long events and their deliveries are kept."""

PAUSES = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=20),
)
"""Between the attempts of a delivery, three days in all; about as Standard Webhooks recommends."""


class EventType(StrEnum):
    """What happened; receivers rely on these words."""

    UPLOAD_COMPLETED = "upload.completed"
    """All bytes are there, and the video can be downloaded."""
    UPLOAD_CANCELLED = "upload.cancelled"
    UPLOAD_EXPIRED = "upload.expired"
    VIDEO_READY = "video.ready"
    """Everything that players need is made."""
    VIDEO_FAILED = "video.failed"
    """It cannot be played; it can still be downloaded."""
    VIDEO_DELETED = "video.deleted"
    TEST = "webhook.test"
    """Sent on request."""


SUBSCRIBABLE = tuple(event for event in EventType if event is not EventType.TEST)


class DeliveryState(StrEnum):
    """Where one event for one webhook stands."""

    WAITING = "waiting"
    SENDING = "sending"
    DELIVERED = "delivered"
    FAILED = "failed"
    """It was tried for three days."""


UNFINISHED = (DeliveryState.WAITING, DeliveryState.SENDING)


def pause_after(attempts: int) -> timedelta | None:
    """How long to wait after so many failed attempts; None if there is no further one."""
    return PAUSES[attempts - 1] if attempts <= len(PAUSES) else None


def new_secret() -> str:
    """A random key for signatures, as Standard Webhooks writes it."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def check_url(text: str) -> SplitResult:
    """The parts of a URL that events may be sent to; raises `InvalidRequest`."""
    if len(text) > MAX_URL_CHARACTERS or not (text.isascii() and text.isprintable()):
        raise InvalidRequest(f"The URL must be ASCII, at most {MAX_URL_CHARACTERS} characters.")
    try:
        parts, is_spaced = urlsplit(text), " " in text
        is_complete = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError as error:
        raise InvalidRequest("The URL is malformed.") from error
    if not is_complete or is_spaced:
        raise InvalidRequest("The URL must begin with https:// or http:// and a host name.")
    if "@" in parts.netloc:
        raise InvalidRequest("The URL must not contain a user name or password.")
    return parts


def parse_events(names: object) -> tuple[EventType, ...]:
    """The events that a list names; raises `InvalidRequest`."""
    names = names if isinstance(names, list) else []
    wanted = {name for name in names if isinstance(name, str)}
    if not names or len(wanted) != len(names) or not wanted <= {*SUBSCRIBABLE}:
        known = ", ".join(SUBSCRIBABLE)
        raise InvalidRequest(f"The events must be one or more of {known}, each once.")
    return tuple(event for event in SUBSCRIBABLE if event in wanted)


_NAT64 = ip_network("64:ff9b::/96")

_NOT_PUBLIC = (
    ip_network("192.0.0.0/24"),  # For protocols; Oracle's services for its machines.
    ip_network("192.88.99.0/24"),  # Relays of 6to4, which are no more.
    ip_network("168.63.129.16/32"),  # Azure's own services for its machines.
    ip_network("64:ff9b:1::/48"),  # Translated to IPv4 addresses that only the network knows.
    ip_network("::/96"),  # IPv4 addresses as IPv6 once wrote them.
)


def is_public(text: str) -> bool:
    """Whether an IP address belongs to the internet at large.

    An IPv6 address that stands for an IPv4 one is judged by that.
    """
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        # Mapped or translated (RFC 4291, 3056 and 6052).
        is_nat64 = address in _NAT64
        inside = IPv4Address(int(address) & 0xFFFFFFFF) if is_nat64 else address.ipv4_mapped
        address = inside or address.sixtofour or address
    is_special = address.is_multicast or address.is_reserved or address.is_unspecified
    is_special = is_special or getattr(address, "is_site_local", False)
    if is_special or any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global


# ---- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A URL that receives some events of a project, signed with `secret`.

    Until `old_secret_until` each event is signed with `old_secret` too.
    """

    id: str
    project_id: str
    url: str
    secret: str = field(repr=False)
    events: tuple[EventType, ...]
    created_by: str
    created_at: datetime
    paused_at: datetime | None = None
    old_secret: str | None = field(default=None, repr=False)
    old_secret_until: datetime | None = None

    @classmethod
    def of(cls, row: sa.Row[Any]) -> Webhook:
        """The webhook of a row of `db.tables.webhooks`."""
        events = tuple(EventType(name) for name in row.events.split())
        return cls(**{**row._mapping, "events": events})


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event for one webhook. `status` is that of the last answer, `problem` what was wrong.

    `due_at` is when it is tried next. `number` grows from event to event.
    """

    id: str
    webhook_id: str
    number: int
    event_id: str
    type: EventType
    subject: str
    filename: str | None
    state: DeliveryState
    attempts: int
    status: int | None
    problem: str | None
    created_at: datetime
    due_at: datetime
    delivered_at: datetime | None

    @classmethod
    def of(cls, row: sa.Row[Any]) -> Delivery:
        """The delivery of a row of `_DELIVERIES`."""
        return cls(
            id=row.id,
            webhook_id=row.webhook_id,
            number=row.event_number,
            event_id=row.event_id,
            type=EventType(row.type),
            subject=row.subject,
            filename=json.loads(row.payload)["data"].get("filename"),
            state=DeliveryState(row.state),
            attempts=row.attempts,
            status=row.status,
            problem=row.problem,
            created_at=row.created_at,
            due_at=row.due_at,
            delivered_at=row.delivered_at,
        )


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """Some deliveries, the newest first, and the cursor of the page after them."""

    deliveries: list[Delivery]
    next_cursor: str | None


_DELIVERIES: sa.Select[Any] = sa.select(
    webhook_deliveries,
    webhook_events.c.id.label("event_id"),
    webhook_events.c.type,
    webhook_events.c.payload,
).join(webhook_events, webhook_events.c.number == webhook_deliveries.c.event_number)


# ---- use cases -----------------------------------------------------------------------------------

# All raise `EntryNotFound` for a webhook of another project.


def of_project(ctx: RequestContext) -> list[Webhook]:
    """All webhooks of the project, the oldest first."""
    query = (
        sa.select(webhooks)
        .where(webhooks.c.project_id == ctx.project)
        .order_by(webhooks.c.created_at, webhooks.c.id)
    )
    with ctx.database.read() as connection:
        return [Webhook.of(row) for row in connection.execute(query)]


def get(ctx: RequestContext, webhook_id: str) -> Webhook:
    """One of them."""
    with ctx.database.read() as connection:
        return _webhook(connection, _is(ctx, webhook_id))


def make(ctx: RequestContext, *, url: str, events: Sequence[EventType]) -> Webhook:
    """A new webhook with a new secret; raises `InvalidRequest`."""
    _check(ctx, url)
    webhook = Webhook(
        id=ctx.new_id(),
        project_id=ctx.project,
        url=url,
        secret=new_secret(),
        events=tuple(events),
        created_by=ctx.caller.actor,
        created_at=ctx.clock(),
    )
    count = sa.select(sa.func.count()).where(webhooks.c.project_id == webhook.project_id)
    with ctx.database.write() as connection:
        lock_row(connection, projects.c.id, webhook.project_id)  # Keeps the count right.
        if connection.execute(count).scalar_one() >= MAX_WEBHOOKS:
            raise InvalidRequest(f"A project can have {MAX_WEBHOOKS} webhooks.")
        insert_row(connection, webhooks, webhook, events=" ".join(events))
    _audit(ctx, AuditAction.WEBHOOK_MADE, webhook)
    return webhook


def change(
    ctx: RequestContext,
    webhook_id: str,
    *,
    url: str | None = None,
    events: Sequence[EventType] | None = None,
    is_paused: bool | None = None,
) -> Webhook:
    """The webhook with what is given; events are queued while it is paused.

    Paused again, it stays paused since the first time.
    """
    values: dict[str, Any] = {}
    if url is not None:
        _check(ctx, url)
        values["url"] = url
    if events is not None:
        values["events"] = " ".join(events)
    if is_paused is not None:
        now = sa.literal(ctx.clock(), Instant)
        values["paused_at"] = sa.func.coalesce(webhooks.c.paused_at, now) if is_paused else None
    changed = _changed(ctx, webhook_id, values)
    if is_paused is False:
        Waker(ctx.settings.data_dir).wake()
    _audit(ctx, AuditAction.WEBHOOK_CHANGED, changed)
    return changed


def show_secret(ctx: RequestContext, webhook_id: str) -> Webhook:
    """The webhook, whose secret is about to be shown."""
    webhook = get(ctx, webhook_id)
    _audit(ctx, AuditAction.WEBHOOK_SECRET_SHOWN, webhook)
    return webhook


def renew_secret(ctx: RequestContext, webhook_id: str) -> Webhook:
    """The webhook with a new secret; events are signed with the old one too for a day."""
    until = ctx.clock() + OLD_SECRET_KEPT
    values = {
        "secret": new_secret(),
        "old_secret": webhooks.c.secret,
        "old_secret_until": until,
    }
    webhook = _changed(ctx, webhook_id, values)
    _audit(ctx, AuditAction.WEBHOOK_SECRET_RENEWED, webhook)
    return webhook


def remove(ctx: RequestContext, webhook_id: str) -> Webhook:
    """Delete the webhook and its deliveries; returns it."""
    webhook = get(ctx, webhook_id)
    with ctx.database.write() as connection:
        connection.execute(sa.delete(webhooks).where(_is(ctx, webhook_id)))
    _audit(ctx, AuditAction.WEBHOOK_REMOVED, webhook)
    return webhook


def send_test(ctx: RequestContext, webhook_id: str) -> Delivery:
    """Have a test event sent to this webhook alone."""
    webhook = get(ctx, webhook_id)
    with ctx.database.write() as connection:
        (delivery_id,) = _record(
            ctx,
            connection,
            EventType.TEST,
            {"id": webhook.id, "project": webhook.project_id},
            [webhook.id],
        )
        row = connection.execute(_DELIVERIES.where(webhook_deliveries.c.id == delivery_id)).one()
    Waker(ctx.settings.data_dir).wake()
    return Delivery.of(row)


def deliveries(
    ctx: Context, webhook: Webhook, *, limit: int = MAX_PAGE, cursor: str | None = None
) -> DeliveryPage:
    """The newest deliveries, or those after a cursor; raises `InvalidRequest`."""
    before = None if cursor is None else parse_bounded(cursor)
    if (cursor is not None and before is None) or not 0 < limit <= MAX_PAGE:
        raise InvalidRequest(f"The cursor is unknown, or the limit is not 1 to {MAX_PAGE}.")
    query = _DELIVERIES.where(webhook_deliveries.c.webhook_id == webhook.id)
    if before is not None:
        query = query.where(webhook_deliveries.c.event_number < before)
    query = query.order_by(webhook_deliveries.c.event_number.desc()).limit(limit + 1)
    with ctx.database.read() as connection:
        found = [Delivery.of(row) for row in connection.execute(query)]
    has_more = len(found) > limit
    return DeliveryPage(found[:limit], str(found[limit - 1].number) if has_more else None)


def send_again(ctx: RequestContext, webhook_id: str, delivery_id: str) -> Delivery:
    """The delivery, due now as if it had never been tried; one being sent is left alone."""
    is_it = (webhook_deliveries.c.id == delivery_id) & (
        webhook_deliveries.c.webhook_id == get(ctx, webhook_id).id
    )
    again = (
        sa.update(webhook_deliveries)
        .where(is_it, webhook_deliveries.c.state != DeliveryState.SENDING)
        .values(
            state=DeliveryState.WAITING.value, attempts=0, due_at=ctx.clock(), delivered_at=None
        )
    )
    with ctx.database.write() as connection:
        connection.execute(again)
        row = connection.execute(_DELIVERIES.where(is_it)).first()
    if row is None:
        raise EntryNotFound("The webhook has no such delivery.")
    Waker(ctx.settings.data_dir).wake()
    return Delivery.of(row)


def remove_old(ctx: Context) -> None:
    """Remove events that are older than `KEPT`, with their deliveries, in small transactions."""
    cutoff, events = ctx.clock() - KEPT, webhook_events.c
    oldest = sa.select(events.number, events.created_at).order_by(events.number).limit(BATCH)
    old: Sequence[int] = range(BATCH)
    while len(old) == BATCH:
        with ctx.database.read() as connection:
            old = [row.number for row in connection.execute(oldest) if row.created_at < cutoff]
        if old:
            with ctx.database.write() as connection:
                connection.execute(sa.delete(webhook_events).where(events.number.in_(old)))


def _is(ctx: RequestContext, webhook_id: str) -> sa.ColumnElement[bool]:
    return (webhooks.c.id == webhook_id) & (webhooks.c.project_id == ctx.project)


def _webhook(connection: sa.Connection, is_it: sa.ColumnElement[bool]) -> Webhook:
    row = connection.execute(sa.select(webhooks).where(is_it)).first()
    if row is None:
        raise EntryNotFound("The project has no such webhook.")
    return Webhook.of(row)


def _changed(ctx: RequestContext, webhook_id: str, values: Mapping[str, Any]) -> Webhook:
    """The webhook as it is stored after the change of these columns alone."""
    is_it = _is(ctx, webhook_id)
    with ctx.database.write() as connection:
        if values:
            connection.execute(sa.update(webhooks).where(is_it).values(values))
        return _webhook(connection, is_it)


def _check(ctx: Context, url: str) -> None:
    host = check_url(url).hostname or ""
    try:
        is_allowed = ctx.settings.webhook_private or is_public(str(ip_address(host)))
    except ValueError:  # A name: where it leads is checked whenever something is sent.
        return
    if not is_allowed:
        raise InvalidRequest("The address is in a private network.")


def _audit(ctx: RequestContext, action: AuditAction, webhook: Webhook) -> None:
    """Of the URL only the host is noted: some URLs are secrets."""
    audit.note(
        ctx,
        action,
        f"webhook:{webhook.id}",
        project=webhook.project_id,
        host=urlsplit(webhook.url).hostname,
        events=" ".join(webhook.events),
        is_paused=webhook.paused_at is not None,
    )


# ---- outbox --------------------------------------------------------------------------------------

# The outbox: an event is recorded in the transaction of the change that it tells of.
#
# Either both are there or neither; `on_upload` and `on_playback` run in that transaction. Projects
# without a webhook that wants the event pay for one query.


_OF_PROJECT = (
    sa.select(webhooks.c.id, webhooks.c.events)
    .where(webhooks.c.project_id == sa.bindparam("project"))
    .order_by(webhooks.c.id)
    .with_for_update(read=True, key_share=True)
)
"""None is removed before its delivery is recorded. Runs whenever an upload ends, which may be
thousands of times in one transaction."""

_LAST_OF_PLAYBACK = (
    sa.select(webhook_events.c.type)
    .where(
        webhook_events.c.subject == sa.bindparam("subject"),
        webhook_events.c.type.in_([EventType.VIDEO_READY.value, EventType.VIDEO_FAILED.value]),
    )
    .order_by(webhook_events.c.number.desc())
    .limit(1)
)

_OF_UPLOAD = {
    UploadState.COMPLETE: EventType.UPLOAD_COMPLETED,
    UploadState.CANCELLED: EventType.UPLOAD_CANCELLED,
    UploadState.EXPIRED: EventType.UPLOAD_EXPIRED,
    UploadState.DELETED: EventType.VIDEO_DELETED,
}

_OF_PLAYBACK = {
    PlaybackState.READY: EventType.VIDEO_READY,
    PlaybackState.UNPLAYABLE: EventType.VIDEO_FAILED,
}


def on_upload(
    ctx: Context, connection: sa.Connection, before: Upload | None, after: Upload | None
) -> None:
    """Record that an upload was completed or has ended, if a webhook wants that."""
    if after is None or (before is not None and before.state is after.state):
        return
    event = _OF_UPLOAD.get(after.state)
    if event is not None and after.kind is not UploadKind.PARTIAL:
        _tell(ctx, connection, event, after, {})


def on_playback(ctx: Context, connection: sa.Connection, playback: Playback) -> None:
    """Record that a video is ready or has failed, unless that was the last said of it."""
    event = _OF_PLAYBACK.get(playback.state)
    if event is None:
        return
    try:
        upload = statements.get(connection, playback.upload_id)
    except UploadNotFound:
        return
    if upload.state is not UploadState.COMPLETE:  # It is watched while it arrives.
        return
    last = connection.execute(_LAST_OF_PLAYBACK, {"subject": upload.id}).scalar()
    if last != event:
        problem = playback.problem
        about = {
            "state": playback.state.value,
            "duration": (playback.facts or {}).get("duration"),
            "problem": problem and {"code": problem.code, "detail": problem.detail},
        }
        _tell(ctx, connection, event, upload, {"playback": about})


def _tell(
    ctx: Context,
    connection: sa.Connection,
    event: EventType,
    upload: Upload,
    more: Mapping[str, Any],
) -> None:
    found = connection.execute(_OF_PROJECT, {"project": upload.owner})
    wanting = [webhook_id for webhook_id, events in found if event in events.split()]
    if wanting:
        about = {
            "id": upload.id,
            "project": upload.owner,
            "filename": upload.filename,
            "length": upload.length,
            "sender": upload.sender,
            "created": instant(upload.created_at),
            "published": optional_instant(upload.published_at),
        }
        _record(ctx, connection, event, {**about, **more}, wanting)


def _record(
    ctx: Context,
    connection: sa.Connection,
    event: EventType,
    about: Mapping[str, Any],
    webhook_ids: Sequence[str],
) -> list[str]:
    """Record an event and its delivery to each of these webhooks; returns the deliveries' ids.

    `about` has the "id" of what it happened to, and the "project" of that.
    """
    now = ctx.clock()
    payload = {"type": event.value, "timestamp": instant(now), "data": about}
    row = connection.execute(
        sa.insert(webhook_events).values(
            id=ctx.new_id(),
            project_id=about["project"],
            subject=about["id"],
            type=event.value,
            payload=json.dumps(payload, separators=(",", ":")),
            created_at=now,
        )
    ).inserted_primary_key
    delivery = {
        "event_number": row and row[0],
        "subject": about["id"],
        "state": DeliveryState.WAITING.value,
        "attempts": 0,
        "created_at": now,
        "due_at": now,
    }
    ids = {webhook_id: ctx.new_id() for webhook_id in webhook_ids}
    rows = [{**delivery, "id": new, "webhook_id": webhook} for webhook, new in ids.items()]
    connection.execute(sa.insert(webhook_deliveries), rows)
    return list(ids.values())
