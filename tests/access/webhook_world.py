"""Webhooks over a database, with a clock that tests set."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from itertools import count

from app.access.projects import Project, ProjectRecords
from app.access.webhook_delivery import LEASE
from app.access.webhooks import (
    SUBSCRIBABLE,
    Claim,
    Delivery,
    DeliveryQueue,
    EventType,
    Outbox,
    Webhook,
    WebhookRecords,
    Webhooks,
)
from app.core.access import FIRST_PROJECT
from app.core.lifecycle import UploadState
from app.core.upload import Upload
from app.db.engine import Database
from app.records.uploads import UploadRecords
from app.video.serve.rows import MediaRecords
from tests.records.making import NOW, new_upload

URL = "https://hooks.example/"


class WebhookWorld:
    """Records with an outbox, and a clock that is set."""

    def __init__(self, database: Database, *, may_be_private: bool = False) -> None:
        self.database, self.now = database, NOW
        numbers = count(1)

        def clock() -> datetime:
            return self.now

        def new_id() -> str:
            return f"{next(numbers):032x}"

        self.new_id = new_id
        outbox = Outbox(clock, new_id)
        self.uploads = UploadRecords(database, observers=[outbox.on_upload])
        self.media = MediaRecords(database, outbox.on_playback)
        self.queue = DeliveryQueue(database)
        self.webhooks = Webhooks(
            WebhookRecords(database, outbox),
            self.queue,
            may_be_private=may_be_private,
            clock=clock,
            new_id=new_id,
        )

    def webhook(self, *events: EventType) -> Webhook:
        wanted = events or SUBSCRIBABLE
        return self.webhooks.make(FIRST_PROJECT, url=URL, events=wanted, created_by="person:1")

    def project(self) -> str:
        """The id of a new project."""
        new = self.new_id()
        project = Project(id=new, name=new, created_at=self.now)
        ProjectRecords(self.database).add(project, manager=None)
        return new

    def video(self) -> Upload:
        upload = replace(new_upload(), owner=FIRST_PROJECT, state=UploadState.VERIFYING)
        self.uploads.add(upload)
        return self.uploads.move(upload.id, UploadState.COMPLETE, self.now)

    def claim(self, webhook: Webhook) -> Claim | None:
        if webhook.id not in self.queue.ready(self.now):
            return None
        return self.queue.claim(webhook.id, self.now, token=self.new_id(), lease=LEASE)

    def claimed(self, webhook: Webhook) -> Claim:
        claim = self.claim(webhook)
        assert claim is not None
        return claim

    def fail(self, claim: Claim) -> None:
        assert self.queue.note_failed(claim, self.now, status=500, problem="It answered 500.")

    def succeed(self, claim: Claim) -> None:
        assert self.queue.note_delivered(claim, self.now, 200)

    def deliveries(self, webhook: Webhook) -> list[Delivery]:
        return self.webhooks.deliveries(webhook).deliveries

    def told(self, webhook: Webhook) -> list[str]:
        return [delivery.type.value for delivery in reversed(self.deliveries(webhook))]
