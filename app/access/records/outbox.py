"""The outbox: an event is recorded in the transaction of the change that it tells of.

Either both are there or neither. Projects without a webhook that wants the event pay for one query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select

from app.core.errors import UploadNotFound
from app.core.lifecycle import UploadState
from app.core.moments import instant, optional_instant
from app.core.playback import Playback, PlaybackState
from app.core.upload import Upload, UploadKind
from app.core.webhooks import DeliveryState, EventType
from app.db.sql import fetch
from app.db.tables import webhook_deliveries, webhook_events, webhooks
from app.records import statements

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
