"""The completion of an upload: exactly once, whoever takes part and whatever interferes."""

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import (
    BodyStalled,
    BodyTruncated,
    StorageFailed,
    UploadComplete,
    UploadError,
    UploadGone,
    WriterSuperseded,
)
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload
from app.ingest import stages
from app.ingest.checksum import digest_of
from app.ingest.copy import BodyLimits
from app.ingest.stages import Stage, StageClock
from app.storage.base import BytesLost, Durability
from app.storage.local import LocalStore
from app.uploads import completion
from tests.storage.sources import StallingSource, body, pattern
from tests.storage.stores import record
from tests.uploads.world import LIMITS, ME, World, eventually, in_threads


def covered(world: World, length: int = 1000) -> Upload:
    """An unpublished upload with all of its bytes."""
    upload = world.create(length)
    world.send(upload, 0, length - 1)
    with world.store.staging.writer(upload.id, ByteRange(0, length), LIMITS) as writer:
        writer.write(ByteRange(0, length), body(0, length), lambda _: None)
        with writer.recording() as rows:
            last = ByteRange(length - 1, length)
            return world.records.add_received(upload, last, world.now, rows=rows)


def test_many_threads_sending_all_chunks_complete_the_upload_once(world: World) -> None:
    upload = world.create(16_000)
    outcomes = in_threads(16, lambda n: world.send(upload, n * 1000, (n + 1) * 1000))
    assert [outcome for outcome in outcomes if not isinstance(outcome, Upload)] == []
    assert world.completed_count == 1
    assert world.content(upload) == pattern(0, 16_000)


def test_concurrent_publications_are_announced_once(world: World) -> None:
    upload = covered(world)
    outcomes = in_threads(8, lambda _: world.completion.publish(upload))
    assert [o for o in outcomes if not isinstance(o, Upload)] == []
    assert {o.state for o in outcomes if isinstance(o, Upload)} == {UploadState.COMPLETE}
    assert world.completed_count == 1


def test_concurrent_repeats_of_the_last_chunk_get_one_answer(world: World) -> None:
    upload = world.create(1000)
    world.send(upload, 0, 900)
    stale = world.service.get(ME, upload.id)
    outcomes = in_threads(8, lambda _: world.chunks.append(stale, 900, body(900, 1000)))
    assert [outcome for outcome in outcomes if not isinstance(outcome, Upload)] == []
    assert {outcome.state for outcome in outcomes if isinstance(outcome, Upload)} == {
        UploadState.COMPLETE
    }
    assert world.completed_count == 1


def test_a_slow_publication_is_answered_as_verifying_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, may_publish = World(tmp_path), threading.Event()
    world.completion.answer_within_seconds, world.completion.short_bytes = 0.01, 0
    publish = world.store.library.publish

    def publish_slowly(key: str, length: int) -> None:
        may_publish.wait(30)
        publish(key, length)

    monkeypatch.setattr(world.store.library, "publish", publish_slowly)
    upload = world.create(10)
    assert world.send(upload, 0, 10).state is UploadState.VERIFYING
    may_publish.set()
    eventually(lambda: world.completed_count == 1)
    assert world.service.get(ME, upload.id).state is UploadState.COMPLETE


def test_a_request_that_stopped_waiting_is_timed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, has_begun, may_publish = World(tmp_path), threading.Event(), threading.Event()
    world.completion.answer_within_seconds, world.completion.short_bytes = 0.01, 0
    publish = world.store.library.publish

    def publish_slowly(key: str, length: int) -> None:
        has_begun.set()
        may_publish.wait(30)
        publish(key, length)

    monkeypatch.setattr(world.store.library, "publish", publish_slowly)
    upload = world.create(10)
    clock = StageClock()
    token = stages.start(clock)
    try:
        assert world.send(upload, 0, 10).state is UploadState.VERIFYING
        assert has_begun.wait(30)
        with Stage.RECORD:
            may_publish.set()
            eventually(lambda: world.completed_count == 1)
            assert clock.switch(Stage.RECORD) is Stage.RECORD, "no other thread has switched it"
    finally:
        stages.stop(token)
    assert Stage.PUBLISH not in clock.seconds


@pytest.mark.parametrize("length", [10, 1000], ids=["short", "long without a digest"])
def test_a_file_without_a_digest_to_check_does_not_wait(
    world: World, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    world.completion.short_bytes = 100
    may_go_on, is_summing = threading.Event(), threading.Semaphore(0)
    real: Callable[..., str] = digest_of

    def slowly(*arguments: Any) -> str:
        is_summing.release()
        assert may_go_on.wait(30)
        return real(*arguments)

    monkeypatch.setattr(completion, "digest_of", slowly)
    right = f"sha256:{hashlib.sha256(pattern(0, 1000)).hexdigest()}"
    summed = [world.create(1000, repr_digest=right) for _ in range(2 * completion.READING_THREADS)]
    threads = [threading.Thread(target=world.send, args=(each, 0, 1000)) for each in summed]
    for thread in threads:
        thread.start()
    for _ in range(completion.READING_THREADS):
        assert is_summing.acquire(timeout=30)
    assert world.send(world.create(length), 0, length).state is UploadState.COMPLETE
    assert not may_go_on.is_set()
    may_go_on.set()
    for thread in threads:
        thread.join(30)
    assert {world.state(each) for each in summed} == {UploadState.COMPLETE}


@pytest.mark.folders
def test_a_truncated_file_is_given_up_with_or_without_a_digest(world: World) -> None:
    right = f"sha256:{hashlib.sha256(pattern(0, 1000)).hexdigest()}"
    for digest in (None, right):
        upload = world.create(1000, repr_digest=digest)
        world.send(upload, 0, 999)
        os.truncate(world.staging / upload.id, 500)
        verifying = world.records.add_received(upload, ByteRange(999, 1000), world.now)
        with pytest.raises(UploadGone, match="expired"):
            world.completion.finish(verifying)
        assert world.state(upload) is UploadState.EXPIRED


def test_cancelling_an_upload_frees_its_space(world: World) -> None:
    upload = world.create(1000)
    world.send(upload, 0, 400)
    world.service.cancel(ME, upload.id)
    assert world.files() == set()
    with pytest.raises(UploadGone, match="cancelled"):
        world.service.get(ME, upload.id)
    with pytest.raises(UploadGone):
        world.service.cancel(ME, upload.id)


def test_a_complete_upload_cannot_be_cancelled(world: World) -> None:
    upload = world.completed()
    with pytest.raises(UploadComplete):
        world.service.cancel(ME, upload.id)
    assert world.content(upload) == pattern(0, 100)


def test_exactly_one_of_concurrent_cancel_and_completion_happens(world: World) -> None:
    for _ in range(20):
        upload, before = covered(world), world.completed_count

        def act(number: int, upload: Upload = upload) -> object:
            if number == 1:
                return world.completion.publish(upload)
            world.service.cancel(ME, upload.id)
            return None

        cancelled, published = in_threads(2, act)
        state = world.records.get(upload.id).state
        if state is UploadState.COMPLETE:
            assert isinstance(cancelled, UploadComplete)
            assert world.content(upload) == pattern(0, 1000)
            assert world.completed_count == before + 1
        else:
            assert state is UploadState.CANCELLED
            assert isinstance(published, UploadGone)
            assert upload.id not in world.files()
            assert world.completed_count == before


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_cancelling_during_publication_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = LocalStore(tmp_path / "staging", tmp_path / "library", Durability.FILE)
    world = World(tmp_path, store=store)
    upload = covered(world)
    real = getattr(os, call)

    def cancel_first(*arguments: object, **names: object) -> None:
        monkeypatch.setattr(os, call, real)
        world.service.cancel(ME, upload.id)
        real(*arguments, **names)

    monkeypatch.setattr(os, call, cancel_first)
    with pytest.raises(UploadGone):
        world.completion.publish(upload)
    assert world.files() == set()
    assert world.completed_count == 0
    assert world.records.get(upload.id).state is UploadState.CANCELLED


@pytest.mark.folders
def test_a_failing_disk_leaves_the_upload_to_be_published_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    upload = world.create(10)

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail)
        with pytest.raises(StorageFailed):
            world.send(upload, 0, 10)
    assert world.service.get(ME, upload.id).state is UploadState.VERIFYING
    assert world.send(upload, 0, 10).state is UploadState.COMPLETE


def test_a_file_that_another_request_has_just_published_is_not_reported_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = world.create(10)
    publish = world.store.library.publish

    def be_late(key: str, length: int) -> None:
        publish(key, length)
        world.records.move(upload.id, UploadState.COMPLETE, world.now)
        raise BytesLost(key)

    monkeypatch.setattr(world.store.library, "publish", be_late)
    assert world.send(upload, 0, 10).state is UploadState.COMPLETE
    assert world.content(upload) == pattern(0, 10)


def send_slowly(
    world: World, upload: Upload, source: StallingSource
) -> tuple[threading.Thread, list[object]]:
    """A request with the whole file that stalls, and its outcomes."""
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(world.chunks.append(upload, 0, source))
        except UploadError as error:
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert source.is_stalled.wait(30)
    return thread, outcomes


def test_a_returning_client_takes_over_from_its_dead_connection(world: World) -> None:
    world.chunks.taken_over = BodyLimits(0.05, 0.0)
    upload = world.create(1000)
    thread, outcomes = send_slowly(world, upload, StallingSource(pattern(0, 1000), before=400))
    done = world.chunks.append(upload, 0, body(0, 1000))
    assert done.state is UploadState.COMPLETE
    thread.join(30)
    assert [type(outcome) for outcome in outcomes] == [BodyStalled]
    assert world.completed_count == 1


def test_a_superseded_request_is_answered_with_the_newer_ones_success(
    world: World,
) -> None:
    world.chunks.taken_over = LIMITS
    upload = world.create(1000)
    source = StallingSource(pattern(0, 1000), before=400)
    thread, outcomes = send_slowly(world, upload, source)
    done = world.chunks.append(upload, 0, body(0, 1000))
    source.goes_on.set()
    thread.join(30)
    assert [o.state for o in outcomes if isinstance(o, Upload)] == [UploadState.COMPLETE]
    assert world.content(done) == pattern(0, 1000)
    assert world.completed_count == 1


def test_a_superseded_request_completes_what_the_newer_one_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer one records the last bytes and dies; the client of the older one goes away."""
    upload = world.create(1000)

    def superseded(upload: Upload, _arrival: object) -> Upload:
        world.records.add_received(upload, ByteRange(0, 1000), world.now)
        raise WriterSuperseded("A newer request writes the same bytes.")

    def cut_off(_upload: Upload, _arrival: object) -> Upload:
        raise BodyTruncated("The body ended early.")

    with world.store.staging.writer(upload.id, ByteRange(0, 1000), LIMITS) as writer:
        writer.write(ByteRange(0, 1000), body(0, 1000), lambda _span: None)
        record(world.store, writer)
    monkeypatch.setattr(world.chunks, "_receive", superseded)
    monkeypatch.setattr(world.chunks, "_await_newer_writer", cut_off)
    with pytest.raises(BodyTruncated):
        world.chunks.append(upload, 0, body(0, 1000))
    assert world.state(upload) is UploadState.COMPLETE
    assert world.content(upload) == pattern(0, 1000)


def test_a_superseded_request_is_told_to_retry_if_the_newer_one_fails(world: World) -> None:
    world.chunks.newer_writer_seconds, world.chunks.taken_over = 0.05, LIMITS
    upload = world.create(1000)
    source = StallingSource(pattern(0, 1000), before=400)
    thread, outcomes = send_slowly(world, upload, source)
    with pytest.raises(UploadError):
        world.chunks.append(upload, 0, body(0, 1000, 50, cut_at=500))
    source.goes_on.set()
    thread.join(30)
    assert [type(outcome) for outcome in outcomes] == [WriterSuperseded]
    assert list(world.service.get(ME, upload.id).received) == [ByteRange(0, 500)]
