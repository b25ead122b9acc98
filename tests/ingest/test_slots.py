"""Which requests run when there are more of them than slots."""

from __future__ import annotations

import time
from threading import Thread

import pytest

from app.ingest.slots import Slots, holding, without_slot
from tests.waiting import wait_until

THREADS, ROUNDS = 6, 40


def run_all(work: list[Thread]) -> None:
    """Run the calls in parallel, and wait for all."""
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()


def test_no_more_run_at_once_than_there_are_slots() -> None:
    slots, running, counts = Slots(2), list[int](), list[int]()

    def work() -> None:
        for _ in range(ROUNDS):
            with holding(slots):
                running.append(0)
                counts.append(len(running))
                time.sleep(0.0005)
                running.pop()

    run_all([Thread(target=work) for _ in range(THREADS)])
    assert max(counts) == 2


def test_a_request_that_returns_queues_behind_the_others() -> None:
    slots, log = Slots(1), list[int]()

    def work(number: int) -> None:
        with holding(slots):
            log.append(number)

    others = [Thread(target=work, args=(number,)) for number in range(THREADS)]
    with holding(slots):
        for number, other in enumerate(others):
            other.start()
            wait_until(lambda: len(slots._waiting) > number, "it waits")  # noqa: B023 - at once
    work(THREADS)
    assert log == [*range(THREADS + 1)]
    for other in others:
        other.join()


def test_a_yielded_slot_goes_to_another_request() -> None:
    slots, log = Slots(1), list[str]()

    def other() -> None:
        with holding(slots):
            log.append("other")

    with holding(slots):
        thread = Thread(target=other)
        thread.start()
        log.append("before")
        with without_slot():
            thread.join()
        log.append("after")
    assert log == ["before", "other", "after"]


def test_a_slot_is_released_once_whatever_happens() -> None:
    slots = Slots(1)
    for _ in range(3):
        with pytest.raises(ConnectionResetError), holding(slots), without_slot():
            raise ConnectionResetError
    with holding(slots):
        late = Thread(target=slots.acquire, daemon=True)
        late.start()
        late.join(0.1)
        assert late.is_alive()
    late.join()


def test_a_slot_is_yielded_once_however_often_it_is_asked() -> None:
    slots = Slots(1)
    with holding(slots):
        with without_slot():
            slots.acquire()
            with without_slot():
                late = Thread(target=slots.acquire, daemon=True)
                late.start()
                late.join(0.1)
                assert late.is_alive(), "the one slot there is has been taken"
            slots.release()
            late.join()
            slots.release()
        with without_slot(), holding(slots):
            pass
