"""Webhooks of a project: made, changed, tested, and what was delivered to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address

from app.access.records.deliveries import DeliveryQueue
from app.access.records.webhooks import Delivery, Webhook, WebhookRecords
from app.core.errors import EntryNotFound, InvalidRequest
from app.core.numbers import parse_bounded
from app.core.webhooks import KEPT, EventType, check_url, is_public, new_secret

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
