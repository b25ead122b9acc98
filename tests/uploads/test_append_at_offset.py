"""Bytes that must begin at the upload's offset."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from app.core.errors import (
    BodyTruncated,
    ChunkMismatch,
    DigestMismatch,
    NoRoom,
    OffsetMismatch,
    ServerBusy,
    TooLarge,
    UploadComplete,
    UploadConflict,
    UploadError,
    UploadGone,
    WriterSuperseded,
)
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload
from app.ingest.source import BodySource, DigestSource, StreamSource
from app.storage.local import folder
from app.storage.local.range_writer import Checkpoints
from app.uploads.service import NewUpload
from tests.storage.sources import PiecesSource, StallingSource, body, pattern
from tests.uploads.world import LIMITS, MAX_LENGTH, ME, World, buckets, store_with


def of_unknown_length(world: World) -> Upload:
    new = NewUpload(scope=ME, filename="a.mp4", length=None)
    return world.service.create(new)[0]


def untold(start: int, end: int) -> PiecesSource:
    """A body of unknown length."""
    return PiecesSource(pattern(start, end), (100,), is_told=False)


def in_background(call: Callable[[], Upload]) -> tuple[Thread, list[Upload | UploadError]]:
    outcomes: list[Upload | UploadError] = []

    def run() -> None:
        try:
            outcomes.append(call())
        except UploadError as error:
            outcomes.append(error)

    thread = Thread(target=run)
    thread.start()
    return thread, outcomes


def test_chunks_one_after_the_other_make_the_file(world: World) -> None:
    upload = world.create(1000)
    assert world.send_next(upload, 0, 400).offset == 400
    assert world.send_next(upload, 400, 401).offset == 401
    done = world.send_next(upload, 401, 1000)
    assert done.state is UploadState.COMPLETE
    assert world.content(done) == pattern(0, 1000)


@pytest.mark.parametrize("offset", [0, 399, 401, 1000, 5000])
def test_a_wrong_offset_is_refused_unread_with_both_numbers(world: World, offset: int) -> None:
    upload = world.send_next(world.create(1000), 0, 400)
    source = body(0, 10)
    with pytest.raises(OffsetMismatch) as caught:
        world.chunks.append_at_offset(upload, offset, source)
    assert (caught.value.expected, caught.value.provided) == (400, offset)
    assert source.position == 0
    assert world.service.get(ME, upload.id) == upload


def test_an_offset_that_became_wrong_meanwhile_is_refused(world: World) -> None:
    """The request read the record before another one brought the same bytes."""
    stale = world.create(1000)
    world.send_next(stale, 0, 400)
    with pytest.raises(OffsetMismatch) as caught:
        world.chunks.append_at_offset(stale, 0, PiecesSource(b"\xff" * 400))
    assert (caught.value.expected, caught.value.provided) == (400, 0)
    assert world.staged_bytes(stale.id, 0, 400) == pattern(0, 400)


def test_bytes_beyond_a_gap_do_not_count_for_the_offset(world: World) -> None:
    upload = world.create(1000)
    world.send(upload, 600, 800)
    after = world.send_next(upload, 0, 600)
    assert after.offset == 800
    assert world.content(world.send_next(upload, 800, 1000)) == pattern(0, 1000)


def test_a_chunk_over_stored_bytes_does_not_change_them(world: World) -> None:
    upload = world.create(1000)
    world.send(upload, 200, 600)
    liar = PiecesSource(pattern(0, 200) + b"\xff" * 400 + pattern(600, 1000), (70,))
    done = world.chunks.append_at_offset(world.service.get(ME, upload.id), 0, liar)
    assert world.content(done) == pattern(0, 1000)


def test_a_mismatch_is_found_after_the_older_request_has_ended(world: World) -> None:
    """The older one has received more than its record says; it is ended first."""
    upload = world.create(1000)
    source = StallingSource(pattern(0, 1000), before=400)
    thread, outcomes = in_background(lambda: world.chunks.append_at_offset(upload, 0, source))
    assert source.is_stalled.wait(30)
    with pytest.raises(OffsetMismatch) as caught:
        world.chunks.append_at_offset(upload, 0, body(0, 1000))
    thread.join(30)
    assert (caught.value.expected, caught.value.provided) == (400, 0)
    assert [type(outcome) for outcome in outcomes] == [WriterSuperseded]
    assert world.service.get(ME, upload.id).offset == 400
    assert source.remaining == 600, "the rest of its body was not waited for"
    assert world.content(world.send_next(upload, 400, 1000)) == pattern(0, 1000)


@pytest.mark.every_store
def test_a_superseded_request_of_any_order_is_answered_with_the_newer_ones_success(
    world: World,
) -> None:
    """Plain appends wait for what the newer request achieves."""
    world.chunks.taken_over = LIMITS
    world.chunks.newer_writer_seconds = 60
    upload = world.create(1000)
    source = StallingSource(pattern(0, 1000), before=400)
    thread, outcomes = in_background(lambda: world.chunks.append(upload, 0, source))
    assert source.is_stalled.wait(30)
    settled = world.chunks.stop_writer(upload)
    assert settled.offset == 400
    source.goes_on.set()
    done = world.chunks.append_at_offset(settled, 400, body(400, 1000))
    thread.join(30)
    assert [o.state for o in outcomes if isinstance(o, Upload)] == [UploadState.COMPLETE]
    assert world.content(done) == pattern(0, 1000)


@pytest.mark.parametrize("remaining", ["told", "untold"])
def test_a_file_over_a_limit_that_was_lowered_is_refused_unread(
    tmp_path: Path, remaining: str
) -> None:
    upload = World(tmp_path).create(1000)
    source = body(0, 1000) if remaining == "told" else untold(0, 1000)
    with pytest.raises(TooLarge):
        World(tmp_path, max_upload_bytes=500).chunks.append_at_offset(upload, 0, source)
    assert source.position == 0


@pytest.mark.parametrize("remaining", ["told", "untold"])
def test_a_complete_upload_accepts_no_more_bytes(world: World, remaining: str) -> None:
    done = world.completed(1000)
    source = body(0, 5) if remaining == "told" else untold(0, 5)
    with pytest.raises(UploadComplete):
        world.chunks.append_at_offset(done, 1000, source)
    assert source.position <= 1, "nobody waits for what is not wanted"
    assert world.content(done) == pattern(0, 1000)


@pytest.mark.parametrize("source", [body(0, 0), untold(0, 0)], ids=["told", "untold"])
def test_a_request_without_bytes_at_the_end_is_answered_with_the_video(
    world: World, source: BodySource
) -> None:
    done = world.completed(1000)
    assert world.chunks.append_at_offset(done, 1000, source) == done


def test_a_complete_upload_at_another_offset_is_a_mismatch(world: World) -> None:
    done = world.completed(1000)
    with pytest.raises(OffsetMismatch):
        world.chunks.append_at_offset(done, 0, body(0, 1000))


def test_a_part_that_has_its_bytes_is_held_and_accepts_no_more(world: World) -> None:
    part = world.held(0, 100)
    assert (part.state, part.offset) == (UploadState.HELD, 100)
    assert world.completed_count == 0
    with pytest.raises(UploadComplete):
        world.chunks.append_at_offset(part, 100, body(100, 101))
    assert world.chunks.append_at_offset(part, 100, body(0, 0)).state is UploadState.HELD
    assert world.staged_bytes(part.id, 0, 100) == pattern(0, 100)


def test_an_empty_file_is_complete_with_its_empty_request(world: World) -> None:
    upload = world.create(0)
    done = world.chunks.append_at_offset(upload, 0, body(0, 0))
    assert (done.state, world.content(done)) == (UploadState.COMPLETE, b"")


def test_an_empty_request_to_a_longer_file_is_only_activity(world: World) -> None:
    upload = world.send_next(world.create(10), 0, 5)
    world.later(hours=1)
    after = world.chunks.append_at_offset(upload, 5, body(5, 5))
    assert after == replace(upload, active_at=world.now)


def test_a_chunk_beyond_the_end_is_refused_unread(world: World) -> None:
    upload = world.send_next(world.create(1000), 0, 900)
    source = body(900, 1001)
    with pytest.raises(ChunkMismatch):
        world.chunks.append_at_offset(upload, 900, source)
    assert source.position == 0


class Stream:
    """A chunked body, as a server delivers it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int, /) -> bytes:
        taken, self._data = self._data[:size], self._data[size:]
        return taken


@pytest.mark.every_store
def test_a_body_of_unknown_length_ends_where_it_ends(world: World) -> None:
    upload = world.create(1000)
    source = StreamSource(Stream(pattern(0, 300)), None)
    assert world.chunks.append_at_offset(upload, 0, source).offset == 300
    assert source.remaining == 0
    source = StreamSource(Stream(pattern(300, 1000)), None)
    current = world.service.get(ME, upload.id)
    done = world.chunks.append_at_offset(current, 300, source)
    assert world.content(done) == pattern(0, 1000)


@pytest.mark.folders
def test_a_body_of_unknown_length_beyond_the_file_does_not_complete_it(world: World) -> None:
    upload = world.create(1000)
    with pytest.raises(ChunkMismatch):
        world.chunks.append_at_offset(upload, 0, StreamSource(Stream(pattern(0, 1001)), None))
    assert world.state(upload) is UploadState.RECEIVING
    assert (world.staging / upload.id).stat().st_size == 1000


@pytest.mark.folders
def test_a_file_of_unknown_length_grows_with_its_chunks(world: World) -> None:
    upload = of_unknown_length(world)
    assert world.send_next(upload, 0, 300).offset == 300
    assert (world.staging / upload.id).stat().st_size == 300, "room is made before bytes come"
    after = world.chunks.append_at_offset(world.service.get(ME, upload.id), 300, untold(300, 500))
    assert (after.offset, after.length, after.state) == (500, None, UploadState.RECEIVING)
    assert world.staged_bytes(upload.id, 0, 500) == pattern(0, 500)


def test_a_file_of_unknown_length_stays_below_the_limit(world: World) -> None:
    upload = of_unknown_length(world)
    with pytest.raises(TooLarge):
        world.chunks.append_at_offset(upload, 0, body(0, MAX_LENGTH + 1))
    with pytest.raises(TooLarge):
        world.chunks.append_at_offset(upload, 0, untold(0, MAX_LENGTH + 1))


def test_without_space_for_a_chunk_of_unknown_length_stored_bytes_stay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = world.send_next(of_unknown_length(world), 0, 300)
    source = body(300, 600)
    with monkeypatch.context() as patch:
        patch.setattr(folder, "KEPT_FREE_BYTES", 1 << 62)
        # In front of a bucket, another node may have room.
        with pytest.raises(ServerBusy if buckets else NoRoom):
            world.chunks.append_at_offset(upload, 300, source)
    assert source.position == 0, "it is refused before the bytes come"
    assert world.staged_bytes(upload.id, 0, 300) == pattern(0, 300)
    assert world.send_next(upload, 300, 600).offset == 600


def test_lost_bytes_of_unknown_length_are_not_replaced_by_zeros(world: World) -> None:
    upload = world.send_next(of_unknown_length(world), 0, 300)
    world.lose(upload)
    with pytest.raises(UploadGone):
        world.send_next(upload, 300, 600)
    assert world.state(upload) is UploadState.EXPIRED
    assert world.files() == set()


def test_a_late_chunk_of_unknown_length_reserves_nothing_for_an_ended_upload(world: World) -> None:
    stale = world.send_next(of_unknown_length(world), 0, 300)
    world.service.cancel(ME, stale.id)
    with pytest.raises(UploadGone):
        world.chunks.append_at_offset(stale, 300, body(300, 600))
    assert world.files() == set()


def test_a_length_declared_while_bytes_arrive_limits_them(world: World) -> None:
    upload = of_unknown_length(world)

    class Telling(PiecesSource):
        def readinto(self, buffer: memoryview, /) -> int | None:
            if self.position == 50:
                world.records.declare_length(upload.id, 60, world.now)
            return super().readinto(buffer)

    with pytest.raises(ChunkMismatch):
        world.chunks.append_at_offset(upload, 0, Telling(pattern(0, 100), (50,)))
    after = world.service.get(ME, upload.id)
    assert (after.length, after.state) == (60, UploadState.RECEIVING)
    assert after.received.end <= 60


@pytest.mark.folders
def test_progress_counts_recorded_bytes_and_never_goes_back(tmp_path: Path) -> None:
    world = World(tmp_path, store=store_with(tmp_path, Checkpoints(every_bytes=100)))
    upload = world.create(1000)
    world.send(upload, 400, 600)
    told: list[int] = []

    def note(offset: int) -> None:
        assert offset <= world.records.get(upload.id).offset
        told.append(offset)

    source = body(0, 1000, 50, None)
    current = world.service.get(ME, upload.id)
    world.chunks.append_at_offset(current, 0, source, progress=note)
    assert told == sorted(told)
    assert len(set(told)) > 1
    assert 0 < told[0] < told[-1] <= 1000


@pytest.mark.folders
def test_progress_is_reported_before_the_body_has_ended(tmp_path: Path) -> None:
    world = World(tmp_path, store=store_with(tmp_path, Checkpoints(every_seconds=0.0)))
    upload, told = world.create(1000), list[int]()
    source = StallingSource(pattern(0, 1000), before=400)

    def note(offset: int) -> None:
        told.append(offset)
        source.goes_on.set()

    world.chunks.append_at_offset(upload, 0, source, progress=note)
    assert told[0] == 400


def test_a_cut_body_keeps_and_reports_what_arrived(tmp_path: Path) -> None:
    world = World(tmp_path, store=store_with(tmp_path, Checkpoints(every_seconds=3600)))
    upload, told = world.create(1000), list[int]()
    with pytest.raises(BodyTruncated):
        world.chunks.append_at_offset(
            upload, 0, body(0, 1000, 50, cut_at=333), progress=told.append
        )
    assert told == [333]
    assert world.service.get(ME, upload.id).offset == 333


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_a_wrong_digest_keeps_and_reports_nothing(world: World, algorithm: str) -> None:
    upload, told = world.send_next(world.create(1000), 0, 200), list[int]()
    expected = hashlib.new(algorithm, pattern(200, 1000)).digest()
    source = DigestSource(PiecesSource(b"\xff" * 800, (50,)), algorithm, expected)
    with pytest.raises(DigestMismatch):
        world.chunks.append_at_offset(upload, 200, source, progress=told.append)
    assert told == []
    assert list(world.service.get(ME, upload.id).received) == [ByteRange(0, 200)]
    right = DigestSource(body(200, 1000), algorithm, expected)
    done = world.chunks.append_at_offset(world.service.get(ME, upload.id), 200, right)
    assert world.content(done) == pattern(0, 1000)


def test_a_superseded_request_with_a_digest_keeps_nothing(world: World) -> None:
    upload = world.create(1000)
    stalling = StallingSource(pattern(0, 1000), before=400)
    source = DigestSource(stalling, "sha256", hashlib.sha256(pattern(0, 1000)).digest())
    thread, outcomes = in_background(lambda: world.chunks.append_at_offset(upload, 0, source))
    assert stalling.is_stalled.wait(30)
    done = world.chunks.append_at_offset(upload, 0, body(0, 1000))
    thread.join(30)
    assert [type(outcome) for outcome in outcomes] == [WriterSuperseded]
    assert world.content(done) == pattern(0, 1000)


def test_an_upload_that_was_cancelled_meanwhile_is_gone(world: World) -> None:
    upload = world.send_next(world.create(1000), 0, 400)
    world.service.cancel(ME, upload.id)
    with pytest.raises(UploadGone):
        world.chunks.append_at_offset(upload, 400, body(400, 1000))
    assert world.files() == set()


def test_a_lost_reservation_without_bytes_is_made_again(world: World) -> None:
    upload = world.create(1000)
    world.lose(upload)
    assert world.content(world.send_next(upload, 0, 1000)) == pattern(0, 1000)


def test_a_concatenation_accepts_no_bytes(world: World) -> None:
    whole = world.whole_of(world.part(10))
    with pytest.raises(UploadConflict):
        world.chunks.append_at_offset(whole, 0, body(0, 10))
    with pytest.raises(UploadConflict):
        world.chunks.append(whole, 0, body(0, 10))
