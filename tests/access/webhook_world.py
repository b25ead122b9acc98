"""Webhooks over a database, with a clock that tests set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count

from sqlalchemy import delete

from app.access import webhooks
from app.access.projects import Projects
from app.access.webhook_delivery import (
    BegunDelivery,
    DeliveryQueue,
    WebhookDelivery,
    WebhookSender,
)
from app.access.webhooks import SUBSCRIBABLE, Delivery, EventType, Webhook
from app.core.access import FIRST_PROJECT, LOCAL
from app.core.jobs import WEBHOOK, Job, Lane
from app.core.lifecycle import UploadState
from app.core.upload import Upload
from app.db.context import Context, RequestContext
from app.db.engine import Database
from app.db.jobs import JobRecords, as_claimed, change_jobs, get_job, is_job, key_of
from app.db.tables import jobs
from app.records.uploads import UploadRecords
from app.settings import Settings
from app.video.serve.rows import MediaRecords
from tests.acting import acting
from tests.records.making import NOW, new_upload

URL = "https://hooks.example/"

LEASE = timedelta(seconds=15)


class WebhookWorld:
    """Records with an outbox, and a clock that is set."""

    def __init__(self, database: Database, *, may_be_private: bool = False) -> None:
        self.database, self.now = database, NOW
        numbers = count(1 << 100)  # No upload has such an id.

        settings = Settings(webhook_private=may_be_private)
        self.context = Context(
            database=database,
            clock=lambda: self.now,
            new_id=lambda: f"{next(numbers):032x}",
            settings=settings,
        )
        self.new_id = self.context.new_id
        on_upload = partial(webhooks.on_upload, self.context)
        self.uploads = UploadRecords(database, observers=[on_upload])
        self.media = MediaRecords(database, partial(webhooks.on_playback, self.context))
        self.queue = DeliveryQueue(database)
        self.jobs = JobRecords(database)

    def acting(self, project: str = FIRST_PROJECT) -> RequestContext:
        """The context of somebody who manages the project."""
        return acting(self.context, project)

    def webhook(self, *events: EventType, project: str = FIRST_PROJECT) -> Webhook:
        return webhooks.make(self.acting(project), url=URL, events=events or SUBSCRIBABLE)

    def project(self) -> str:
        """The id of a new project."""
        ctx = self.context.acting(LOCAL)
        return Projects(self.context).make(ctx, "Another", manager=None).id

    def video(self) -> Upload:
        upload = replace(new_upload(), owner=FIRST_PROJECT, state=UploadState.VERIFYING)
        self.uploads.add(upload)
        return self.uploads.move(upload.id, UploadState.COMPLETE, self.now)

    def look(self) -> int:
        """Queue the jobs of webhooks that have something to send; returns their number."""
        sender = WebhookSender(may_be_private=True)
        return WebhookDelivery(self.context, sender).look(self.jobs, self.now)

    def claim_job(self, worker: str) -> Job | None:
        return self.jobs.claim(Lane.WEBHOOKS, worker, self.now, LEASE, [WEBHOOK])

    @contextmanager
    def holding(self, webhook: Webhook) -> Iterator[Job]:
        """The webhook's job, which is the test's alone in the block."""
        key = key_of(webhook.id, WEBHOOK, "")
        self.jobs.add(WEBHOOK, {webhook.id: webhook.project_id}, Lane.WEBHOOKS, self.now)
        with self.database.write() as connection:
            job = get_job(connection, key)
            assert job is not None
            change_jobs(connection, is_job(key), as_claimed(job, "test", self.now, LEASE))
            job = get_job(connection, key)
        assert job is not None
        yield job
        with self.database.write() as connection:
            connection.execute(delete(jobs).where(is_job(key)))

    def begin(self, webhook: Webhook) -> BegunDelivery | None:
        if webhook.id not in self.queue.ready(self.now):
            return None
        with self.holding(webhook) as job:
            return self.queue.begin(job, self.now)

    def deliver(self, delivery: WebhookDelivery, webhook: Webhook) -> bool:
        """Send the webhook its next event; whether there was one, and it arrived."""
        with self.holding(webhook) as job:
            return delivery.deliver_next(job)

    def begun(self, webhook: Webhook, job: Job | None = None) -> BegunDelivery:
        """The next delivery, of a webhook that is due or of a job that was claimed."""
        begun = self.queue.begin(job, self.now) if job else self.begin(webhook)
        assert begun is not None
        return begun

    def fail(self, begun: BegunDelivery) -> None:
        assert self.queue.note_failed(begun, self.now, status=500, problem="It answered 500.")

    def succeed(self, begun: BegunDelivery) -> None:
        assert self.queue.note_delivered(begun, self.now, 200)

    def deliveries(self, webhook: Webhook) -> list[Delivery]:
        return webhooks.deliveries(self.context, webhook).deliveries

    def told(self, webhook: Webhook) -> list[str]:
        return [delivery.type.value for delivery in reversed(self.deliveries(webhook))]
