"""The loop from the network to the file: its blocks, limits and position."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import BodyStalled, BodyTruncated
from app.core.ranges import ByteRange
from app.ingest.copy import BLOCK_BYTES, GRACE_SECONDS, BodyLimits, FileCopy, discard
from tests.storage.sources import PiecesSource, pattern

PATIENT = BodyLimits(30.0, 0.0, lambda: 0.0)
"""With a clock that stands still: a block that is not full in time is written as it is."""


def nothing() -> None:
    """A watch that does nothing."""


class Clock:
    """Time that only passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def strict(clock: Clock) -> BodyLimits:
    return BodyLimits(5.0, 100.0, clock.monotonic)


class TimedSource(PiecesSource):
    """A body that yields `count` bytes, or a tick, after so many seconds, repeatedly."""

    def __init__(
        self, clock: Clock, length: int, rhythm: list[tuple[float, int | None]], **names: bool
    ) -> None:
        super().__init__(bytes(length), [count for _, count in rhythm], **names)
        self._clock = clock
        self._seconds = [seconds for seconds, _ in rhythm]
        self._reads = 0

    def readinto(self, buffer: memoryview, /) -> int | None:
        self._clock.now += self._seconds[self._reads % len(self._seconds)]
        self._reads += 1
        return super().readinto(buffer)


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def test_a_body_that_stays_idle_too_long_has_stalled(clock: Clock, descriptor: int) -> None:
    source = TimedSource(clock, 1000, [(0.5, 10), *[(0.5, None)] * 12])
    transfer = FileCopy(descriptor, ByteRange(0, 1000), strict(clock))
    with pytest.raises(BodyStalled, match="5 seconds"):
        transfer.run(source, nothing)
    assert transfer.position == 10
    assert os.pread(descriptor, 100, 0) == bytes(10)


def test_ticks_within_the_idle_limit_are_not_a_stall(clock: Clock, descriptor: int) -> None:
    source = TimedSource(clock, 5000, [(0.5, 1000), *[(0.5, None)] * 9])
    transfer = FileCopy(descriptor, ByteRange(0, 5000), strict(clock))
    transfer.run(source, nothing)
    assert transfer.position == 5000


def test_a_body_that_trickles_has_stalled(clock: Clock, descriptor: int) -> None:
    source = TimedSource(clock, 100_000, [(1.0, 10)])
    transfer = FileCopy(descriptor, ByteRange(0, 100_000), strict(clock))
    with pytest.raises(BodyStalled, match="100 bytes per second"):
        transfer.run(source, nothing)
    assert transfer.position == source.position
    assert transfer.position >= 10 * GRACE_SECONDS


def test_a_slow_start_is_forgiven(clock: Clock, descriptor: int) -> None:
    source = TimedSource(clock, 3000, [(4.0, 1), (4.0, 1), (0.1, 2998)])
    FileCopy(descriptor, ByteRange(0, 3000), strict(clock)).run(source, nothing)
    assert source.remaining == 0


def test_a_minimum_rate_of_zero_accepts_any_rate(clock: Clock, descriptor: int) -> None:
    source = TimedSource(clock, 50, [(29.0, 1)])
    FileCopy(descriptor, ByteRange(0, 50), BodyLimits(30.0, 0.0, clock.monotonic)).run(
        source, nothing
    )
    assert source.remaining == 0


def test_dropped_bytes_have_the_same_limits(clock: Clock) -> None:
    with pytest.raises(BodyStalled):
        discard(TimedSource(clock, 1000, [(1.0, None)]), limits=strict(clock), watch=nothing)
    with pytest.raises(BodyStalled):
        discard(TimedSource(clock, 100_000, [(1.0, 10)]), limits=strict(clock), watch=nothing)


@pytest.mark.parametrize("piece", [1000, 65_536, BLOCK_BYTES - 1, BLOCK_BYTES + 1])
def test_every_write_but_the_last_is_a_whole_block(
    descriptor: int, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    sizes: list[int] = []
    pwrite = os.pwrite

    def count(target: int, data: memoryview, offset: int) -> int:
        sizes.append(len(data))
        return pwrite(target, data, offset)

    monkeypatch.setattr(os, "pwrite", count)
    length = 3 * BLOCK_BYTES + 12_345
    source = PiecesSource(pattern(0, length), (piece, None))
    FileCopy(descriptor, ByteRange(7, 7 + length), PATIENT).run(source, nothing)
    assert sizes == [BLOCK_BYTES] * 3 + [12_345]


def test_a_short_write_is_continued(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:700], at))
    FileCopy(descriptor, ByteRange(3, 5003), PATIENT).run(PiecesSource(pattern(3, 5003)), nothing)
    assert os.pread(descriptor, 5000, 3) == pattern(3, 5003)


def test_a_failing_write_does_not_count_its_bytes(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    transfer = FileCopy(descriptor, ByteRange(0, 1000), PATIENT)
    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match="No space"):
        transfer.run(PiecesSource(pattern(0, 1000)), nothing)
    assert transfer.position == 0


def test_a_watch_that_raises_ends_the_copy_at_a_block_boundary(descriptor: int) -> None:
    def stop() -> None:
        raise InterruptedError

    transfer = FileCopy(descriptor, ByteRange(0, 3 * BLOCK_BYTES), PATIENT)
    with pytest.raises(InterruptedError):
        transfer.run(PiecesSource(pattern(0, 3 * BLOCK_BYTES)), stop)
    assert transfer.position == BLOCK_BYTES
    assert os.fstat(descriptor).st_size == BLOCK_BYTES


def test_a_watch_is_called_while_nothing_arrives(descriptor: int) -> None:
    asked: list[int] = []
    transfer = FileCopy(descriptor, ByteRange(0, 100), PATIENT)
    source = PiecesSource(pattern(0, 100), (None, None, 60))
    transfer.run(source, lambda: asked.append(source.position))
    assert asked == [0, 0, 60, 60, 100]


def test_an_empty_range_reads_nothing(descriptor: int) -> None:
    source = PiecesSource(pattern(0, 10))
    FileCopy(descriptor, ByteRange(5, 5), PATIENT).run(source, nothing)
    assert source.position == 0


@settings(max_examples=50)
@given(
    st.integers(0, 3000),
    st.lists(st.one_of(st.none(), st.integers(1, 900)), max_size=4),
    st.integers(0, 3000),
)
def test_the_position_is_exact_wherever_the_connection_is_cut(
    start: int, pieces: list[int | None], cut_at: int
) -> None:
    length = 3000
    source = PiecesSource(pattern(0, length), [*pieces, 500], cut_at=cut_at)
    descriptor = os.memfd_create("file")
    try:
        transfer = FileCopy(descriptor, ByteRange(start, start + length), PATIENT)
        if cut_at < length:
            with pytest.raises(BodyTruncated):
                transfer.run(source, nothing)
        else:
            transfer.run(source, nothing)
        assert transfer.position == start + cut_at
        assert os.pread(descriptor, length, start) == pattern(0, cut_at)
    finally:
        os.close(descriptor)


def test_exactly_the_requested_bytes_are_dropped() -> None:
    source = PiecesSource(pattern(0, 100), (7, None))
    discard(source, limits=PATIENT, watch=nothing, count=50)
    assert source.position == 50
    discard(source, limits=PATIENT, watch=nothing)
    assert source.position == 100


def test_dropping_ends_with_a_truncated_body() -> None:
    source = PiecesSource(pattern(0, 100), is_told=False)
    discard(source, limits=PATIENT, watch=nothing, count=500)
    assert source.position == 100
