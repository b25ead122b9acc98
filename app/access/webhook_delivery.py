"""Delivers what waits in the outbox; runs in the background worker."""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from threading import Timer
from typing import Any
from urllib.parse import SplitResult

from sqlalchemy import and_, bindparam, exists, literal_column, not_, select, update
from standardwebhooks import Webhook as Signer

from app.access.webhooks import UNFINISHED, DeliveryState, check_url, is_public, pause_after
from app.core.errors import InvalidRequest, UploadError
from app.core.jobs import WEBHOOK, Heartbeat, Job, Lane
from app.db.context import Context
from app.db.engine import Database
from app.db.jobs import JobRecords, is_held
from app.db.tables import jobs, webhook_deliveries, webhook_events, webhooks

# ---- the queue -----------------------------------------------------------------------------------

# A webhook with something to send has one job, which sends one delivery after another. Events of
# one video are sent in their order: none while an earlier one is unfinished.


_ours, _other = webhook_deliveries, webhook_deliveries.alias()

_HAS_EARLIER = exists().where(
    _other.c.webhook_id == _ours.c.webhook_id,
    _other.c.subject == _ours.c.subject,
    _other.c.event_number < _ours.c.event_number,
    _other.c.state.in_(UNFINISHED),
)

_READY = select(webhooks.c.id, webhooks.c.project_id).where(
    webhooks.c.paused_at.is_(None),
    exists().where(
        _ours.c.webhook_id == webhooks.c.id,
        _ours.c.state.in_(UNFINISHED),
        _ours.c.due_at <= bindparam("now"),
        not_(_HAS_EARLIER),
    ),
    not_(exists().where(jobs.c.subject == webhooks.c.id, jobs.c.kind == WEBHOOK)),
)
"""Runs after each change."""

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
        webhooks.c.paused_at.is_(None),
        _ours.c.webhook_id == bindparam("webhook"),
        _ours.c.state == literal_column(f"'{DeliveryState.WAITING}'"),
        _ours.c.due_at <= bindparam("now"),
        not_(_HAS_EARLIER),
    )
    .order_by(_ours.c.due_at, _ours.c.event_number)
    .limit(1)
)
"""One state alone: an index then has them in this order, however many wait."""

_LOST = (
    update(_ours)
    .where(_ours.c.webhook_id == bindparam("webhook"), _ours.c.state == DeliveryState.SENDING)
    .values(state=DeliveryState.WAITING.value)
)
"""What a sender had that died, or that has lost the lease of its job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunDelivery:
    """A delivery that is being sent."""

    delivery_id: str
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
    """Every call is one transaction. Only the holder of a webhook's job begins its deliveries."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ready(self, now: datetime) -> dict[str, str]:
        """The webhooks that have something to send and no job yet, each with its project."""
        with self._database.read() as connection:
            return {row.id: row.project_id for row in connection.execute(_READY, {"now": now})}

    def begin(self, job: Job, now: datetime) -> BegunDelivery | None:
        """The next delivery of the job's webhook, also one whose sender died.

        None if none is due, or if another worker has the job now.
        """
        held = select(jobs.c.subject).where(is_held(job)).with_for_update()
        with self._database.write() as connection:
            if connection.execute(held).first() is None:
                return None
            values = {"now": now, "webhook": job.subject}
            connection.execute(_LOST, values)
            row = connection.execute(_NEXT, values).first()
            if row is None:
                return None
            begun = {"state": DeliveryState.SENDING.value, "attempts": row.attempts + 1}
            connection.execute(update(_ours).where(_ours.c.id == row.id).values(begun))
        about = dict(row._mapping)
        about["delivery_id"] = about.pop("id")
        return BegunDelivery(**{**about, "attempts": row.attempts + 1})

    def note_delivered(self, begun: BegunDelivery, now: datetime, status: int) -> bool:
        """Note that the receiver has it; False if another sender has begun it again."""
        delivered = {
            "state": DeliveryState.DELIVERED.value,
            "status": status,
            "problem": None,
            "delivered_at": now,
        }
        return self._note(begun, delivered, later_due_at=now)

    def note_failed(
        self, begun: BegunDelivery, now: datetime, *, status: int | None, problem: str
    ) -> bool:
        """Note a failed attempt, and when the next one is; False as for `note_delivered`.

        Later events of the same video wait as long.
        """
        pause = pause_after(begun.attempts)
        state = DeliveryState.FAILED if pause is None else DeliveryState.WAITING
        due_at = now + (pause or timedelta(0))
        failed = {"state": state.value, "status": status, "problem": problem, "due_at": due_at}
        return self._note(begun, failed, later_due_at=due_at)

    def _note(
        self, begun: BegunDelivery, values: Mapping[str, Any], *, later_due_at: datetime
    ) -> bool:
        is_ours = and_(
            _ours.c.id == begun.delivery_id,
            _ours.c.state == DeliveryState.SENDING,
            _ours.c.attempts == begun.attempts,
        )
        follows = and_(
            _ours.c.webhook_id == begun.webhook_id,
            _ours.c.subject == begun.subject,
            _ours.c.id != begun.delivery_id,
            _ours.c.state == DeliveryState.WAITING,
        )
        with self._database.write() as connection:
            is_noted = connection.execute(update(_ours).where(is_ours).values(values)).rowcount == 1
            if is_noted:
                connection.execute(update(_ours).where(follows).values(due_at=later_due_at))
        return is_noted


# ---- sending -------------------------------------------------------------------------------------

# Sends one event to one URL, which a stranger may have chosen: to the public internet alone.


TIMEOUT_SECONDS = 10.0
"""For one attempt, from the connection to the answer."""

MAX_ANSWER_BYTES = 4096
"""More of an answer's body is not read; nothing of it is kept."""

MAX_ADDRESSES = 4
"""Of a name with more addresses, the others are not tried."""

Resolve = Callable[[str, int], list[str]]
"""The IP addresses of a host name; raises `OSError`."""


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The status of the answer, if there was one, and what is wrong with it."""

    status: int | None
    problem: str | None


class _RefusedAddress(Exception):
    """Nothing may be sent there; says why."""


def addresses_of(host: str, port: int) -> list[str]:
    """What the system's resolver says, in its order."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


def signed_headers(
    secrets: Sequence[str], event_id: str, payload: str, now: datetime
) -> dict[str, str]:
    """The headers of Standard Webhooks: id, time, and a signature (version 1) by each secret."""
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(
            Signer(secret).sign(event_id, now, payload) for secret in secrets
        ),
    }


@dataclass(frozen=True, kw_only=True)
class WebhookSender:
    """Each event is one POST. Redirects are not followed: they would lead anywhere.

    The name is resolved once, and the connection goes to an address that was checked: a name that
    has another address a moment later leads nowhere else. The certificate must be for the name.
    """

    may_be_private: bool
    resolve: Resolve = addresses_of
    timeout_seconds: float = TIMEOUT_SECONDS
    certificates: Callable[[], ssl.SSLContext] = ssl.create_default_context

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self.certificates()

    def post(self, url: str, body: bytes, headers: dict[str, str]) -> DeliveryResult:
        """Send it; what was answered, or why not. Never raises for what a receiver does."""
        deadline = time.monotonic() + self.timeout_seconds
        try:
            status = self._post(check_url(url), body, headers, deadline)
        except (_RefusedAddress, InvalidRequest) as error:
            return DeliveryResult(None, str(error))
        except (OSError, http.client.HTTPException) as error:
            too_late = f"There was no answer within {self.timeout_seconds:g} seconds."
            is_late = time.monotonic() >= deadline
            return DeliveryResult(None, too_late if is_late else _words(error))
        problem = None if 200 <= status < 300 else f"The receiver answered {status}."
        if 300 <= status < 400:
            problem = f"The receiver answered {status}; redirects are not followed."
        return DeliveryResult(status, problem)

    def _post(self, url: SplitResult, body: bytes, headers: dict[str, str], deadline: float) -> int:
        host, is_tls = url.hostname or "", url.scheme == "https"
        port = url.port or (443 if is_tls else 80)
        kind = http.client.HTTPSConnection if is_tls else http.client.HTTPConnection
        connection = kind(host, port)
        plain = self._connect(self._allowed_addresses(host, port), port, deadline)
        with closing(plain), _cut_off(plain, deadline), closing(connection):
            # A connection that has a socket opens none: it would resolve the name again.
            connection.sock = (
                self._tls.wrap_socket(plain, server_hostname=host) if is_tls else plain
            )
            target = (url.path or "/") + (f"?{url.query}" if url.query else "")
            connection.request("POST", target, body, headers)
            answer = connection.getresponse()
            answer.read(MAX_ANSWER_BYTES)
            if time.monotonic() >= deadline:  # It may look complete where it was cut off.
                raise TimeoutError
            return answer.status

    def _allowed_addresses(self, host: str, port: int) -> list[str]:
        try:
            found = self.resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise _RefusedAddress(f"The name {host} cannot be resolved.") from error
        allowed = [each for each in found if self.may_be_private or is_public(each)]
        if not allowed:
            raise _RefusedAddress(
                f"{host} is in a private network ({', '.join(found)[:100]}): nothing is sent there."
            )
        return allowed[:MAX_ADDRESSES]

    def _connect(self, addresses: list[str], port: int, deadline: float) -> socket.socket:
        """A connection to the first of the addresses that accepts one."""
        failure = OSError("there is no address")
        for address in addresses:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            try:
                return socket.create_connection((address, port), remaining)
            except OSError as error:
                failure = error
        raise failure


@contextmanager
def _cut_off(connected: socket.socket, deadline: float) -> Iterator[None]:
    """End the connection at the deadline, however slowly bytes trickle.

    A socket's own timeout is for each read, and a receiver may send a byte every few seconds.
    """
    handle = connected.dup()  # TLS takes the original over.

    def cut() -> None:
        with suppress(OSError):
            handle.shutdown(socket.SHUT_RDWR)

    timer = Timer(max(0.0, deadline - time.monotonic()), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        handle.close()


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"The certificate is not valid: {error.verify_message}."
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or 'the connection ended'}."
    if isinstance(error, OSError):
        return f"The connection failed: {error.strerror or 'it ended early'}."
    return "The answer is not HTTP."


# ---- the worker ----------------------------------------------------------------------------------


MAX_IN_A_ROW = 20
"""After as many deliveries, or one that failed, a webhook lets another have its turn."""

log = logging.getLogger(__name__)


class WebhookDelivery:
    """At least once, and in order for each video and webhook."""

    def __init__(self, ctx: Context, sender: WebhookSender) -> None:
        self._queue = DeliveryQueue(ctx.database)
        self._sender = sender
        self._clock = ctx.clock

    def look(self, jobs: JobRecords, now: datetime) -> int:
        """Queue a job for each webhook that has something to send; returns their number.

        Webhooks of one project take turns with those of others. `now` is the time of `jobs`.
        """
        ready = self._queue.ready(self._clock())
        if ready:
            # If a crash of the database undoes it, the next look finds them again.
            jobs.add(WEBHOOK, ready, Lane.WEBHOOKS, now, is_durable=False)
        return len(ready)

    def deliver_some(self, job: Job, beat: Heartbeat) -> None:
        """Send a webhook what is due, for one turn."""
        try:
            for _ in range(MAX_IN_A_ROW):
                beat.go_on()
                if not self.deliver_next(job):
                    break
        except UploadError as error:
            log.error("a delivery to a webhook could not be recorded: %s", error)

    def deliver_next(self, job: Job) -> bool:
        """Send the next event that is due to a webhook; whether there was one, and it arrived."""
        begun = self._queue.begin(job, self._clock())
        if begun is None:
            return False
        now = self._clock()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Sluice",
            **signed_headers(begun.secrets(now), begun.event_id, begun.payload, now),
        }
        answer = self._sender.post(begun.url, begun.payload.encode(), headers)
        now = self._clock()
        if answer.status is not None and answer.problem is None:
            self._queue.note_delivered(begun, now, answer.status)
            return True
        problem = answer.problem or ""
        self._queue.note_failed(begun, now, status=answer.status, problem=problem)
        return False
