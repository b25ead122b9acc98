"""The records of webhooks, and of what was delivered to each."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, delete, func, insert, literal, select, update

from app.access.records.outbox import Outbox
from app.core.webhooks import DeliveryState, EventType
from app.db.engine import Database
from app.db.sql import lock_row
from app.db.tables import Instant, projects, webhook_deliveries, webhook_events, webhooks


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
