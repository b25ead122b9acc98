"""The queue of deliveries: claimed with a lease, sent, and noted.

At most one delivery of a webhook is sent at a time, and events of one video in their order: none is
claimed while an earlier one is unfinished.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, bindparam, delete, exists, literal_column, not_, select, update

from app.core.webhooks import UNFINISHED, DeliveryState, pause_after
from app.db.engine import Database
from app.db.tables import webhook_deliveries, webhook_events, webhooks

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
