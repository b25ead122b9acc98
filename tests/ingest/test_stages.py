"""Where the time of a request goes: nested stages, other threads, other requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from app.ingest import stages
from app.ingest.stages import Stage, StageClock, add_seconds, note_arrival, timed_by


@contextmanager
def timed() -> Iterator[StageClock]:
    clock = StageClock()
    token = stages.start(clock)
    try:
        yield clock
    finally:
        stages.stop(token)


def spend(seconds: float) -> None:
    """Let at least this much time pass."""
    time.sleep(seconds)


def test_time_counts_only_for_the_innermost_stage() -> None:
    with timed() as clock, Stage.PUBLISH:
        spend(0.002)
        with Stage.SYNC:
            spend(0.05)
        spend(0.002)
    assert clock.seconds[Stage.SYNC] >= 0.05
    assert clock.seconds[Stage.PUBLISH] >= 0.004
    assert sum(clock.seconds.values()) <= clock.elapsed


def test_a_stage_entered_again_adds_up_without_the_time_between() -> None:
    with timed() as clock:
        for _ in range(3):
            with Stage.WRITE:
                spend(0.002)
            spend(0.02)
    assert clock.seconds.keys() == {Stage.WRITE}
    assert clock.seconds[Stage.WRITE] >= 0.006
    assert clock.elapsed - clock.seconds[Stage.WRITE] >= 0.06


def test_an_error_ends_its_stage() -> None:
    with timed() as clock:
        with pytest.raises(OSError, match="disk"), Stage.SYNC:
            raise OSError("disk")
        before = clock.seconds[Stage.SYNC]
        spend(0.002)
        assert clock.switch(None) is None
    assert clock.seconds[Stage.SYNC] == before


def test_outside_a_request_stages_and_bytes_are_ignored() -> None:
    """Catches an error in the background worker and the commands, which have no clock."""
    with Stage.SYNC:
        note_arrival(10)


def test_a_request_on_the_same_thread_starts_from_zero() -> None:
    with timed(), Stage.WRITE:
        pass
    with timed() as second:
        pass
    assert second.seconds == {}
    with Stage.WRITE:  # After the request, nothing counts for it.
        pass
    assert second.seconds == {}


def in_stage(name: Stage) -> Callable[[], None]:
    def work() -> None:
        with name:
            spend(0.002)

    return work


def test_work_in_another_thread_counts_only_once_it_is_added() -> None:
    with ThreadPoolExecutor(1) as pool, timed() as clock:
        pool.submit(in_stage(Stage.RECORD)).result()
        elsewhere = StageClock()
        pool.submit(timed_by(elsewhere, in_stage(Stage.SYNC))).result()
        pool.submit(in_stage(Stage.RECORD)).result()
        assert clock.seconds == {}
        add_seconds(elsewhere)
        add_seconds(elsewhere)
    assert clock.seconds == {Stage.SYNC: 2 * elsewhere.seconds[Stage.SYNC]}
    add_seconds(elsewhere)  # Outside a request it does nothing.


def test_concurrent_requests_do_not_see_each_other() -> None:
    def request(name: Stage) -> set[Stage]:
        with timed() as clock:
            for _ in range(20):
                in_stage(name)()
            return set(clock.seconds)

    with ThreadPoolExecutor(len(Stage)) as pool:
        found = list(pool.map(request, Stage))
    assert found == [{name} for name in Stage]


def test_bytes_are_reported_while_they_arrive_and_none_twice() -> None:
    told: list[int] = []
    with timed() as clock:
        clock.on_arrival = told.append
        while sum(told) == 0:  # A long request.
            in_stage(Stage.RECEIVE)()
            note_arrival(10)
        note_arrival(7)
        clock.tell()
        clock.tell()
    assert told[0] >= 10
    assert told[-1] % 10 == 7
    assert len(told) == 2
