"""Uploads whose client declares the length later."""

import hashlib

import pytest

from app.core.errors import ChunkMismatch, NoRoom, TooLarge, UploadConflict, UploadGone
from app.core.lifecycle import UploadState
from app.core.upload import Upload
from app.storage.local import folder
from app.uploads.service import NewUpload
from tests.storage.sources import pattern
from tests.uploads.world import MAX_LENGTH, ME, World, in_threads


@pytest.fixture
def upload(world: World) -> Upload:
    """An upload of unknown length with 300 bytes."""
    created, _ = world.service.create(NewUpload(scope=ME, filename="a.mp4", length=None))
    return world.send_next(created, 0, 300)


@pytest.mark.folders
def test_the_length_is_recorded_and_its_space_reserved(world: World, upload: Upload) -> None:
    told = world.chunks.declare_length(upload, 1000)
    assert (told.length, told.offset, told.state) == (1000, 300, UploadState.RECEIVING)
    assert (world.staging / upload.id).stat().st_size == 1000
    assert world.content(world.send_next(upload, 300, 1000)) == pattern(0, 1000)


@pytest.mark.every_store
def test_declaring_the_received_length_completes_the_upload(world: World, upload: Upload) -> None:
    done = world.chunks.declare_length(upload, 300)
    assert done.state is UploadState.COMPLETE
    assert world.content(done) == pattern(0, 300)
    assert world.completed_count == 1


@pytest.mark.every_store
def test_an_empty_file_is_complete_at_once(world: World) -> None:
    empty, _ = world.service.create(NewUpload(scope=ME, filename="a.mp4", length=None))
    done = world.chunks.declare_length(empty, 0)
    assert (done.state, world.content(done)) == (UploadState.COMPLETE, b"")


def test_the_same_length_again_is_fine(world: World, upload: Upload) -> None:
    told = world.chunks.declare_length(upload, 1000)
    assert world.chunks.declare_length(told, 1000) == told
    assert world.chunks.declare_length(upload, 1000) == told, "also with old knowledge"


def test_a_different_length_is_a_conflict(world: World, upload: Upload) -> None:
    told = world.chunks.declare_length(upload, 1000)
    for knowledge in (told, upload):
        with pytest.raises(UploadConflict):
            world.chunks.declare_length(knowledge, 999)
    assert world.service.get(ME, upload.id) == told


def test_a_length_below_the_received_bytes_is_refused(world: World, upload: Upload) -> None:
    with pytest.raises(ChunkMismatch):
        world.chunks.declare_length(upload, 299)
    assert world.service.get(ME, upload.id) == upload


def test_a_length_beyond_the_limit_is_refused(world: World, upload: Upload) -> None:
    with pytest.raises(TooLarge):
        world.chunks.declare_length(upload, MAX_LENGTH + 1)
    assert world.service.get(ME, upload.id) == upload


@pytest.mark.folders
def test_without_space_the_length_stays_unknown_and_the_bytes_stay(
    world: World, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(folder, "KEPT_FREE_BYTES", 1 << 62)
        with pytest.raises(NoRoom):
            world.chunks.declare_length(upload, 1000)
    assert world.service.get(ME, upload.id) == upload
    assert world.staged_bytes(upload.id, 0, 300) == pattern(0, 300)


def test_only_the_missing_space_must_be_free(
    world: World, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk with space for the rest of the file need not have space for all of it."""
    monkeypatch.setattr(folder.Folder, "free_bytes", 750)
    monkeypatch.setattr(folder, "KEPT_FREE_BYTES", 0)
    assert world.chunks.declare_length(upload, 1000).length == 1000


def test_lost_bytes_are_not_published_as_zeros(world: World, upload: Upload) -> None:
    world.lose(upload)
    with pytest.raises(UploadGone):
        world.chunks.declare_length(upload, 300)
    assert world.state(upload) is UploadState.EXPIRED
    assert (world.files(), world.completed_count) == (set(), 0)


def test_an_ended_upload_reserves_nothing(world: World, upload: Upload) -> None:
    world.service.cancel(ME, upload.id)
    with pytest.raises(UploadGone):
        world.chunks.declare_length(upload, 1000)
    assert world.files() == set()


def test_of_many_concurrent_lengths_one_is_kept(world: World, upload: Upload) -> None:
    outcomes = in_threads(8, lambda n: world.chunks.declare_length(upload, 1000 + n % 4))
    known = world.service.get(ME, upload.id).length
    assert known in range(1000, 1004)
    for number, outcome in enumerate(outcomes):
        expected = Upload if 1000 + number % 4 == known else UploadConflict
        assert isinstance(outcome, expected), outcome


def test_a_part_of_unknown_length_is_held_once_its_length_is_known(world: World) -> None:
    part = world.send_next(world.part(None), 0, 300)
    assert part.state is UploadState.RECEIVING
    assert world.chunks.declare_length(part, 300).state is UploadState.HELD
    assert world.completed_count == 0


def test_the_length_of_a_concatenation_is_that_of_its_parts(world: World) -> None:
    part = world.part(10)
    whole = world.whole_of(part)
    for length in (0, 10, 1000):
        with pytest.raises(UploadConflict):
            world.chunks.declare_length(whole, length)
    world.send_next(part, 0, 10)
    assert world.content(world.chunks.stop_writer(whole)) == pattern(0, 10)


def test_a_digest_is_checked_even_if_the_length_arrives_last(world: World) -> None:
    digest = f"sha256:{hashlib.sha256(pattern(0, 300)).hexdigest()}"
    new = NewUpload(scope=ME, filename="a.mp4", length=None, repr_digest=digest)
    created, _ = world.service.create(new)
    done = world.chunks.declare_length(world.send_next(created, 0, 300), 300)
    assert done.state is UploadState.COMPLETE
