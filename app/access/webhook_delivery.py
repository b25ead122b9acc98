"""Delivers what waits in the outbox; runs in the background worker."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from threading import Lock, Thread

from app.access.records.deliveries import Claim, DeliveryQueue
from app.access.webhook_sender import WebhookSender, signed_headers
from app.core.errors import UploadError

MAX_AT_ONCE = 8
"""As many webhooks are sent to at the same time; each has one request at a time."""

MAX_OF_PROJECT = MAX_AT_ONCE // 2
"""As many of them may be of one project: its slow receivers leave room for others."""

MAX_IN_A_ROW = 20
"""After as many deliveries, or one that failed, a webhook lets another have its turn."""

LEASE = timedelta(minutes=1)
"""A delivery that was not noted after this time is sent again: its sender has died. An attempt
takes at most `webhook_sender.TIMEOUT_SECONDS`, and resolving a name before it."""

log = logging.getLogger(__name__)


class WebhookDelivery:
    """At least once, and in order for each video and webhook."""

    def __init__(
        self,
        queue: DeliveryQueue,
        sender: WebhookSender,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._queue = queue
        self._sender = sender
        self._clock = clock
        self._new_id = new_id
        self._slots = _Slots()
        self._turns: dict[str, int] = {}
        self._numbers = count(1)

    def deliver_due(self) -> None:
        """Begin to send what is due, as far as there are free threads; does not wait for it."""
        ready = self._queue.ready(self._clock())
        # Those whose last turn was longest ago come first.
        for webhook_id in sorted(ready, key=lambda each: self._turns.get(each, 0)):
            project_id = ready[webhook_id]
            if self._slots.take(project_id):
                self._turns[webhook_id] = next(self._numbers)
                # A daemon: a server that stops does not wait for slow receivers.
                some = (webhook_id, project_id)
                Thread(target=self._deliver_some, args=some, daemon=True).start()

    def _deliver_some(self, webhook_id: str, project_id: str) -> None:
        try:
            for _ in range(MAX_IN_A_ROW):
                if not self.deliver_next(webhook_id):
                    return
        except UploadError as error:
            log.error("a delivery to a webhook could not be recorded: %s", error)
        finally:
            self._slots.release(project_id)

    def deliver_next(self, webhook_id: str) -> bool:
        """Send the next event that is due to a webhook; whether there was one, and it arrived."""
        claim = self._queue.claim(webhook_id, self._clock(), token=self._new_id(), lease=LEASE)
        return claim is not None and self._send(claim)

    def _send(self, claim: Claim) -> bool:
        now = self._clock()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Sluice",
            **signed_headers(claim.secrets(now), claim.event_id, claim.payload, now),
        }
        answer = self._sender.post(claim.url, claim.payload.encode(), headers)
        now = self._clock()
        if answer.status is not None and answer.problem is None:
            self._queue.note_delivered(claim, now, answer.status)
            return True
        problem = answer.problem or ""
        self._queue.note_failed(claim, now, status=answer.status, problem=problem)
        return False


class _Slots:
    """How many webhooks are being sent to, in all and of each project."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._changing = Lock()

    def take(self, project_id: str) -> bool:
        """Whether there was one left for this project; it is the caller's until `release`."""
        with self._changing:
            is_full = self._taken.total() >= MAX_AT_ONCE
            if is_full or self._taken[project_id] >= MAX_OF_PROJECT:
                return False
            self._taken[project_id] += 1
            return True

    def release(self, project_id: str) -> None:
        """Give it back."""
        with self._changing:
            self._taken[project_id] -= 1
            if not self._taken[project_id]:
                del self._taken[project_id]
