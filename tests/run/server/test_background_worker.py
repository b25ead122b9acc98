"""The process that works in the background."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest

from app.core.jobs import GARBAGE, Heartbeat, Lane
from app.core.lifecycle import UploadState
from app.core.upload import Upload, UploadId
from app.run.build import build_services
from app.run.server.background_worker import (
    PUBLISHED_AT_ONCE,
    StuckUploads,
    each_node_does,
    periodic_kinds,
    repeat,
)
from app.settings import from_env
from app.storage.s3.inspection import BucketInspection
from tests.dropzone_client import ChunkedFile, send_all
from tests.live_server import running_server
from tests.s3_servers import S3Server, new_prefix
from tests.storage.nodes import discard
from tests.uploads.world import World
from tests.video.films import FilmStore
from tests.waiting import wait_until


@pytest.mark.e2e
def test_a_video_is_indexed_where_web_workers_have_a_single_thread(
    tmp_path: Path, film: FilmStore
) -> None:
    """Each of the worker's threads that looks for work keeps a connection."""
    content = film("h264.mp4").read_bytes()
    with running_server(tmp_path, SLUICE_THREADS="1") as server:
        video = send_all(server, ChunkedFile(content, len(content)))["id"]

        def is_playable() -> bool:
            playback = server.get(f"/api/videos/{video}").json()["playback"]
            return playback is not None and playback["state"] == "ready"

        wait_until(is_playable, "it is indexed")


def test_the_garbage_of_a_bucket_is_a_job_of_one_node(
    tmp_path: Path, versitygw: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lock files are in the node's own folder, so each node removes its own."""
    environment = {
        "SLUICE_DATA_DIR": str(tmp_path),
        "SLUICE_TEST_CONSTANTS": "sweep_seconds=2",
        **versitygw.access.settings(new_prefix()),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    services = build_services(from_env(environment))
    with closing(services.database):
        services.prepare()
        inspection = services.store.inspection
        assert isinstance(inspection, BucketInspection)
        assert (inspection.remove_leftovers, 2.0) in each_node_does(services)
        kind = periodic_kinds(services)[GARBAGE]
        assert kind.every == timedelta(seconds=2)
        inspection.bucket.put_object("files/left", b"by a crash")
        discard(inspection.catalog, "files/left")
        jobs, now = services.media.jobs, services.media.clock()
        jobs.add(GARBAGE, {"": ""}, Lane.UPKEEP, now)
        job = jobs.claim(Lane.UPKEEP, "this node", now, timedelta(seconds=15), [GARBAGE])
        assert job is not None
        kind.run(job, Heartbeat(job))
        assert list(inspection.bucket.list_objects("files/")) == []


def test_folders_have_no_garbage(tmp_path: Path) -> None:
    services = build_services(from_env({"SLUICE_DATA_DIR": str(tmp_path)}))
    with closing(services.database):
        assert GARBAGE not in periodic_kinds(services)
        assert [each for each in each_node_does(services) if each[1] == 2.0] == []


# ---- interrupted uploads -------------------------------------------------------------------------


def test_uploads_that_take_long_to_publish_hold_up_no_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {world.stuck().id for _ in range(PUBLISHED_AT_ONCE - 1)}
    others = [world.stuck() for _ in range(5)]
    world.later(minutes=5)
    begun, may_end, publish = list[UploadId](), Event(), world.completion.publish

    def publish_some_slowly(upload: Upload) -> Upload:
        begun.append(upload.id)
        if upload.id in slow:
            may_end.wait(60)
        return publish(upload)

    monkeypatch.setattr(world.completion, "publish", publish_some_slowly)
    with publishing(StuckUploads(world.housekeeping)):
        wait_until(lambda: all(is_complete(world, each.id) for each in others), "others go on")
        late = world.stuck()
        world.later(minutes=5)
        wait_until(lambda: is_complete(world, late.id), "what comes later is found")
        assert not any(is_complete(world, each) for each in slow)
        may_end.set()
        wait_until(lambda: all(is_complete(world, each) for each in slow), "slow ones end, too")
    assert sorted(begun) == sorted({*begun}), "none is published twice"


def test_one_that_crashes_the_publishing_is_tried_again_and_holds_up_no_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, good = [world.stuck() for _ in range(PUBLISHED_AT_ONCE)], world.stuck()
    world.later(minutes=5)
    attempts, publish = Counter[UploadId](), world.completion.publish

    def crash_often(upload: Upload) -> Upload:
        attempts[upload.id] += 1
        if upload.id != good.id and attempts[upload.id] < 3:
            raise ZeroDivisionError("in the test")
        return publish(upload)

    monkeypatch.setattr(world.completion, "publish", crash_often)
    with publishing(StuckUploads(world.housekeeping)):
        wait_until(lambda: all(is_complete(world, each.id) for each in [good, *broken]), "all are")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.database.close()


def is_complete(world: World, upload_id: UploadId) -> bool:
    return world.records.get(upload_id).state is UploadState.COMPLETE


@contextmanager
def publishing(uploads: StuckUploads) -> Iterator[None]:
    """Run the threads of a background worker that look for uploads and publish them."""
    stop = Event()
    threads = [
        Thread(target=repeat, args=(work,), kwargs={"every": 0.01, "stop": stop}, daemon=True)
        for work in (uploads.look, *[uploads.publish_next] * PUBLISHED_AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        threads[0].join()  # The others wait for uploads.
