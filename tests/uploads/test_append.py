"""Chunks in any order, twice, cut off, or with different bytes."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.errors import (
    BodyTruncated,
    ChunkMismatch,
    DigestMismatch,
    OffsetMismatch,
    UploadGone,
    UploadNotFound,
)
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.ingest.source import DigestSource
from tests.storage.sources import PiecesSource, body, pattern
from tests.uploads.world import ME, World


@pytest.mark.every_store
def test_chunks_in_any_order_make_the_file(world: World) -> None:
    upload = world.create(1000)
    for start in (600, 0, 800, 400):
        assert world.send(upload, start, start + 200).state is UploadState.RECEIVING
    done = world.send(upload, 200, 400)
    assert done.state is UploadState.COMPLETE
    assert world.content(done) == pattern(0, 1000)
    assert world.completed_count == 1


def test_an_empty_file_is_complete_with_its_empty_chunk(world: World) -> None:
    upload = world.create(0)
    done = world.chunks.append(upload, 0, body(0, 0))
    assert done.state is UploadState.COMPLETE
    assert world.content(done) == b""


def test_an_empty_chunk_of_a_longer_file_changes_nothing(world: World) -> None:
    upload = world.create(10)
    after = world.chunks.append(upload, 5, body(5, 5))
    assert after.received.total == 0
    assert after.state is UploadState.RECEIVING


def test_the_same_chunk_twice_counts_once(world: World) -> None:
    upload = world.create(1000)
    world.send(upload, 0, 400)
    again = world.send(upload, 0, 400)
    assert again.received.total == 400
    assert again.offset == 400


@pytest.mark.every_store
def test_a_duplicate_with_other_bytes_does_not_change_acknowledged_ones(world: World) -> None:
    upload = world.create(1000)
    current = world.send(upload, 200, 600)
    liar = PiecesSource(b"\xff" * 400)
    world.chunks.append(current, 200, liar)
    assert liar.remaining == 0, "the body was read to its end, for the connection's sake"
    assert liar.is_finished
    around = PiecesSource(pattern(0, 200) + b"\xff" * 400 + pattern(600, 1000), (7,))
    done = world.chunks.append(current, 0, around)
    assert world.content(done) == pattern(0, 1000)


def test_a_duplicate_sent_with_a_stale_record_is_not_written(world: World) -> None:
    stale = world.create(1000)
    world.send(stale, 0, 400)
    world.chunks.append(stale, 0, PiecesSource(b"\xff" * 400))
    assert world.staged_bytes(stale.id, 0, 400) == pattern(0, 400)


@pytest.mark.parametrize("known", [0, 400])
def test_the_last_chunk_again_after_completion_is_answered_with_the_video(
    world: World, known: int
) -> None:
    """Even if the request read the record before the upload was complete."""
    stale = world.send(world.create(1000), 0, known)
    world.send(stale, 0, 400)
    done = world.send(stale, 400, 1000)
    again = world.chunks.append(stale, 400, PiecesSource(b"\xff" * 600))
    assert (again.state, again.id) == (UploadState.COMPLETE, done.id)
    assert world.content(done) == pattern(0, 1000)
    assert world.files() == {done.id}
    assert world.completed_count == 1


@pytest.mark.every_store
def test_a_cut_chunk_keeps_exactly_what_arrived(world: World) -> None:
    upload = world.create(1000)
    with pytest.raises(BodyTruncated):
        world.chunks.append(upload, 100, body(100, 900, 50, None, cut_at=333))
    after = world.service.get(ME, upload.id)
    assert list(after.received) == [ByteRange(100, 433)]
    assert world.staged_bytes(upload.id, 100, 433) == pattern(100, 433)


def test_a_cut_after_the_last_byte_of_a_gap_keeps_the_gap(world: World) -> None:
    upload = world.create(1000)
    world.send(upload, 500, 900)
    with pytest.raises(BodyTruncated):
        world.chunks.append(upload, 0, body(0, 1000, 100, cut_at=700))
    after = world.service.get(ME, upload.id)
    assert list(after.received) == [ByteRange(0, 900)]


def test_a_cut_after_the_last_missing_byte_completes_the_upload(world: World) -> None:
    upload = world.create(1000)
    current = world.send(upload, 600, 1000)
    cut = body(0, 1000, 100, cut_at=700)
    with pytest.raises(BodyTruncated):
        world.chunks.append(current, 0, cut)
    done = world.service.get(ME, upload.id)
    assert done.state is UploadState.COMPLETE
    assert world.content(done) == pattern(0, 1000)


def test_a_cut_source_of_unknown_length_simply_ends(world: World) -> None:
    upload = world.create(1000)
    source = PiecesSource(pattern(0, 300), (100,), is_told=False)
    after = world.chunks.append(upload, 0, source)
    assert list(after.received) == [ByteRange(0, 300)]


@pytest.mark.folders
@pytest.mark.parametrize(("start", "end"), [(900, 1001), (1000, 1001), (5000, 5001), (1001, 1001)])
def test_a_chunk_beyond_the_end_is_refused_unread(world: World, start: int, end: int) -> None:
    upload, source = world.create(1000), body(start, end)
    with pytest.raises(ChunkMismatch):
        world.chunks.append(upload, start, source)
    assert source.position == 0
    assert (world.staging / upload.id).stat().st_size == 1000


def test_a_chunk_of_an_unknown_upload_is_not_found(world: World) -> None:
    upload = world.create(10)
    world.records.remove(upload.id)
    with pytest.raises(UploadNotFound):
        world.chunks.append(upload, 0, body(0, 10))


def digest_of(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@pytest.mark.every_store
def test_a_chunk_with_the_right_digest_is_kept(world: World) -> None:
    upload = world.create(1000)
    source = DigestSource(body(0, 1000, 99), "sha256", digest_of(pattern(0, 1000)))
    assert world.chunks.append(upload, 0, source).state is UploadState.COMPLETE


@pytest.mark.every_store
def test_a_chunk_with_a_wrong_digest_keeps_nothing(world: World) -> None:
    upload = world.create(1000)
    world.send(upload, 300, 500)
    source = DigestSource(PiecesSource(b"\xff" * 1000), "sha256", digest_of(pattern(0, 1000)))
    with pytest.raises(DigestMismatch):
        world.chunks.append(upload, 0, source)
    after = world.service.get(ME, upload.id)
    assert list(after.received) == [ByteRange(300, 500)]
    assert world.staged_bytes(upload.id, 300, 500) == pattern(300, 500)
    done = world.send(upload, 0, 1000)
    assert world.content(done) == pattern(0, 1000)


def test_a_cut_chunk_with_a_digest_keeps_nothing(world: World) -> None:
    upload = world.create(1000)
    source = DigestSource(body(0, 1000, cut_at=600), "sha256", digest_of(pattern(0, 1000)))
    with pytest.raises(BodyTruncated):
        world.chunks.append(upload, 0, source)
    assert list(world.service.get(ME, upload.id).received) == []


def test_a_duplicate_must_match_its_digest_too(world: World) -> None:
    upload = world.create(1000)
    current = world.send(upload, 0, 500)
    source = DigestSource(PiecesSource(b"\xff" * 500), "sha256", digest_of(pattern(0, 500)))
    with pytest.raises(DigestMismatch):
        world.chunks.append(current, 0, source)
    assert list(world.service.get(ME, upload.id).received) == [ByteRange(0, 500)]


@pytest.mark.parametrize("stale", [False, True])
def test_a_late_chunk_of_a_cancelled_upload_is_gone_and_leaves_nothing(
    world: World, stale: bool
) -> None:
    before = world.create(1000)
    if not stale:
        before = world.send(before, 0, 100)
    world.service.cancel(ME, before.id)
    with pytest.raises(UploadGone):
        world.chunks.append(before, 100, body(100, 200))
    assert world.files() == set()


@pytest.mark.every_store
def test_cancelling_ends_a_running_chunk(world: World) -> None:
    upload = world.create(1000)

    class CancellingSource(PiecesSource):
        def readinto(self, buffer: memoryview, /) -> int | None:
            if self.position == 500:
                world.service.cancel(ME, upload.id)
            return super().readinto(buffer)

    with pytest.raises(UploadGone):
        world.chunks.append(upload, 0, CancellingSource(pattern(0, 1000), (500,)))
    assert world.files() == set()


def test_lost_bytes_end_the_upload_so_that_the_client_starts_over(world: World) -> None:
    upload = world.create(1000)
    world.send(upload, 0, 400)
    world.lose(upload)
    with pytest.raises(UploadGone):
        world.send(upload, 400, 1000)
    assert world.records.get(upload.id).state is UploadState.EXPIRED
    assert world.files() == set()


def test_a_lost_reservation_without_bytes_is_made_again(world: World) -> None:
    upload = world.create(1000)
    world.lose(upload)
    done = world.send(upload, 0, 1000)
    assert world.content(done) == pattern(0, 1000)


def test_bytes_lost_without_this_requests_knowledge_are_not_counted(
    world: World,
) -> None:
    stale = world.create(1000)
    world.send(stale, 0, 400)
    world.lose(stale)
    with pytest.raises(UploadGone):
        world.chunks.append(stale, 400, body(400, 1000))
    assert world.records.get(stale.id).state is UploadState.EXPIRED


@pytest.mark.every_store
def test_lost_bytes_of_a_covered_upload_are_found_when_it_is_published(world: World) -> None:
    upload = world.create(1000)
    world.send(upload, 0, 400)
    covered = world.records.add_received(upload, ByteRange(400, 1000), world.now)
    world.lose(upload)
    assert covered.state is UploadState.VERIFYING
    with pytest.raises(UploadGone):
        world.send(upload, 400, 1000)
    assert world.completed_count == 0
    assert world.records.get(upload.id).state is UploadState.EXPIRED


class InterruptedSource(PiecesSource):
    """A body in the middle of which something else happens."""

    def __init__(self, data: bytes, act: Callable[[], object]) -> None:
        super().__init__(data, [len(data) // 2])
        self._act = act

    def readinto(self, buffer: memoryview, /) -> int | None:
        if self.position == len(self._data) // 2:
            self._act()
        return super().readinto(buffer)


@pytest.mark.parametrize("is_reserved", [True, False], ids=["reserved", "not reserved yet"])
@pytest.mark.parametrize("place_of_files", ["s3"], indirect=True)
def test_a_file_that_another_node_completes_meanwhile_is_complete_for_both(
    world: World, tmp_path: Path, is_reserved: bool
) -> None:
    other = World(tmp_path, database=world.database, staging=tmp_path / "other node")
    upload = world.create(1000)
    if not is_reserved:
        world.store.staging.remove(upload.id)
    source = InterruptedSource(pattern(0, 700), lambda: other.send(upload, 0, 1000))
    after = world.chunks.append(upload, 0, source)
    assert (after.state, source.remaining) == (UploadState.COMPLETE, 0)
    assert world.content(after) == pattern(0, 1000)
    assert world.completed_count + other.completed_count == 1


@pytest.mark.parametrize("place_of_files", ["s3"], indirect=True)
def test_a_client_at_its_offset_hears_that_another_node_has_all_bytes(
    world: World, tmp_path: Path
) -> None:
    other = World(tmp_path, database=world.database, staging=tmp_path / "other node")
    upload = world.create(1000)
    source = InterruptedSource(pattern(0, 700), lambda: other.send(upload, 0, 1000))
    with pytest.raises(OffsetMismatch):
        world.chunks.append_at_offset(upload, 0, source)
    assert world.state(upload) is UploadState.COMPLETE
