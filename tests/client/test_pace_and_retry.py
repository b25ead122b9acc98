"""Chunk sizes, numbers of connections, and retries."""

from __future__ import annotations

import threading
from random import Random

import pytest

from sluice_client.connections import Connections
from sluice_client.errors import (
    ConnectionFailed,
    FileProblem,
    Interrupted,
    Refused,
    ServerUnreachable,
    SluiceError,
    problem_of,
)
from sluice_client.line_state import OpenSockets
from sluice_client.pace import SLOW_SECONDS, Pace
from sluice_client.retry import LONGEST_DELAY_SECONDS, Patience, delay_seconds, is_worth_retrying
from sluice_client.spans import ChunkLadder

MIB = 1 << 20


class Clock:
    """A clock that only advances when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def new_pace(*, least_bytes: int = 0) -> Pace:
    ladder = ChunkLadder.around(16 * MIB, smallest=64 << 10, largest=90_000_000)
    connections = Connections(6, OpenSockets(), clock=Clock())
    return Pace(ladder, chunk_bytes=16 * MIB, least_bytes=least_bytes, connections=connections)


def make_pace() -> Pace:
    """One that has seen a fast line."""
    pace = new_pace()
    pace.sent(pace.chunk_bytes, seconds=0.01, size=pace.chunk_bytes)
    return pace


@pytest.mark.parametrize(
    ("seconds", "then"), [(0.01, 16 * MIB), (0.5, 3 * MIB // 4), (2.0, 192 << 10), (1000, 64 << 10)]
)
def test_a_small_first_chunk_shows_how_large_the_next_may_be(seconds: float, then: int) -> None:
    pace = new_pace()
    assert pace.chunk_bytes == 256 << 10
    pace.sent(256 << 10, seconds=seconds, size=256 << 10)
    assert pace.chunk_bytes == pace.ladder.at_most(then)


def send(pace: Pace, seconds: float, times: int = 1) -> None:
    for _ in range(times):
        pace.sent(pace.chunk_bytes, seconds=seconds, size=pace.chunk_bytes)


def test_fast_clean_sends_grow_the_chunk_to_the_bound() -> None:
    pace = make_pace()
    send(pace, 0.1, times=3)
    assert pace.chunk_bytes == 32 * MIB
    send(pace, 0.1, times=100)
    assert pace.chunk_bytes == 64 * MIB


def test_a_chunk_that_took_too_long_is_halved() -> None:
    pace = make_pace()
    send(pace, SLOW_SECONDS + 1)
    assert pace.chunk_bytes == 8 * MIB


def test_chunks_that_fail_together_count_as_one_failure() -> None:
    pace = make_pace()
    for _ in range(4):
        pace.failed(16 * MIB)
    assert pace.chunk_bytes == 8 * MIB


def test_chunks_do_not_shrink_below_the_smallest_size() -> None:
    pace = make_pace()
    for _ in range(50):
        pace.failed(pace.chunk_bytes)
    assert pace.chunk_bytes == pace.ladder.unit == 64 << 10
    assert not pace.can_shrink_below(pace.chunk_bytes)


def test_a_size_that_failed_is_tried_again_only_after_many_clean_sends() -> None:
    pace = make_pace()
    pace.failed(16 * MIB)
    send(pace, 0.1, times=20)
    assert pace.chunk_bytes == 8 * MIB
    send(pace, 0.1, times=10)
    assert pace.chunk_bytes > 8 * MIB


def test_a_size_that_a_proxy_refused_is_never_tried_again() -> None:
    pace = make_pace()
    pace.failed(16 * MIB, is_too_large=True)
    send(pace, 0.1, times=500)
    assert pace.chunk_bytes == 8 * MIB


def sizes_on(bytes_per_second: int, *, least_bytes: int) -> list[int]:
    """The chunks, and the shortest of the end of a file, on a line that brings so much."""
    pace, found = new_pace(least_bytes=least_bytes), list[int]()
    for _ in range(20):
        found += [pace.chunk_bytes, max(pace.shortest, pace.ladder.unit)]
        send(pace, pace.chunk_bytes / bytes_per_second)
    return found


def test_no_chunk_is_below_the_servers_least_size_unless_that_takes_over_ten_seconds() -> None:
    least = 4 * MIB
    assert min(sizes_on(500_000, least_bytes=least)) == least
    assert min(sizes_on(100_000_000, least_bytes=least)) == least
    assert max(sizes_on(100_000, least_bytes=least)[2:]) < least
    assert min(sizes_on(500_000, least_bytes=0)) < least


def test_a_least_size_between_two_steps_is_the_upper_one() -> None:
    assert new_pace(least_bytes=5_000_000).chunk_bytes == 8 * MIB


def test_the_least_size_is_taken_up_again_once_the_line_carries_it() -> None:
    pace = new_pace(least_bytes=4 * MIB)
    pace.failed(4 * MIB)
    assert pace.chunk_bytes < 4 * MIB
    send(pace, 0.2, times=40)
    assert pace.chunk_bytes >= 4 * MIB


def test_a_chunk_is_late_if_it_takes_clearly_longer_than_others_of_its_size() -> None:
    pace = make_pace()
    assert not pace.is_late(MIB, 1000.0), "nothing is known"
    for seconds in (1.0, 2.0, 2.0, 9.0):
        pace.sent(MIB, seconds=seconds, size=MIB)
    assert not pace.is_late(MIB, 3.0)
    assert pace.is_late(MIB, 5.0)
    assert not pace.is_late(8 * MIB, 1000.0), "others of its size"


def test_no_chunk_of_a_fast_line_is_late_for_a_moment() -> None:
    pace = make_pace()
    for _ in range(8):
        pace.sent(MIB, seconds=0.01, size=MIB)
    assert not pace.is_late(MIB, 0.5)


def test_failures_remove_connections_down_to_one() -> None:
    pace = make_pace()
    for _ in range(10):
        pace.was_refused_for_now()
    assert pace.parallel == 1


def refused(status: int, **members: object) -> Refused:
    return Refused(status, **{**problem_of(members, status), "retry_after": None})


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionFailed(""), True),
        (ServerUnreachable(""), False),
        (FileProblem(""), False),
        (Interrupted(""), False),
        (refused(503), True),
        (refused(502), True),
        (refused(400), False),
        (refused(400, code="digest_mismatch", retryable=True), True),
        (refused(500, code="bug", retryable=False), False),
        (refused(413), False),
    ],
)
def test_only_retryable_errors_are_retried(error: SluiceError, expected: bool) -> None:
    assert is_worth_retrying(error) is expected


def test_delays_double_with_full_jitter_up_to_a_bound() -> None:
    random = Random(1)
    for failures in range(1, 40):
        upper = min(LONGEST_DELAY_SECONDS, 0.5 * 2.0 ** (failures - 1))
        drawn = [delay_seconds(failures, random) for _ in range(200)]
        assert 0 <= min(drawn) < upper / 4
        assert upper * 3 / 4 < max(drawn) <= upper


def test_the_client_gives_up_after_a_time_without_progress_and_not_before() -> None:
    clock, stop = Clock(), threading.Event()
    patience = Patience(60, stop, clock=clock, random=Random(1))
    clock.now = 50
    patience.progressed()
    clock.now = 100
    patience.wait_after(ConnectionFailed("cut"), 1)
    clock.now = 111
    with pytest.raises(
        ServerUnreachable, match=r"^cut\. Gave up after 61 seconds without progress"
    ):
        patience.wait_after(ConnectionFailed("cut."), 1)


def test_a_wait_is_reported_with_its_length() -> None:
    clock, notes = Clock(), list[str]()
    patience = Patience(900, threading.Event(), clock, Random(1), notes.append)
    for clock.now in (0, 10, 200):
        patience.wait_after(ConnectionFailed("Cut."), 1)
    assert notes == [
        "Cut. Trying again for up to 15 minutes.",
        "Cut. Trying again for up to 15 minutes.",
        "Cut. Trying again for up to 12 minutes.",
    ]


def test_a_retry_after_is_reported_and_obeyed() -> None:
    clock, notes = Clock(), list[str]()
    patience = Patience(5, threading.Event(), clock, Random(1), notes.append)
    busy = Refused(503, code="busy", detail="Busy.", retryable=True, retry_after=0.1)
    patience.wait_after(busy, 1)
    assert notes == ["Busy. Trying again in 0 s, for up to 5 seconds."]
    busy.retry_after = 6.0
    with pytest.raises(ServerUnreachable):
        patience.wait_after(busy, 1)


def test_the_last_attempt_is_made_at_the_deadline() -> None:
    clock, stop = Clock(), threading.Event()
    patience = Patience(60, stop, clock=clock, random=Random(1))
    clock.now = 59.9
    patience.wait_after(ConnectionFailed("cut"), 10)
    clock.now = 60.1
    with pytest.raises(ServerUnreachable):
        patience.wait_after(ConnectionFailed("cut"), 11)


def test_a_wait_ends_when_the_client_is_stopped() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Interrupted):
        Patience(60, stop).wait_after(ConnectionFailed("cut"), 1)
