"""Events for webhooks: recorded with the change, sent in order, each by one sender at a time."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from app.access import webhooks
from app.access.webhook_delivery import BegunDelivery
from app.access.webhooks import (
    BATCH,
    KEPT,
    MAX_WEBHOOKS,
    PAUSES,
    DeliveryState,
    EventType,
)
from app.core.access import FIRST_PROJECT
from app.core.errors import EntryNotFound, InvalidRequest
from app.core.jobs import Lane
from app.core.lifecycle import UploadState
from app.core.playback import PlaybackProblem, PlaybackState
from app.core.upload import Upload, UploadKind
from app.db.engine import Database
from app.db.waking import WakeupSocket
from app.records.uploads import UploadRecords
from app.settings import Settings
from tests.access.webhook_world import LEASE, WebhookWorld
from tests.records.making import NOW, new_upload

SECOND = timedelta(seconds=1)


@pytest.fixture
def world(database: Database) -> WebhookWorld:
    return WebhookWorld(database)


def about(begun: BegunDelivery) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(begun.payload)
    return payload


def test_an_upload_is_told_of_from_completion_to_deletion(world: WebhookWorld) -> None:
    webhook = world.webhook()
    video = world.video()
    world.media.add(video.id, NOW, is_planned=True)
    world.media.describe(video.id, PlaybackState.PLAYABLE, NOW, facts={"duration": 2.5})
    assert world.media.settle([], NOW, limit=9, only=None) == [video.id]
    world.uploads.move(video.id, UploadState.DELETED, NOW)
    assert world.told(webhook) == ["upload.completed", "video.ready", "video.deleted"]
    completed = world.begun(webhook)
    world.succeed(completed)
    ready = world.begun(webhook)
    assert about(completed)["type"] == "upload.completed"
    assert about(completed)["data"]["filename"] == video.filename
    assert about(ready)["data"]["id"] == video.id
    assert about(ready)["data"]["playback"] == {"state": "ready", "duration": 2.5, "problem": None}


def test_a_film_that_cannot_be_played_is_told_once_with_its_problem(world: WebhookWorld) -> None:
    webhook = world.webhook(EventType.VIDEO_FAILED, EventType.VIDEO_READY)
    film = world.video().id
    world.media.add(film, NOW, is_planned=True)
    problem = PlaybackProblem("damaged", "The file is damaged.")
    world.media.conclude([(film, PlaybackState.UNPLAYABLE, problem)], NOW)
    world.media.describe(film, PlaybackState.UNPLAYABLE, NOW, facts=None, problem=problem)
    assert world.told(webhook) == ["video.failed"]
    told = about(world.begun(webhook))["data"]["playback"]["problem"]
    assert told == {"code": "damaged", "detail": "The file is damaged."}
    world.media.move(film, PlaybackState.READY, NOW)
    assert world.told(webhook) == ["video.failed", "video.ready"]


def test_a_film_that_is_looked_at_while_it_arrives_is_not_told_of_yet(world: WebhookWorld) -> None:
    webhook = world.webhook()
    upload, _ = world.uploads.add(replace(new_upload(), owner=FIRST_PROJECT))
    world.media.add(upload.id, NOW, is_planned=False)
    world.media.describe(upload.id, PlaybackState.UNPLAYABLE, NOW, facts=None)
    assert world.told(webhook) == []


def test_uploads_that_end_are_told_of_but_not_parts_of_a_file(world: WebhookWorld) -> None:
    webhook = world.webhook()
    for kind in (UploadKind.FILE, UploadKind.PARTIAL):
        for state in (UploadState.CANCELLED, UploadState.EXPIRED):
            upload = replace(new_upload(), owner=FIRST_PROJECT, kind=kind)
            world.uploads.add(upload)
            world.uploads.move(upload.id, state, NOW)
    assert world.told(webhook) == ["upload.cancelled", "upload.expired"]


def test_only_webhooks_that_want_an_event_get_it(world: WebhookWorld) -> None:
    wants = world.webhook(EventType.UPLOAD_COMPLETED)
    deaf = world.webhook(EventType.VIDEO_READY)
    world.video()
    assert [world.told(each) for each in (wants, deaf)] == [["upload.completed"], []]


def test_a_change_that_is_rolled_back_leaves_no_event(world: WebhookWorld) -> None:
    webhook = world.webhook()

    def refuse(_connection: Connection, _before: Upload | None, after: Upload | None) -> None:
        if after is not None and after.state is UploadState.COMPLETE:
            raise RuntimeError("refused after the outbox had written")

    on_upload = partial(webhooks.on_upload, world.context)
    records = UploadRecords(world.database, observers=[on_upload, refuse])
    verifying = replace(new_upload(), owner=FIRST_PROJECT, state=UploadState.VERIFYING)
    upload, _ = records.add(verifying)
    with pytest.raises(RuntimeError):
        records.move(upload.id, UploadState.COMPLETE, NOW)
    assert records.get(upload.id).state is UploadState.VERIFYING
    assert world.told(webhook) == []


def test_events_of_one_video_wait_for_the_one_before_and_others_do_not(world: WebhookWorld) -> None:
    webhook = world.webhook()
    first, second = world.video(), world.video()
    world.uploads.move(first.id, UploadState.DELETED, NOW)
    failing = world.begun(webhook)
    assert (failing.subject, failing.attempts) == (first.id, 1)
    world.fail(failing)
    other = world.begun(webhook)
    assert other.subject == second.id
    world.succeed(other)
    assert world.begin(webhook) is None
    world.now += PAUSES[0]
    again = world.begun(webhook)
    assert (again.event_id, again.attempts) == (failing.event_id, 2)
    world.succeed(again)
    last = world.begun(webhook)
    assert about(last)["type"] == "video.deleted"


def test_nothing_is_ready_while_all_that_is_due_waits_for_an_earlier_event(
    world: WebhookWorld,
) -> None:
    webhook = world.webhook()
    video = world.video()
    world.fail(world.begun(webhook))
    world.uploads.move(video.id, UploadState.DELETED, NOW)
    assert not world.queue.ready(world.now)
    world.now += PAUSES[0]
    world.succeed(world.begun(webhook))
    assert about(world.begun(webhook))["type"] == "video.deleted"


def test_after_three_days_an_event_has_failed_and_the_next_is_sent(world: WebhookWorld) -> None:
    webhook = world.webhook()
    video = world.video()
    world.uploads.move(video.id, UploadState.DELETED, NOW)
    for pause in PAUSES:
        world.fail(world.begun(webhook))
        world.now += pause - SECOND
        assert world.begin(webhook) is None
        world.now += SECOND
    world.fail(world.begun(webhook))
    deleted, completed = world.deliveries(webhook)
    assert (completed.state, completed.status) == (DeliveryState.FAILED, 500)
    assert completed.problem == "It answered 500."
    assert world.begun(webhook).delivery_id == deleted.id


def test_a_webhook_gets_one_request_at_a_time_whatever_others_get(
    world: WebhookWorld,
) -> None:
    webhook_ids = {world.webhook().id, world.webhook().id}
    world.video()
    assert world.look() == 2
    held = world.claim_job("one")
    assert world.look() == 0
    other = world.claim_job("two")
    assert held is not None
    assert other is not None
    assert {held.subject, other.subject} == webhook_ids
    assert world.claim_job("three") is None
    assert world.jobs.finish(held, world.now)
    assert world.look() == 1
    again = world.claim_job("three")
    assert again is not None
    assert again.subject == held.subject


def test_what_a_dead_sender_had_is_sent_again_and_it_notes_nothing(
    world: WebhookWorld,
) -> None:
    webhook = world.webhook()
    world.video()
    dead = world.begun(webhook)
    assert world.deliveries(webhook)[0].state is DeliveryState.SENDING
    alive = world.begun(webhook)
    assert (alive.event_id, alive.attempts) == (dead.event_id, 2)
    assert not world.queue.note_delivered(dead, world.now, 200)
    assert not world.queue.note_failed(dead, world.now, status=None, problem="late")
    world.succeed(alive)
    assert world.deliveries(webhook)[0].state is DeliveryState.DELIVERED


def test_a_worker_leaves_room_for_other_projects(world: WebhookWorld) -> None:
    most = Lane.WEBHOOKS.most_of_client
    other = [world.webhook(project=world.project()) for _ in range(2)]
    for _ in range(most + 2):
        world.webhook()
    world.video()
    for webhook in other:
        webhooks.send_test(world.acting(webhook.project_id), webhook.id)
    world.look()
    jobs = [world.claim_job("worker") for _ in range(most + 3)]
    projects = [job.client for job in jobs if job is not None]
    assert sorted(projects[:3]) == sorted({FIRST_PROJECT, *(each.project_id for each in other)})
    assert projects.count(FIRST_PROJECT) == most
    assert world.claim_job("another worker") is not None


def test_a_paused_webhook_gets_its_events_later(world: WebhookWorld) -> None:
    webhook = world.webhook()
    webhooks.change(world.acting(), webhook.id, is_paused=True)
    world.video()
    assert world.begin(webhook) is None
    webhooks.change(world.acting(), webhook.id, is_paused=False)
    assert about(world.begun(webhook))["type"] == "upload.completed"


def test_a_change_writes_nothing_but_what_it_names(world: WebhookWorld) -> None:
    webhook = world.webhook(EventType.VIDEO_READY)
    change = partial(webhooks.change, world.acting(), webhook.id)
    assert change() == webhook
    paused = replace(webhook, paused_at=world.now)
    assert change(is_paused=True) == paused
    world.now += SECOND
    assert change(is_paused=True) == paused, "since the first time"
    elsewhere = replace(paused, url="https://hooks.example/2", events=(EventType.VIDEO_DELETED,))
    assert change(url=elsewhere.url, events=elsewhere.events) == elsewhere
    assert change(is_paused=False) == replace(elsewhere, paused_at=None)


def test_a_delivery_is_sent_again_from_the_start(world: WebhookWorld) -> None:
    webhook = world.webhook()
    world.video()
    first = world.begun(webhook)
    being_sent = webhooks.send_again(world.acting(), webhook.id, first.delivery_id)
    assert being_sent.state is DeliveryState.SENDING
    world.succeed(first)
    assert world.begin(webhook) is None
    webhooks.send_again(world.acting(), webhook.id, first.delivery_id)
    again = world.begun(webhook)
    assert (again.event_id, again.attempts) == (first.event_id, 1)
    with pytest.raises(EntryNotFound):
        webhooks.send_again(world.acting(), webhook.id, "f" * 32)


def test_what_people_ask_to_be_sent_wakes_the_worker(world: WebhookWorld, tmp_path: Path) -> None:
    webhook, wakeup = world.webhook(), WakeupSocket(tmp_path)
    ctx = replace(world.acting(), settings=Settings(data_dir=tmp_path))
    wakeup.open()
    with closing(wakeup):
        sent = webhooks.send_test(ctx, webhook.id)
        wakeup.wait(0.0)
        assert wakeup.count == 1
        webhooks.send_again(ctx, webhook.id, sent.id)
        wakeup.wait(0.0)
        assert wakeup.count == 2
        for is_paused in (True, False):
            webhooks.change(ctx, webhook.id, is_paused=is_paused)
            wakeup.wait(0.0)
        assert wakeup.count == 3


def test_a_test_goes_to_one_webhook_alone(world: WebhookWorld) -> None:
    tested, other = world.webhook(), world.webhook()
    delivery = webhooks.send_test(world.acting(), tested.id)
    assert (delivery.type, delivery.state) == (EventType.TEST, DeliveryState.WAITING)
    assert about(world.begun(tested))["type"] == "webhook.test"
    assert world.told(other) == []


def test_webhooks_of_another_project_are_unknown(world: WebhookWorld) -> None:
    webhook = world.webhook()
    for refused in (
        lambda: webhooks.get(world.acting("other"), webhook.id),
        lambda: webhooks.change(world.acting("other"), webhook.id, is_paused=True),
        lambda: webhooks.remove(world.acting("other"), webhook.id),
        lambda: webhooks.send_test(world.acting("other"), webhook.id),
    ):
        with pytest.raises(EntryNotFound):
            refused()


def test_a_removed_webhook_takes_its_deliveries_along(world: WebhookWorld) -> None:
    webhook = world.webhook()
    world.video()
    held = world.begun(webhook)
    webhooks.remove(world.acting(), webhook.id)
    assert webhooks.of_project(world.acting()) == []
    assert world.deliveries(webhook) == []
    assert not world.queue.note_delivered(held, world.now, 200)


def test_a_project_has_a_limited_number_and_no_private_addresses(world: WebhookWorld) -> None:
    webhook = world.webhook()
    for _ in range(MAX_WEBHOOKS - 1):
        world.webhook()
    with pytest.raises(InvalidRequest):
        world.webhook()
    for host in ("127.0.0.1", "[::ffff:10.0.0.1]", "169.254.169.254"):
        with pytest.raises(InvalidRequest):
            webhooks.change(world.acting(), webhook.id, url=f"http://{host}/")


def test_pages_of_deliveries_follow_each_other(world: WebhookWorld) -> None:
    webhook = world.webhook()
    for _ in range(5):
        world.video()
    page = webhooks.deliveries(world.context, webhook, limit=3)
    rest = webhooks.deliveries(world.context, webhook, limit=3, cursor=page.next_cursor)
    numbers = [each.number for each in [*page.deliveries, *rest.deliveries]]
    assert numbers == sorted(numbers, reverse=True)
    assert (len(numbers), rest.next_cursor) == (5, None)


def test_old_events_are_removed_in_batches_with_their_deliveries(world: WebhookWorld) -> None:
    webhook = world.webhook()
    for _ in range(BATCH + 1):
        webhooks.send_test(world.acting(), webhook.id)
    world.now += KEPT - SECOND
    world.video()
    world.now += 2 * SECOND
    webhooks.remove_old(world.context)
    assert world.told(webhook) == ["upload.completed"]


def test_a_worker_that_has_lost_the_job_of_a_webhook_begins_no_delivery(
    world: WebhookWorld,
) -> None:
    world.webhook()
    world.video()
    world.look()
    lost = world.claim_job("a")
    world.now += LEASE
    held = world.claim_job("b")
    assert lost is not None
    assert held is not None
    assert world.queue.begin(held, world.now) is not None
    assert world.queue.begin(lost, world.now) is None


def test_only_what_is_found_again_does_not_wait_for_the_disk_of_a_server(
    on_server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row that says an event is being sent does wait: otherwise a crash could hide that."""
    world, write, waited = WebhookWorld(on_server), on_server.write, list[bool]()
    webhook = world.webhook()
    world.video()

    def noted(*, is_durable: bool = True) -> AbstractContextManager[Connection]:
        waited.append(is_durable)
        return write(is_durable=is_durable)

    monkeypatch.setattr(on_server, "write", noted)
    world.look()
    job = world.claim_job("worker")
    assert waited == [False, False]
    world.succeed(world.begun(webhook, job))
    assert waited[2:] == [True, True]
