"""The exact offset of an upload, once no one is writing there any more."""

from threading import Thread
from time import sleep

import pytest

from app.core.errors import BodyTruncated, UploadError, UploadGone, WriterSuperseded
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload
from app.storage.local import range_lock
from tests.storage.sources import PiecesSource, StallingSource, body, pattern
from tests.uploads.world import LIMITS, ME, World, eventually, in_threads


class SlowSource(StallingSource):
    """A source whose reader seldom gets to check whether it must stop."""

    def __init__(self, data: bytes, *, before: int, tick_seconds: float) -> None:
        super().__init__(data, before=before)
        self._tick_seconds = tick_seconds

    def readinto(self, buffer: memoryview, /) -> int | None:
        count = super().readinto(buffer)
        if count is None:
            sleep(self._tick_seconds)
        return count


class Writer:
    """A request in the background that sends `before` bytes and then stalls."""

    def __init__(
        self,
        world: World,
        upload: Upload,
        start: int,
        end: int,
        *,
        before: int,
        tick_seconds: float = 0.0,
    ) -> None:
        self.source = SlowSource(pattern(start, end), before=before, tick_seconds=tick_seconds)
        self.outcomes: list[Upload | UploadError] = []
        self._world, self._upload, self._start = world, upload, start
        self._thread = Thread(target=self._run)
        self._thread.start()
        assert self.source.is_stalled.wait(30)

    def _run(self) -> None:
        chunks = self._world.chunks
        try:
            current = self._world.service.get(ME, self._upload.id)
            self.outcomes.append(chunks.append_at_offset(current, self._start, self.source))
        except UploadError as error:
            self.outcomes.append(error)

    def join(self) -> Upload | UploadError:
        """Wait for its outcome."""
        self._thread.join(30)
        (outcome,) = self.outcomes
        return outcome

    def go_on(self) -> Upload | UploadError:
        """Send the rest of its bytes, and wait for its outcome."""
        self.source.goes_on.set()
        return self.join()


def set_patience(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let nobody give up on a thread that does not run for seconds."""
    monkeypatch.setattr(range_lock, name, 60.0)


def test_a_half_open_request_is_ended_and_its_bytes_count(world: World) -> None:
    upload = world.create(1000)
    writer = Writer(world, upload, 0, 1000, before=417)
    settled = world.chunks.stop_writer(upload)
    assert settled.offset == 417
    assert isinstance(writer.join(), WriterSuperseded)
    assert world.service.get(ME, upload.id) == settled
    done = world.chunks.append_at_offset(settled, 417, body(417, 1000))
    assert world.content(done) == pattern(0, 1000)


def test_a_request_about_to_end_may_finish(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the last bytes from the network while the offset is asked for."""
    set_patience(monkeypatch, "WRITER_ENDS_SECONDS")
    upload = world.create(1000)

    class Leaving(PiecesSource):
        def readinto(self, buffer: memoryview, /) -> int | None:
            if self.position == 100:
                asking.start()
                eventually(asking.is_alive)
            return super().readinto(buffer)

    offsets: list[int] = []
    asking = Thread(target=lambda: offsets.append(world.chunks.stop_writer(upload).offset))
    with pytest.raises(BodyTruncated):
        world.chunks.append_at_offset(upload, 0, Leaving(pattern(0, 1000), (100,), cut_at=800))
    asking.join(30)
    assert offsets == [800]


def test_an_upload_without_a_writer_is_unchanged(world: World) -> None:
    upload = world.send_next(world.create(1000), 0, 300)
    assert world.chunks.stop_writer(upload) == upload


def test_a_stale_record_is_refreshed(world: World) -> None:
    stale = world.create(1000)
    current = world.send_next(stale, 0, 300)
    assert world.chunks.stop_writer(stale) == current


def test_a_writer_elsewhere_in_the_file_continues(world: World) -> None:
    upload = world.create(1000)
    writer = Writer(world, upload, 0, 500, before=100)
    elsewhere = StallingSource(pattern(700, 900), before=50)
    outcomes: list[Upload] = []
    thread = Thread(
        target=lambda: outcomes.append(world.chunks.append(upload, 700, elsewhere)),
    )
    thread.start()
    assert elsewhere.is_stalled.wait(30)
    assert world.chunks.stop_writer(upload).offset == 100
    assert isinstance(writer.join(), WriterSuperseded)
    elsewhere.goes_on.set()
    thread.join(30)
    assert list(outcomes[0].received) == [ByteRange(0, 100), ByteRange(700, 900)]


def test_a_writer_whose_range_the_offset_has_reached_is_ended_too(world: World) -> None:
    """The first writer has ended; another one is writing after its range."""
    stale = world.create(1000)
    world.send_next(stale, 0, 300)
    writer = Writer(world, stale, 300, 1000, before=55)
    assert world.chunks.stop_writer(stale).offset == 355
    assert isinstance(writer.join(), WriterSuperseded)


def test_concurrent_lookups_all_get_the_exact_offset(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even those that yield to a newer one before the writer has noticed."""
    set_patience(monkeypatch, "WRITER_STOPS_SECONDS")
    upload = world.create(1000)
    writer = Writer(world, upload, 0, 1000, before=417, tick_seconds=1.0)
    outcomes = in_threads(6, lambda _: world.chunks.stop_writer(upload).offset)
    assert outcomes == [417] * 6
    assert isinstance(writer.join(), WriterSuperseded)


def test_an_upload_that_is_complete_or_held_is_not_disturbed(world: World) -> None:
    done, part = world.completed(100), world.held(0, 100)
    assert world.chunks.stop_writer(done) == done
    assert world.chunks.stop_writer(part) == part


def test_an_upload_published_meanwhile_is_reported_as_complete(world: World) -> None:
    stale = world.create(1000)
    world.send_next(stale, 0, 1000)
    assert world.chunks.stop_writer(stale).state is UploadState.COMPLETE


def test_an_upload_that_ended_meanwhile_is_gone(world: World) -> None:
    stale = world.create(1000)
    world.service.cancel(ME, stale.id)
    with pytest.raises(UploadGone):
        world.chunks.stop_writer(stale)


def test_a_file_that_is_missing_is_found_by_the_next_chunk_and_not_before(world: World) -> None:
    upload = world.send_next(world.create(1000), 0, 300)
    world.lose(upload)
    assert world.chunks.stop_writer(upload) == upload
    with pytest.raises(UploadGone):
        world.send_next(upload, 300, 400)


def test_nothing_stays_locked(world: World) -> None:
    upload = world.send_next(world.create(1000), 0, 300)
    world.chunks.stop_writer(upload)
    with world.store.staging.writer(upload.id, ByteRange(0, 1000), LIMITS):
        pass
    assert world.content(world.send_next(upload, 300, 1000)) == pattern(0, 1000)
