"""Webhooks of a project: made, changed, tested, and what was delivered to them."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit

from sqlalchemy import (
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    literal_column,
    not_,
    select,
    update,
)

from app.core.errors import EntryNotFound, InvalidRequest, UploadNotFound
from app.core.lifecycle import UploadState
from app.core.moments import instant, optional_instant
from app.core.numbers import parse_bounded
from app.core.playback import Playback, PlaybackState
from app.core.upload import Upload, UploadKind
from app.db.engine import Database
from app.db.sql import fetch, lock_row
from app.db.tables import Instant, projects, webhook_deliveries, webhook_events, webhooks
from app.records import statements

# ---- rules ---------------------------------------------------------------------------------------

# Webhooks: what is told, where it may be sent, and when it is tried again. Pure.


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
    """Sent when somebody asks for it."""


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
        address = _inside(address) or address
    is_special = address.is_multicast or address.is_reserved or address.is_unspecified
    is_special = is_special or getattr(address, "is_site_local", False)
    if is_special or any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global


def _inside(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 one is mapped or translated to (RFC 4291, 3056 and 6052)."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


# ---- outbox --------------------------------------------------------------------------------------

# The outbox: an event is recorded in the transaction of the change that it tells of.
#
# Either both are there or neither. Projects without a webhook that wants the event pay for one
# query.


_OF_PROJECT = (
    select(webhooks.c.id, webhooks.c.events)
    .where(webhooks.c.project_id == bindparam("project"))
    .order_by(webhooks.c.id)
    .with_for_update(read=True, key_share=True)
)
"""None is removed before its delivery is recorded. Runs whenever an upload ends, which may be
thousands of times in one transaction."""

_LAST_OF_PLAYBACK = (
    select(webhook_events.c.type)
    .where(
        webhook_events.c.subject == bindparam("subject"),
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


class Outbox:
    """Watches what happens to uploads and videos; both methods run in the change's transaction."""

    def __init__(self, clock: Callable[[], datetime], new_id: Callable[[], str]) -> None:
        self._clock = clock
        self._new_id = new_id

    def on_upload(
        self, connection: Connection, before: Upload | None, after: Upload | None
    ) -> None:
        """Record that an upload was completed or has ended, if somebody wants to know."""
        if after is None or (before is not None and before.state is after.state):
            return
        event = _OF_UPLOAD.get(after.state)
        if event is not None and after.kind is not UploadKind.PARTIAL:
            self._tell(connection, event, after, {})

    def on_playback(self, connection: Connection, playback: Playback) -> None:
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
            self._tell(connection, event, upload, _about_playback(playback))

    def _tell(
        self, connection: Connection, event: EventType, upload: Upload, more: Mapping[str, Any]
    ) -> None:
        found = fetch(connection, _OF_PROJECT, {"project": upload.owner})
        wanting = [webhook_id for webhook_id, events in found if event in events.split()]
        if wanting:
            about = {**_about(upload), **more}
            self.add(
                connection,
                event,
                project_id=upload.owner,
                subject=upload.id,
                about=about,
                webhook_ids=wanting,
            )

    def add(
        self,
        connection: Connection,
        event: EventType,
        *,
        project_id: str,
        subject: str,
        about: Mapping[str, Any],
        webhook_ids: list[str],
    ) -> list[str]:
        """Record an event and its delivery to each of these webhooks; the deliveries' ids."""
        now = self._clock()
        payload = {"type": event.value, "timestamp": instant(now), "data": about}
        row = connection.execute(
            insert(webhook_events).values(
                id=self._new_id(),
                project_id=project_id,
                subject=subject,
                type=event.value,
                payload=json.dumps(payload, separators=(",", ":")),
                created_at=now,
            )
        ).inserted_primary_key
        delivery = {
            "event_number": row and row[0],
            "subject": subject,
            "state": DeliveryState.WAITING.value,
            "attempts": 0,
            "created_at": now,
            "due_at": now,
        }
        ids = {webhook_id: self._new_id() for webhook_id in webhook_ids}
        rows = [{**delivery, "id": new, "webhook_id": webhook} for webhook, new in ids.items()]
        connection.execute(insert(webhook_deliveries), rows)
        return list(ids.values())


def _about(upload: Upload) -> dict[str, Any]:
    return {
        "id": upload.id,
        "project": upload.owner,
        "filename": upload.filename,
        "length": upload.length,
        "sender": upload.sender,
        "created": instant(upload.created_at),
        "published": optional_instant(upload.published_at),
    }


def _about_playback(playback: Playback) -> dict[str, Any]:
    problem = playback.problem
    return {
        "playback": {
            "state": playback.state.value,
            "duration": (playback.facts or {}).get("duration"),
            "problem": problem and {"code": problem.code, "detail": problem.detail},
        }
    }


# ---- the queue of deliveries ---------------------------------------------------------------------

# The queue of deliveries: claimed with a lease, sent, and noted.
#
# At most one delivery of a webhook is sent at a time, and events of one video in their order: none
# is claimed while an earlier one is unfinished.


_ours, _other = webhook_deliveries, webhook_deliveries.alias()

_IS_DUE = and_(_ours.c.state.in_(UNFINISHED), _ours.c.due_at <= bindparam("now"))

_IS_BUSY = exists().where(
    _other.c.webhook_id == webhooks.c.id,
    _other.c.state == DeliveryState.SENDING,
    _other.c.due_at > bindparam("now"),
)

_HAS_EARLIER = exists().where(
    _other.c.webhook_id == _ours.c.webhook_id,
    _other.c.subject == _ours.c.subject,
    _other.c.event_number < _ours.c.event_number,
    _other.c.state.in_(UNFINISHED),
)

_READY = select(webhooks.c.id, webhooks.c.project_id).where(
    webhooks.c.paused_at.is_(None),
    exists().where(_ours.c.webhook_id == webhooks.c.id, _IS_DUE, not_(_HAS_EARLIER)),
    not_(_IS_BUSY),
)
"""Asked twice a second."""

_NEXT = (
    select(
        _ours.c.id,
        _ours.c.webhook_id,
        _ours.c.subject,
        _ours.c.attempts,
        webhooks.c.url,
        webhooks.c.secret,
        webhooks.c.old_secret,
        webhooks.c.old_secret_until,
        webhook_events.c.id.label("event_id"),
        webhook_events.c.payload,
    )
    .join(webhooks, webhooks.c.id == _ours.c.webhook_id)
    .join(webhook_events, webhook_events.c.number == _ours.c.event_number)
    .where(
        _ours.c.webhook_id == bindparam("webhook"),
        _ours.c.state == literal_column(f"'{DeliveryState.WAITING}'"),
        _ours.c.due_at <= bindparam("now"),
        not_(_IS_BUSY),
        not_(_HAS_EARLIER),
    )
    .order_by(_ours.c.due_at, _ours.c.event_number)
    .limit(1)
)
"""One state alone: an index then has them in this order, however many wait."""

_LOCK = (
    select(webhooks.c.id)
    .where(webhooks.c.id == bindparam("webhook"), webhooks.c.paused_at.is_(None))
    .with_for_update(skip_locked=True, key_share=True)
)
"""Later statements see what the previous claim of this webhook changed: PostgreSQL re-reads a row
that it had to wait for, but not the rows that a subquery has found."""

_LOST = (
    update(_ours)
    .where(
        _ours.c.webhook_id == bindparam("webhook"),
        _ours.c.state == DeliveryState.SENDING,
        _ours.c.due_at <= bindparam("now"),
    )
    .values(state=DeliveryState.WAITING.value)
)
"""What a sender had that died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A delivery that this process alone may send, until its lease ends."""

    delivery_id: str
    token: str
    webhook_id: str
    subject: str
    url: str
    secret: str = field(repr=False)
    old_secret: str | None = field(repr=False)
    old_secret_until: datetime | None
    event_id: str
    payload: str
    attempts: int
    """With this one."""

    def secrets(self, now: datetime) -> list[str]:
        """What to sign with: the secret, and for some time the one before it."""
        if self.old_secret and self.old_secret_until and now < self.old_secret_until:
            return [self.secret, self.old_secret]
        return [self.secret]


class DeliveryQueue:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ready(self, now: datetime) -> dict[str, str]:
        """The webhooks that have something to send and are sent nothing, each with its project."""
        with self._database.read() as connection:
            return {row.id: row.project_id for row in connection.execute(_READY, {"now": now})}

    def claim(
        self, webhook_id: str, now: datetime, *, token: str, lease: timedelta
    ) -> Claim | None:
        """The webhook's next delivery; None if none is due, or another server has claimed it.

        Also one whose sender died: its lease has ended.
        """
        with self._database.write() as connection:
            values = {"now": now, "webhook": webhook_id}
            if connection.execute(_LOCK, values).first() is None:
                return None
            connection.execute(_LOST, values)
            row = connection.execute(_NEXT, values).first()
            if row is None:
                return None
            claimed = {
                "state": DeliveryState.SENDING.value,
                "token": token,
                "attempts": row.attempts + 1,
                "due_at": now + lease,
            }
            connection.execute(update(_ours).where(_ours.c.id == row.id).values(claimed))
        about = dict(row._mapping)
        about["delivery_id"] = about.pop("id")
        return Claim(**{**about, "attempts": row.attempts + 1}, token=token)

    def note_delivered(self, claim: Claim, now: datetime, status: int) -> bool:
        """Note that the receiver has it; False if the lease had ended and another sends it."""
        delivered = {
            "state": DeliveryState.DELIVERED.value,
            "status": status,
            "problem": None,
            "delivered_at": now,
        }
        return self._note(claim, delivered, later_due_at=now)

    def note_failed(self, claim: Claim, now: datetime, *, status: int | None, problem: str) -> bool:
        """Note a failed attempt, and when the next one is; False as for `note_delivered`.

        Later events of the same video wait as long.
        """
        pause = pause_after(claim.attempts)
        state = DeliveryState.FAILED if pause is None else DeliveryState.WAITING
        due_at = now + (pause or timedelta(0))
        failed = {"state": state.value, "status": status, "problem": problem, "due_at": due_at}
        return self._note(claim, failed, later_due_at=due_at)

    def _note(self, claim: Claim, values: Mapping[str, Any], *, later_due_at: datetime) -> bool:
        is_held = and_(
            _ours.c.id == claim.delivery_id,
            _ours.c.state == DeliveryState.SENDING,
            _ours.c.token == claim.token,
        )
        follows = and_(
            _ours.c.webhook_id == claim.webhook_id,
            _ours.c.subject == claim.subject,
            _ours.c.id != claim.delivery_id,
            _ours.c.state == DeliveryState.WAITING,
        )
        with self._database.write() as connection:
            is_noted = connection.execute(update(_ours).where(is_held).values(values)).rowcount == 1
            if is_noted:
                connection.execute(update(_ours).where(follows).values(due_at=later_due_at))
        return is_noted

    def remove_before(self, cutoff: datetime, limit: int) -> int:
        """Remove the oldest events before `cutoff`, at most `limit`, with their deliveries."""
        events = webhook_events.c
        oldest = select(events.number, events.created_at).order_by(events.number).limit(limit)
        with self._database.read() as connection:
            old = [row.number for row in connection.execute(oldest) if row.created_at < cutoff]
        if old:
            with self._database.write() as connection:
                connection.execute(delete(webhook_events).where(events.number.in_(old)))
        return len(old)


# ---- rows ----------------------------------------------------------------------------------------

# The records of webhooks, and of what was delivered to each.


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event for one webhook. `status` is that of the last answer, `problem` what was wrong.

    `due_at` is when it is tried next, or when whoever is sending it is taken for dead. `number`
    grows from event to event.
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


class WebhookRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database, outbox: Outbox) -> None:
        self._database = database
        self._outbox = outbox

    def add(self, webhook: Webhook, *, most: int) -> bool:
        """Store a new webhook; False if its project has `most` already."""
        of_project = webhooks.c.project_id == webhook.project_id
        count = select(func.count()).select_from(webhooks).where(of_project)
        values = {column.name: getattr(webhook, column.name) for column in webhooks.columns}
        with self._database.write() as connection:
            lock_row(connection, projects.c.id, webhook.project_id)  # Keeps the count right.
            if connection.execute(count).scalar_one() >= most:
                return False
            connection.execute(insert(webhooks).values({**values, **_events(webhook.events)}))
        return True

    def of_project(self, project_id: str) -> list[Webhook]:
        """All webhooks of a project, the oldest first."""
        query = (
            select(webhooks)
            .where(webhooks.c.project_id == project_id)
            .order_by(webhooks.c.created_at, webhooks.c.id)
        )
        with self._database.read() as connection:
            return [_webhook(row) for row in connection.execute(query)]

    def find(self, project_id: str, webhook_id: str) -> Webhook | None:
        """The webhook, if it is that project's."""
        with self._database.read() as connection:
            row = connection.execute(select(webhooks).where(_is(project_id, webhook_id))).first()
        return None if row is None else _webhook(row)

    def change(self, project_id: str, webhook_id: str, **values: Any) -> Webhook | None:
        """The webhook as it is stored after the change of these columns alone; None if it is gone.

        A webhook that is paused already stays so since then.
        """
        if "events" in values:
            values |= _events(values["events"])
        if values.get("paused_at") is not None:
            values["paused_at"] = func.coalesce(
                webhooks.c.paused_at, literal(values["paused_at"], Instant)
            )
        is_it = _is(project_id, webhook_id)
        with self._database.write() as connection:
            if values:
                connection.execute(update(webhooks).where(is_it).values(values))
            row = connection.execute(select(webhooks).where(is_it)).first()
        return None if row is None else _webhook(row)

    def renew_secret(
        self, project_id: str, webhook_id: str, secret: str, *, old_until: datetime
    ) -> Webhook | None:
        """Store another secret; the old one is kept until then. None if the webhook is gone."""
        is_it = _is(project_id, webhook_id)
        values = {"secret": secret, "old_secret": webhooks.c.secret, "old_secret_until": old_until}
        with self._database.write() as connection:
            connection.execute(update(webhooks).where(is_it).values(values))
            row = connection.execute(select(webhooks).where(is_it)).first()
        return None if row is None else _webhook(row)

    def remove(self, project_id: str, webhook_id: str) -> bool:
        """Forget a webhook and its deliveries; whether it was there."""
        with self._database.write() as connection:
            removal = delete(webhooks).where(_is(project_id, webhook_id))
            return connection.execute(removal).rowcount == 1

    def add_test(self, webhook: Webhook) -> Delivery:
        """Record a test event for this webhook alone."""
        with self._database.write() as connection:
            (delivery_id,) = self._outbox.add(
                connection,
                EventType.TEST,
                project_id=webhook.project_id,
                subject=webhook.id,
                about={"id": webhook.id, "project": webhook.project_id},
                webhook_ids=[webhook.id],
            )
            row = connection.execute(_DELIVERIES.where(webhook_deliveries.c.id == delivery_id))
            return _delivery(row.one())

    def deliveries(self, webhook_id: str, *, limit: int, before: int | None) -> list[Delivery]:
        """The newest deliveries, of those of events with a lower number than `before`."""
        query = _DELIVERIES.where(webhook_deliveries.c.webhook_id == webhook_id)
        if before is not None:
            query = query.where(webhook_deliveries.c.event_number < before)
        query = query.order_by(webhook_deliveries.c.event_number.desc()).limit(limit)
        with self._database.read() as connection:
            return [_delivery(row) for row in connection.execute(query)]

    def send_again(self, webhook_id: str, delivery_id: str, now: datetime) -> Delivery | None:
        """The delivery, due now as if it had never been tried; None if there is none.

        One that is being sent is left alone.
        """
        is_it = (webhook_deliveries.c.id == delivery_id) & (
            webhook_deliveries.c.webhook_id == webhook_id
        )
        change = (
            update(webhook_deliveries)
            .where(is_it, webhook_deliveries.c.state != DeliveryState.SENDING)
            .values(state=DeliveryState.WAITING.value, attempts=0, due_at=now, delivered_at=None)
        )
        with self._database.write() as connection:
            connection.execute(change)
            row = connection.execute(_DELIVERIES.where(is_it)).first()
        return None if row is None else _delivery(row)


_DELIVERIES: Select[Any] = select(
    webhook_deliveries,
    webhook_events.c.id.label("event_id"),
    webhook_events.c.type,
    webhook_events.c.payload,
).join(webhook_events, webhook_events.c.number == webhook_deliveries.c.event_number)


def _is(project_id: str, webhook_id: str) -> Any:
    return (webhooks.c.id == webhook_id) & (webhooks.c.project_id == project_id)


def _events(events: tuple[EventType, ...]) -> dict[str, str]:
    return {"events": " ".join(events)}


def _webhook(row: Row[Any]) -> Webhook:
    events = tuple(EventType(name) for name in row.events.split())
    return Webhook(**{**row._mapping, "events": events})


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(
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


# ---- use cases -----------------------------------------------------------------------------------


MAX_WEBHOOKS = 20
"""Of one project: each costs a row for every event."""

MAX_PAGE = 100

OLD_SECRET_KEPT = timedelta(days=1)
"""How long events are signed with both secrets, so that receivers can change theirs meanwhile."""

BATCH = 500
"""Events removed in one transaction."""


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """Some deliveries, the newest first, and the cursor of the page after them."""

    deliveries: list[Delivery]
    next_cursor: str | None


class Webhooks:
    """What managers do with webhooks; raises `EntryNotFound` for those of other projects."""

    def __init__(
        self,
        records: WebhookRecords,
        queue: DeliveryQueue,
        *,
        may_be_private: bool,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._records = records
        self._queue = queue
        self._may_be_private = may_be_private
        self._clock = clock
        self._new_id = new_id

    def of_project(self, project_id: str) -> list[Webhook]:
        """All of them, the oldest first."""
        return self._records.of_project(project_id)

    def get(self, project_id: str, webhook_id: str) -> Webhook:
        """One of them."""
        return _found(self._records.find(project_id, webhook_id))

    def make(
        self, project_id: str, *, url: str, events: Sequence[EventType], created_by: str
    ) -> Webhook:
        """A new webhook with a new secret; raises `InvalidRequest`."""
        self._check(url)
        webhook = Webhook(
            id=self._new_id(),
            project_id=project_id,
            url=url,
            secret=new_secret(),
            events=tuple(events),
            created_by=created_by,
            created_at=self._clock(),
        )
        if not self._records.add(webhook, most=MAX_WEBHOOKS):
            raise InvalidRequest(f"A project can have {MAX_WEBHOOKS} webhooks.")
        return webhook

    def change(
        self,
        project_id: str,
        webhook_id: str,
        *,
        url: str | None = None,
        events: Sequence[EventType] | None = None,
        is_paused: bool | None = None,
    ) -> Webhook:
        """The webhook with what is given; events wait while it is paused."""
        changes: dict[str, object] = {}
        if url is not None:
            self._check(url)
            changes["url"] = url
        if events is not None:
            changes["events"] = tuple(events)
        if is_paused is not None:
            changes["paused_at"] = self._clock() if is_paused else None
        return _found(self._records.change(project_id, webhook_id, **changes))

    def renew_secret(self, project_id: str, webhook_id: str) -> Webhook:
        """The webhook with a new secret; events are signed with the old one too for a day."""
        until = self._clock() + OLD_SECRET_KEPT
        return _found(
            self._records.renew_secret(project_id, webhook_id, new_secret(), old_until=until)
        )

    def remove(self, project_id: str, webhook_id: str) -> Webhook:
        """Forget it and its deliveries; what it was."""
        webhook = self.get(project_id, webhook_id)
        self._records.remove(project_id, webhook_id)
        return webhook

    def test(self, project_id: str, webhook_id: str) -> Delivery:
        """Have a test event sent to it."""
        return self._records.add_test(self.get(project_id, webhook_id))

    def deliveries(
        self, webhook: Webhook, *, limit: int = MAX_PAGE, cursor: str | None = None
    ) -> DeliveryPage:
        """The newest deliveries, or those after a cursor; raises `InvalidRequest`."""
        before = None if cursor is None else parse_bounded(cursor)
        if (cursor is not None and before is None) or not 0 < limit <= MAX_PAGE:
            raise InvalidRequest(f"The cursor is unknown, or the limit is not 1 to {MAX_PAGE}.")
        found = self._records.deliveries(webhook.id, limit=limit + 1, before=before)
        has_more = len(found) > limit
        return DeliveryPage(found[:limit], str(found[limit - 1].number) if has_more else None)

    def send_again(self, project_id: str, webhook_id: str, delivery_id: str) -> Delivery:
        """The delivery, which is sent again now, and for three days if that fails."""
        webhook = self.get(project_id, webhook_id)
        delivery = self._records.send_again(webhook.id, delivery_id, self._clock())
        if delivery is None:
            raise EntryNotFound("The webhook has no such delivery.")
        return delivery

    def remove_old(self) -> None:
        """Remove what happened too long ago, in small transactions."""
        while self._queue.remove_before(self._clock() - KEPT, BATCH) == BATCH:
            pass

    def _check(self, url: str) -> None:
        host = check_url(url).hostname or ""
        try:
            is_allowed = self._may_be_private or is_public(str(ip_address(host)))
        except ValueError:  # A name: where it leads is checked whenever something is sent.
            return
        if not is_allowed:
            raise InvalidRequest("The address is in a private network.")


def _found(webhook: Webhook | None) -> Webhook:
    if webhook is None:
        raise EntryNotFound("The project has no such webhook.")
    return webhook
