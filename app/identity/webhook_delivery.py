"""Delivers what waits in the outbox; runs in the background worker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from threading import BoundedSemaphore, Thread

from app.domain.errors import UploadError
from app.identity.webhook_sender import WebhookSender, signed_headers
from app.records.identity.deliveries import Claim, DeliveryQueue

MAX_AT_ONCE = 8
"""As many webhooks are sent to at the same time; each has one request at a time."""

MAX_IN_A_ROW = 20
"""After as many deliveries, a webhook lets another have its turn."""

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
        self._slots = BoundedSemaphore(MAX_AT_ONCE)
        self._last = ""

    def deliver_due(self) -> None:
        """Begin to send what is due, as far as there are free threads; does not wait for it."""
        for webhook_id in self._in_turn(self._queue.ready(self._clock())):
            if not self._slots.acquire(blocking=False):
                return
            self._last = webhook_id
            # A daemon: a server that stops does not wait for slow receivers.
            Thread(target=self._deliver_some, args=(webhook_id,), daemon=True).start()

    def _in_turn(self, webhook_ids: list[str]) -> list[str]:
        """Those after the one that had its turn last come first."""
        return sorted(webhook_ids, key=lambda each: (each <= self._last, each))

    def _deliver_some(self, webhook_id: str) -> None:
        try:
            for _ in range(MAX_IN_A_ROW):
                if not self.deliver_next(webhook_id):
                    return
        except UploadError as error:
            log.error("a delivery to a webhook could not be recorded: %s", error)
        finally:
            self._slots.release()

    def deliver_next(self, webhook_id: str) -> bool:
        """Send the next event that is due to a webhook; whether there was one."""
        claim = self._queue.claim(webhook_id, self._clock(), token=self._new_id(), lease=LEASE)
        if claim is not None:
            self._send(claim)
        return claim is not None

    def _send(self, claim: Claim) -> None:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Sluice",
            **signed_headers(claim.secret, claim.event_id, claim.payload, self._clock()),
        }
        answer = self._sender.post(claim.url, claim.payload.encode(), headers)
        now = self._clock()
        if answer.status is not None and answer.problem is None:
            self._queue.note_delivered(claim, now, answer.status)
        else:
            problem = answer.problem or ""
            self._queue.note_failed(claim, now, status=answer.status, problem=problem)
