"""Two requests that carry the same small, checked chunk: the first whole one is stored."""

import hashlib
from threading import Thread
from types import TracebackType

import pytest

from app.core.crc32c import in_base64
from app.core.errors import BodyTruncated, DigestMismatch, UploadError, UploadGone
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload
from app.ingest import small_chunks
from app.ingest.checksum import Crc32c
from app.ingest.copy import BodyLimits
from app.ingest.small_chunks import LONGEST_BUFFERED_BYTES, Budget
from app.ingest.source import BodySource, DigestSource
from tests.storage.sources import PiecesSource, StallingSource, body, pattern
from tests.uploads.world import LIMITS, ME, World, eventually


def checked(source: BodySource, start: int, end: int) -> DigestSource:
    """The source with the digest of the bytes that belong there."""
    return DigestSource(source, "sha256", hashlib.sha256(pattern(start, end)).digest())


class Request:
    """Sends a chunk in the background; it stalls after 400 bytes until it `ends`."""

    def __init__(self, world: World, upload: Upload, source: StallingSource, end: int) -> None:
        self.source = source
        self.outcome: Upload | UploadError | None = None
        self._thread = Thread(target=self._run, args=(world, upload, end))

    def _run(self, world: World, upload: Upload, end: int) -> None:
        try:
            self.outcome = world.chunks.append(upload, 0, checked(self.source, 0, end))
        except UploadError as error:
            self.outcome = error

    def __enter__(self) -> "Request":
        self._thread.start()
        assert self.source.is_stalled.wait(30)
        return self

    def ends(self) -> Upload | UploadError | None:
        """Let its body go on; the outcome."""
        self.source.goes_on.set()
        self._thread.join(30)
        return self.outcome

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.ends()


def stalled(world: World, upload: Upload, end: int = 500) -> Request:
    return Request(world, upload, StallingSource(pattern(0, end), before=400), end)


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> Budget:
    """What all requests of the test may hold."""
    budget = Budget(2000)
    monkeypatch.setattr(small_chunks, "_budget", budget)
    return budget


@pytest.mark.every_store
@pytest.mark.parametrize("is_older_first", [True, False], ids=["older first", "newer first"])
def test_the_first_whole_one_is_stored(world: World, is_older_first: bool, budget: Budget) -> None:
    upload = world.create(1000)
    with stalled(world, upload) as older, stalled(world, upload) as newer:
        first, last = (older, newer) if is_older_first else (newer, older)
        for request in (first, last):
            outcome = request.ends()
            assert isinstance(outcome, Upload)
            assert list(outcome.received) == [ByteRange(0, 500)]
        assert request.source.remaining == 0, "the connection can be used again"
    assert world.staged_bytes(upload.id, 0, 500) == pattern(0, 500)
    assert world.content(world.send(upload, 500, 1000)) == pattern(0, 1000)
    assert budget.used == 0


def test_both_hear_that_the_upload_is_complete(world: World) -> None:
    upload = world.create(500)
    with stalled(world, upload) as older, stalled(world, upload) as newer:
        for request in (newer, older):
            outcome = request.ends()
            assert isinstance(outcome, Upload)
            assert outcome.state is UploadState.COMPLETE
    assert world.content(upload) == pattern(0, 500)
    assert world.completed_count == 1


@pytest.mark.parametrize("is_older_cut", [True, False], ids=["older cut", "newer cut"])
def test_one_that_is_cut_costs_the_other_nothing(
    world: World, is_older_cut: bool, budget: Budget
) -> None:
    upload = world.create(1000)
    cut = checked(body(0, 500, 100, cut_at=300), 0, 500)
    if is_older_cut:
        with pytest.raises(BodyTruncated):
            world.chunks.append(upload, 0, cut)
        world.chunks.append(upload, 0, checked(body(0, 500), 0, 500))
    else:
        with stalled(world, upload) as older:
            with pytest.raises(BodyTruncated):
                world.chunks.append(upload, 0, cut)
            assert not world.service.get(ME, upload.id).received
            assert isinstance(older.ends(), Upload)
    assert list(world.service.get(ME, upload.id).received) == [ByteRange(0, 500)]
    assert budget.used == 0


@pytest.mark.parametrize("is_damaged_first", [True, False], ids=["damaged first", "damaged last"])
def test_a_damaged_one_is_refused_and_never_written(world: World, is_damaged_first: bool) -> None:
    upload = world.create(1000)
    damaged = checked(PiecesSource(pattern(0, 400) + b"\xff" * 100), 0, 500)
    with stalled(world, upload) as other:
        if is_damaged_first:
            with pytest.raises(DigestMismatch):
                world.chunks.append(upload, 0, damaged)
            assert not world.service.get(ME, upload.id).received
        outcome = other.ends()
        if not is_damaged_first:
            with pytest.raises(DigestMismatch):
                world.chunks.append(upload, 0, damaged)
    assert isinstance(outcome, Upload)
    assert list(outcome.received) == [ByteRange(0, 500)]
    assert world.staged_bytes(upload.id, 0, 500) == pattern(0, 500)


def test_one_that_overlaps_stored_bytes_does_not_change_them(world: World) -> None:
    upload = world.create(1000)
    with stalled(world, upload) as request:
        world.send(upload, 100, 300)
        outcome = request.ends()
    assert isinstance(outcome, Upload)
    assert list(outcome.received) == [ByteRange(0, 500)]
    assert world.staged_bytes(upload.id, 0, 500) == pattern(0, 500)


def test_a_connection_that_died_is_dropped_once_its_bytes_are_stored(
    world: World, monkeypatch: pytest.MonkeyPatch, budget: Budget
) -> None:
    monkeypatch.setattr(small_chunks, "LOOK_SECONDS", 0.01)
    world.chunks.taken_over = BodyLimits(0.05, 0.0)
    upload = world.create(1000)
    with stalled(world, upload) as dead:
        world.chunks.append(upload, 0, checked(body(0, 500), 0, 500))
        eventually(lambda: isinstance(dead.outcome, UploadError))
        assert budget.used == 0


def test_cancelling_ends_one_that_still_arrives(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_chunks, "LOOK_SECONDS", 0.01)
    upload = world.create(1000)
    with stalled(world, upload) as request:
        world.service.cancel(ME, upload.id)
        eventually(lambda: isinstance(request.outcome, UploadGone))
    assert world.files() == set()


def test_beyond_the_budget_the_newer_one_takes_over(world: World, budget: Budget) -> None:
    world.chunks.taken_over = LIMITS
    upload = world.create(3000)
    assert budget.take(1900)
    with stalled(world, upload) as older:
        done = world.chunks.append(upload, 0, checked(body(0, 500), 0, 500))
        assert list(done.received) == [ByteRange(0, 500)]
        assert older.ends() == done
    assert budget.used == 1900


def test_a_held_one_takes_over_from_one_that_was_written_as_it_came(
    world: World, budget: Budget
) -> None:
    world.chunks.taken_over = LIMITS
    upload = world.create(3000)
    assert budget.take(1900)
    with stalled(world, upload) as older:
        budget.give_back(1900)
        done = world.chunks.append(upload, 0, checked(body(0, 500), 0, 500))
        assert list(done.received) == [ByteRange(0, 500)]
        assert older.ends() == done


def test_only_small_chunks_with_digests_are_held(world: World, budget: Budget) -> None:
    budget.take(1000)
    upload = world.create(LONGEST_BUFFERED_BYTES)
    with pytest.raises(BodyTruncated):
        world.chunks.append(upload, 0, body(0, 900, 100, cut_at=300))
    assert list(world.service.get(ME, upload.id).received) == [ByteRange(0, 300)]
    assert budget.used == 1000


def test_the_checksum_of_one_that_was_held_is_kept(world: World) -> None:
    upload = world.create(1000)
    for start in (500, 0):
        source = checked(body(start, start + 500), start, start + 500)
        done = world.chunks.append(upload, start, source)
    whole = Crc32c()
    whole.update(memoryview(pattern(0, 1000)))
    assert done.crc32c == in_base64(whole.value)
