"""Files sent whole: all of a file is kept, or nothing."""

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from app.core.errors import (
    BodyStalled,
    BodyTruncated,
    InvalidRequest,
    MalformedBody,
    ServerBusy,
    TooLarge,
    UploadError,
    UploadGone,
)
from app.core.lifecycle import UploadState
from app.core.upload import Upload
from app.ingest.source import StreamSource, Watch, no_watch
from app.storage.base import Durability
from app.storage.local import LocalStore
from app.uploads import files as whole_files
from app.uploads.files import Kept, ReceivedFile
from tests.storage.sources import PiecesSource, pattern
from tests.uploads.world import MAX_LENGTH, ME, World, eventually, in_threads


def receive(world: World, source: PiecesSource, *, room: int = 0) -> ReceivedFile:
    return world.whole.receive(source, scope=ME, filename="a.mp4", room=room)


def untold(length: int, *pieces: int | None, cut_at: int | None = None) -> PiecesSource:
    return PiecesSource(pattern(0, length), pieces or (1000,), is_told=False, cut_at=cut_at)


@pytest.mark.parametrize("length", [0, 1, 70_000])
@pytest.mark.parametrize("room", [0, 100, 200_000])
def test_a_whole_file_becomes_a_video_of_its_exact_length(
    world: World, length: int, room: int
) -> None:
    received = receive(world, untold(length, 999, None), room=room)
    video = world.whole.keep(received)
    assert (video.state, video.length) == (UploadState.COMPLETE, length)
    assert video.sha256 == hashlib.sha256(pattern(0, length)).hexdigest()
    assert world.content(video) == pattern(0, length)
    assert world.library.page(ME, limit=5).videos == [world.records.get(video.id)]
    assert world.completed_count == 1


def test_concurrent_first_files_share_one_pool(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `cached_property` there were two from Python 3.12 on, which has no lock in it."""
    made: list[object] = []

    class SlowPool(ThreadPoolExecutor):
        def __init__(self, *arguments: Any, **names: Any) -> None:
            made.append(self)
            time.sleep(0.1)
            super().__init__(*arguments, **names)

    monkeypatch.setattr(whole_files, "ThreadPoolExecutor", SlowPool)
    received = in_threads(4, lambda _: receive(world, untold(10)))
    assert {type(each) for each in received} == {ReceivedFile}
    assert len(made) <= 1


def test_a_file_that_is_not_recorded_yet_is_in_no_list(world: World) -> None:
    received = receive(world, untold(100))
    assert world.service.active(ME, 5) == []
    assert world.library.page(ME, limit=5).videos == []
    with world.whole.open(received) as file:
        assert file.read(received.length) == pattern(0, 100)
    world.whole.drop(received)
    world.whole.drop(received)
    assert world.files() == set()


@pytest.mark.every_store
def test_a_cut_file_leaves_nothing(world: World) -> None:
    with pytest.raises(BodyTruncated):
        receive(world, untold(1000, cut_at=500))
    assert world.files() == set()


def test_a_file_beyond_the_limit_leaves_nothing(world: World) -> None:
    with pytest.raises(TooLarge):
        receive(world, untold(MAX_LENGTH + 1, 1 << 20))
    assert world.files() == set()


def test_a_file_of_a_refused_name_is_not_read(world: World) -> None:
    source = untold(100)
    with pytest.raises(InvalidRequest):
        world.whole.receive(source, scope=ME, filename="a\0b", room=100)
    assert source.position == 0
    assert world.files() == set()


def test_a_file_malformed_at_its_end_leaves_nothing(world: World) -> None:
    class Malformed(PiecesSource):
        def finish(self, _watch: Watch = no_watch, /) -> None:
            raise MalformedBody("no delimiter")

    with pytest.raises(MalformedBody):
        receive(world, Malformed(b"x" * 100))
    assert world.files() == set()


@pytest.mark.every_store
def test_a_received_file_can_be_put_where_it_belongs(world: World) -> None:
    upload = world.create(1000)
    world.send(upload, 0, 300)
    received = receive(world, PiecesSource(pattern(300, 1000), is_told=False))
    with world.whole.open(received) as file:
        done = world.chunks.append(upload, 300, StreamSource(file, received.length))
    world.whole.drop(received)
    assert done.state is UploadState.COMPLETE
    assert world.content(done) == pattern(0, 1000)
    assert world.files() == {upload.id}


def test_housekeeping_leaves_a_file_being_received_alone(world: World) -> None:
    received = receive(world, untold(100))
    world.housekeeping.sweep()
    world.housekeeping.remove_deleted()
    assert world.whole.keep(received).state is UploadState.COMPLETE


def fingerprinted(world: World, *fingerprints: str | None) -> list[ReceivedFile]:
    return [replace(receive(world, untold(100)), fingerprint=text) for text in fingerprints]


def kept(outcomes: Sequence[Kept | UploadError]) -> list[Kept]:
    assert all(isinstance(outcome, Kept) for outcome in outcomes), outcomes
    return [outcome for outcome in outcomes if isinstance(outcome, Kept)]


@pytest.mark.every_store
def test_several_files_are_kept_in_order(world: World) -> None:
    files = fingerprinted(world, None, "a", "b")
    outcomes = kept(world.whole.keep_all(files))
    assert [outcome.upload.id for outcome in outcomes] == [file.id for file in files]
    assert all(outcome.is_new for outcome in outcomes)
    assert {outcome.upload.state for outcome in outcomes} == {UploadState.COMPLETE}
    assert world.completed_count == len(files)
    assert world.files() == {file.id for file in files}


def test_a_file_with_a_known_fingerprint_resolves_to_the_earlier_one(world: World) -> None:
    (first,) = kept(world.whole.keep_all(fingerprinted(world, "a")))
    again = kept(world.whole.keep_all(fingerprinted(world, "a", "b", "b")))
    assert [outcome.is_new for outcome in again] == [False, True, False]
    assert again[0].upload == first.upload
    assert again[1].upload == again[2].upload
    assert world.files() == {first.upload.id, again[1].upload.id}


def test_a_file_left_by_a_killed_request_is_finished_by_the_next(world: World) -> None:
    (file,) = fingerprinted(world, "a")
    world.store.staging.sync([file.id])
    world.records.add_all([world.whole._upload_of(file, {})])
    (outcome,) = kept(world.whole.keep_all(fingerprinted(world, "a")))
    assert (outcome.upload.id, outcome.is_new) == (file.id, False)
    assert outcome.upload.state is UploadState.COMPLETE
    assert world.files() == {file.id}


def test_a_file_that_lost_its_bytes_in_a_power_cut_can_be_sent_again(world: World) -> None:
    """Its record says that it is being received; only this client can send it."""
    (file,) = fingerprinted(world, "a")
    world.store.staging.sync([file.id])
    world.records.add_all([world.whole._upload_of(file, {})])
    world.records.forget_received()
    first, second = kept(world.whole.keep_all(fingerprinted(world, "a", "b")))
    assert [first.upload.state, second.upload.state] == [UploadState.COMPLETE] * 2
    assert world.content(first.upload) == pattern(0, 100)
    assert world.state(world.records.get(file.id)) is UploadState.EXPIRED
    assert world.files() == {first.upload.id, second.upload.id}


def loses_answer_of_commit(world: World, then: Callable[[], object] = lambda: None) -> None:
    """Let the next files be recorded, and their request hear nothing of it."""
    add_all = world.records.add_all

    def add_unheard(uploads: Sequence[Upload]) -> list[tuple[Upload, bool]]:
        world.records.add_all = add_all  # type: ignore[method-assign]
        world.records.add_all(uploads)
        then()
        raise ServerBusy("The database cannot be reached.")

    world.records.add_all = add_unheard  # type: ignore[method-assign]


@pytest.mark.every_store
def test_files_whose_records_were_stored_unheard_can_be_sent_again(world: World) -> None:
    loses_answer_of_commit(world)
    files = fingerprinted(world, "a", "b")
    with pytest.raises(ServerBusy):
        world.whole.keep_all(files)
    again = fingerprinted(world, "a", "b")
    outcomes = kept(world.whole.keep_all(again))
    assert [outcome.upload.id for outcome in outcomes] == [file.id for file in again]
    assert [world.content(outcome.upload) for outcome in outcomes] == [pattern(0, 100)] * 2
    assert {world.records.get(file.id).state for file in files} == {UploadState.EXPIRED}
    assert world.files() == {file.id for file in again}


@pytest.mark.every_store
def test_a_file_published_by_another_request_stays_if_its_own_hears_nothing(
    world: World,
) -> None:
    """The client may have lost patience, and sent it again to another node."""
    (file,) = fingerprinted(world, "a")
    repeated = list[Kept]()

    def send_again() -> None:
        repeated.extend(kept(world.whole.keep_all(fingerprinted(world, "a"))))

    loses_answer_of_commit(world, send_again)
    with pytest.raises(ServerBusy):
        world.whole.keep_all([file])
    assert [(each.upload.id, each.upload.state) for each in repeated] == [
        (file.id, UploadState.COMPLETE)
    ]
    assert world.content(repeated[0].upload) == pattern(0, 100)


@pytest.mark.every_store
def test_a_copy_is_not_dropped_for_an_earlier_file_that_is_not_published_yet(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier one may turn out to be lost: its request removes it, as it heard of no commit."""
    monkeypatch.setattr(world.completion, "short_bytes", 0)
    monkeypatch.setattr(world.completion, "answer_within_seconds", 0.05)
    (file,) = fingerprinted(world, "a")
    publish, is_removed = world.store.library.publish, Event()

    def publish_late(key: str, length: int) -> None:
        is_removed.wait(120)
        publish(key, length)

    def send_again() -> None:
        monkeypatch.setattr(world.store.library, "publish", publish_late)
        (outcome,) = world.whole.keep_all(fingerprinted(world, "a"))
        assert isinstance(outcome, ServerBusy), outcome

    loses_answer_of_commit(world, send_again)
    with pytest.raises(ServerBusy):
        world.whole.keep_all([file])
    is_removed.set()
    eventually(lambda: world.records.get(file.id).state is UploadState.EXPIRED)
    (outcome,) = kept(world.whole.keep_all(fingerprinted(world, "a")))
    eventually(lambda: world.state(outcome.upload) is UploadState.COMPLETE)
    assert world.content(outcome.upload) == pattern(0, 100)


def test_a_file_that_was_deleted_meanwhile_does_not_stand_for_its_copy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = kept(world.whole.keep_all(fingerprinted(world, "a")))
    add_all = world.records.add_all

    def delete_and_add(uploads: Sequence[Upload]) -> list[tuple[Upload, bool]]:
        monkeypatch.undo()
        world.library.delete(ME, first.upload.id)
        return add_all(uploads)

    monkeypatch.setattr(world.records, "add_all", delete_and_add)
    (again,) = kept(world.whole.keep_all(fingerprinted(world, "a")))
    assert again.is_new
    assert world.content(again.upload) == pattern(0, 100)


def test_a_file_cancelled_meanwhile_does_not_affect_the_others(world: World) -> None:
    files = fingerprinted(world, "a", "b", "c")
    add_all = world.records.add_all

    def add_and_cancel(uploads: Sequence[Upload]) -> list[tuple[Upload, bool]]:
        stored = add_all(uploads)
        world.service.cancel(ME, files[1].id)
        return stored

    world.records.add_all = add_and_cancel  # type: ignore[method-assign]
    first, second, third = world.whole.keep_all(files)
    assert isinstance(second, UploadGone)
    assert [outcome.upload.id for outcome in kept([first, third])] == [files[0].id, files[2].id]
    assert world.files() == {files[0].id, files[2].id}


def test_if_one_file_is_lost_before_it_is_recorded_none_is_kept(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "staging", tmp_path / "library", Durability.CHUNK)
    world = World(tmp_path, store=store)
    files = fingerprinted(world, "a", "b")
    world.whole.drop(files[0])
    with pytest.raises(BodyStalled):
        world.whole.keep_all(files)
    assert world.files() == set()
    assert world.library.page(ME, limit=5).videos == []
