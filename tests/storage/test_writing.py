"""Where writing stops, what is durable then, and what is reported."""

import errno
import os
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from app.core.errors import BodyTruncated, NoRoom, StorageFailed, UploadGone, WriterSuperseded
from app.core.ranges import ByteRange, RangeSet
from app.ingest import copy
from app.ingest.copy import BLOCK_BYTES, BlockPool
from app.storage.base import BytesLost, Durability
from app.storage.local import LocalStore, range_writer
from app.storage.local.folder import Folder
from app.storage.local.range_writer import Checkpoints
from tests.storage.conftest import Folders, Place
from tests.storage.sources import PiecesSource, StallingSource, SteadySource, body, pattern
from tests.storage.stores import KEY, LIMITS, content, fill, ignore, record

MIB = 1024 * 1024


def store_with(folder: Path, checkpoints: Checkpoints) -> LocalStore:
    """A store with space reserved for a file."""
    staging, library = folder / "staging", folder / "library"
    store = LocalStore(staging, library, Durability.CHUNK, checkpoints=checkpoints)
    store.staging.reserve(KEY, 4 * MIB)
    return store


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return store_with(tmp_path, Checkpoints())


def staged_bytes(store: LocalStore, start: int, end: int) -> bytes:
    with store.staging.open(KEY) as file:
        file.seek(start)
        return file.read(end - start)


@pytest.mark.parametrize("pieces", [(1 << 30,), (1, 5000), (None, 70_000), (BLOCK_BYTES + 1,)])
def test_bytes_are_written_at_their_offset_however_they_arrive(
    store: LocalStore, pieces: tuple[int | None, ...]
) -> None:
    start, end = 100, 100 + BLOCK_BYTES + 777
    with store.staging.writer(KEY, ByteRange(start, end), LIMITS) as writer:
        assert writer.write(ByteRange(start, end), body(start, end, *pieces), ignore) == end
    assert staged_bytes(store, start, end) == pattern(start, end)
    assert staged_bytes(store, 0, start) == bytes(start)
    assert staged_bytes(store, end, end + 100) == bytes(100)


@pytest.mark.parametrize("cut_at", [0, 1, 999, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES - 1])
def test_a_cut_connection_leaves_exactly_what_arrived(store: LocalStore, cut_at: int) -> None:
    told: list[ByteRange] = []
    span = ByteRange(50, 50 + 3 * BLOCK_BYTES)
    source = body(span.start, span.end, 40_000, None, cut_at=cut_at)
    with store.staging.writer(KEY, span, LIMITS) as writer, pytest.raises(BodyTruncated):
        writer.write(span, source, told.append)
    arrived = ByteRange(50, 50 + cut_at)
    assert RangeSet.of(told) == RangeSet.of([arrived])
    assert staged_bytes(store, 50, arrived.end) == pattern(50, arrived.end)
    assert staged_bytes(store, arrived.end, span.end + 9) == bytes(span.end + 9 - arrived.end)


def test_checkpoints_follow_the_bytes_and_never_repeat(tmp_path: Path) -> None:
    store = store_with(tmp_path, Checkpoints(every_bytes=BLOCK_BYTES))
    told: list[ByteRange] = []
    span = ByteRange(0, 3 * BLOCK_BYTES)
    with store.staging.writer(KEY, span, LIMITS) as writer:
        writer.write(span, body(0, span.end), told.append)
    ends = [0, *(item.end for item in told)]
    assert [item.start for item in told] == ends[:-1]
    assert len(told) >= 2


def test_a_slow_body_is_checkpointed_by_time(tmp_path: Path) -> None:
    store = store_with(tmp_path, Checkpoints(every_seconds=0.0))
    told: list[ByteRange] = []
    span = ByteRange(0, 2 * BLOCK_BYTES)
    with store.staging.writer(KEY, span, LIMITS) as writer:
        writer.write(span, body(0, span.end), told.append)
    assert told[0] == ByteRange(0, BLOCK_BYTES)


def test_checkpointed_bytes_are_in_the_file(tmp_path: Path) -> None:
    store = store_with(tmp_path, Checkpoints(every_bytes=1))
    seen: list[bool] = []

    def compare(span: ByteRange) -> None:
        seen.append(staged_bytes(store, span.start, span.end) == pattern(span.start, span.end))

    span = ByteRange(0, 2 * BLOCK_BYTES + 5)
    with store.staging.writer(KEY, span, LIMITS) as writer:
        writer.write(span, body(0, span.end), compare)
    assert seen
    assert all(seen)


def test_a_checkpoint_that_raises_ends_the_write(tmp_path: Path) -> None:
    store = store_with(tmp_path, Checkpoints(every_bytes=1))

    def refuse(_span: ByteRange) -> None:
        raise UploadGone("cancelled meanwhile")

    span, source = ByteRange(0, 3 * BLOCK_BYTES), body(0, 3 * BLOCK_BYTES)
    with store.staging.writer(KEY, span, LIMITS) as writer, pytest.raises(UploadGone):
        writer.write(span, source, refuse)
    assert source.position == BLOCK_BYTES


def test_no_more_is_read_than_the_range_holds(store: LocalStore) -> None:
    source = body(0, 1000)
    with store.staging.writer(KEY, ByteRange(0, 600), LIMITS) as writer:
        assert writer.write(ByteRange(0, 600), source, ignore) == 600
    assert source.position == 600
    assert staged_bytes(store, 600, 1000) == bytes(400)


def test_a_source_of_unknown_length_ends_where_it_ends(store: LocalStore) -> None:
    source = PiecesSource(pattern(0, 700), (3, None), is_told=False)
    with store.staging.writer(KEY, ByteRange(0, 1000), LIMITS) as writer:
        assert writer.write(ByteRange(0, 1000), source, ignore) == 700
    assert staged_bytes(store, 0, 1000) == pattern(0, 700) + bytes(300)


def test_skipped_bytes_are_dropped_and_the_rest_is_written_in_place(store: LocalStore) -> None:
    source = body(0, 300, 7, None)
    with store.staging.writer(KEY, ByteRange(0, 300), LIMITS) as writer:
        writer.skip(100, source)
        assert source.position == 100
        assert writer.write(ByteRange(100, 200), source, ignore) == 200
        writer.skip(100, source)
    assert source.position == 300
    assert staged_bytes(store, 0, 300) == bytes(100) + pattern(100, 200) + bytes(100)


def test_skipping_nothing_reads_nothing(store: LocalStore) -> None:
    source = body(0, 10)
    with store.staging.writer(KEY, ByteRange(0, 10), LIMITS) as writer:
        writer.skip(0, source)
    assert source.position == 0


def test_a_newer_writer_stops_an_older_one_whose_bytes_are_kept(place: Place) -> None:
    place.store.staging.reserve(KEY, 1000)
    span, told, errors = ByteRange(0, 1000), list[ByteRange](), list[Exception]()
    source = StallingSource(pattern(0, 1000), before=400)

    def write_slowly() -> None:
        try:
            with place.store.staging.writer(KEY, span, LIMITS) as writer:

                def tell(stored: ByteRange) -> None:
                    record(place.store, writer)
                    told.append(stored)

                writer.write(span, source, tell)
        except WriterSuperseded as error:
            errors.append(error)

    older = Thread(target=write_slowly)
    older.start()
    assert source.is_stalled.wait(30)
    with place.another().staging.writer(KEY, span, LIMITS) as writer:
        older.join(30)
        assert not older.is_alive()
        assert told == [ByteRange(0, 400)]
        assert len(errors) == 1
        writer.write(span, body(0, 1000), ignore)
        record(place.store, writer)
    place.store.library.publish(KEY, 1000)
    assert content(place.store, KEY) == pattern(0, 1000)


@pytest.mark.parametrize("reason", [WriterSuperseded, BytesLost])
def test_a_writer_with_a_busy_client_still_notices_a_takeover(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, reason: type[Exception]
) -> None:
    monkeypatch.setattr(copy, "_blocks", BlockPool(1000, kept=1))
    seldom = Checkpoints(every_seconds=60.0)  # It looks then in any case.
    store = LocalStore(folders.staging, folders.library, Durability.CHUNK, checkpoints=seldom)
    store.staging.reserve(KEY, 4 * MIB)
    span, source, errors = ByteRange(0, 4 * MIB), SteadySource(), list[Exception]()

    def write() -> None:
        try:
            with store.staging.writer(KEY, span, LIMITS) as writer:
                writer.write(span, source, ignore)
        except (WriterSuperseded, BytesLost) as error:
            errors.append(error)

    older = Thread(target=write)
    older.start()
    assert source.is_flowing.wait(30)
    if reason is BytesLost:
        folders.store.staging.remove(KEY)
    else:
        with folders.another().staging.writer(KEY, span, LIMITS):
            pass
    older.join(30)
    assert [type(error) for error in errors] == [reason]
    assert source.position < span.end


def test_a_skipping_writer_can_be_superseded_too(store: LocalStore, tmp_path: Path) -> None:
    span, errors = ByteRange(0, 1000), list[Exception]()
    source = StallingSource(pattern(0, 1000), before=400)

    def skip_slowly() -> None:
        try:
            with store.staging.writer(KEY, span, LIMITS) as writer:
                writer.skip(1000, source)
        except WriterSuperseded as error:
            errors.append(error)

    older = Thread(target=skip_slowly)
    older.start()
    assert source.is_stalled.wait(30)
    fill(LocalStore(tmp_path / "staging", tmp_path / "library", Durability.NONE), KEY, 0, 1000)
    older.join(30)
    assert len(errors) == 1


def test_writers_of_adjacent_ranges_run_at_the_same_time(store: LocalStore) -> None:
    source = StallingSource(pattern(0, 500), before=100)
    results: list[int] = []

    def write_slowly() -> None:
        with store.staging.writer(KEY, ByteRange(0, 500), LIMITS) as writer:
            results.append(writer.write(ByteRange(0, 500), source, ignore))

    slow = Thread(target=write_slowly)
    slow.start()
    assert source.is_stalled.wait(30)
    fill(store, KEY, 500, 1000)
    source.goes_on.set()
    slow.join(30)
    assert results == [500]
    assert staged_bytes(store, 0, 1000) == pattern(0, 1000)


def test_a_source_error_is_not_mistaken_for_a_disk_error(store: LocalStore) -> None:
    class FullSource(PiecesSource):
        def readinto(self, buffer: memoryview, /) -> int | None:
            raise NoRoom("said by the source")

    span = ByteRange(0, 10)
    with (
        store.staging.writer(KEY, span, LIMITS) as writer,
        pytest.raises(NoRoom, match="said by the source"),
    ):
        writer.write(span, FullSource(b"x" * 10), ignore)


def test_a_failed_sync_is_not_hidden_by_a_later_success(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = os.fdatasync, [OSError(errno.EIO, "the disk lost a page")]

    def failing(descriptor: int) -> None:
        if failures:
            raise failures.pop()
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", failing)
    told: list[ByteRange] = []
    span = ByteRange(0, 100)
    with store.staging.writer(KEY, span, LIMITS) as writer, pytest.raises(StorageFailed):
        writer.write(span, PiecesSource(pattern(0, 100), (100,)), told.append)
    assert told == []


def test_writeback_starts_while_bytes_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[ByteRange] = []
    monkeypatch.setattr(range_writer, "WRITEBACK_BYTES", 2 * BLOCK_BYTES)
    monkeypatch.setattr(
        range_writer,
        "begin_writeback",
        lambda _, start, length: begun.append(ByteRange(start, start + length)),
    )
    span = ByteRange(0, 7 * BLOCK_BYTES)
    for durability in Durability:
        store = LocalStore(
            tmp_path / durability / "staging",
            tmp_path / "library",
            durability,
            checkpoints=Checkpoints(every_seconds=3600),
        )
        store.staging.reserve(KEY, span.end)
        with store.staging.writer(KEY, span, LIMITS) as writer:
            writer.write(span, body(0, span.end), ignore)
    once = [ByteRange(n * BLOCK_BYTES, (n + 2) * BLOCK_BYTES) for n in (0, 2, 4)]
    assert begun == once * 2, "for chunk and file, and not where the kernel decides"


def test_a_slow_disk_is_not_checkpointed_every_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only this disk takes time."""
    store = store_with(tmp_path, Checkpoints(every_seconds=0.0))
    told, now = list[ByteRange](), [1000.0]
    monkeypatch.setattr(range_writer, "time", SimpleNamespace(monotonic=lambda: now[0]))
    span = ByteRange(0, 4 * BLOCK_BYTES)

    def record_slowly(span: ByteRange) -> None:
        told.append(span)
        now[0] += 0.5

    with store.staging.writer(KEY, span, LIMITS) as writer:
        writer.write(span, body(0, span.end), record_slowly)
    assert told == [ByteRange(0, BLOCK_BYTES)]
    with store.staging.writer(KEY, span, LIMITS) as writer:
        writer.write(span, body(0, span.end), told.append)
    assert len(told) == 1, "nor by another upload"


def test_a_folder_that_cannot_be_looked_at_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS, after the server has exported something else."""
    folder = Folder(tmp_path / "videos")
    assert folder.descriptor == folder.descriptor

    found = None

    def stale(_descriptor: int) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patch:  # pytest itself calls it, too.
        patch.setattr(os, "fstat", stale)
        try:
            _ = folder.descriptor
        except StorageFailed as error:
            found = error
    assert found is not None
