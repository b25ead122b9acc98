"""Who runs when more want to than may."""

from __future__ import annotations

import time
from collections import Counter
from threading import Barrier, Thread

import pytest

from app.ingest.turns import Turns, aside, turn

THREADS, ROUNDS = 6, 40


def run_all(work: list[Thread]) -> None:
    """Start them together, and wait for their ends."""
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()


def test_no_more_run_at_once_than_there_are_turns() -> None:
    turns, running, counts = Turns(2), list[int](), list[int]()

    def work() -> None:
        for _ in range(ROUNDS):
            with turn(turns):
                running.append(0)
                counts.append(len(running))
                time.sleep(0.0005)
                running.pop()

    run_all([Thread(target=work) for _ in range(THREADS)])
    assert max(counts) == 2


def test_who_comes_again_and_again_waits_for_the_others() -> None:
    turns, start = Turns(1), Barrier(THREADS)
    done, done_by_then = Counter[int](), list[int]()

    def work(number: int) -> None:
        start.wait()
        for _ in range(ROUNDS):
            with turn(turns):
                done[number] += 1
                time.sleep(0.001)
        done_by_then.append(min(done[one] for one in range(THREADS)))

    run_all([Thread(target=work, args=(number,)) for number in range(THREADS)])
    assert done_by_then[0] > ROUNDS / 2, "when the first one has ended, the others nearly have"


def test_a_turn_that_is_given_up_for_a_while_goes_to_another() -> None:
    turns, log = Turns(1), list[str]()

    def other() -> None:
        with turn(turns):
            log.append("other")

    with turn(turns):
        thread = Thread(target=other)
        thread.start()
        log.append("before")
        with aside():
            thread.join()
        log.append("after")
    assert log == ["before", "other", "after"]


def test_a_turn_is_given_back_once_whatever_happens() -> None:
    turns = Turns(1)
    for _ in range(3):
        with pytest.raises(ConnectionResetError), turn(turns), aside():
            raise ConnectionResetError
    with turn(turns):
        late = Thread(target=turns.acquire, daemon=True)
        late.start()
        late.join(0.1)
        assert late.is_alive()
    late.join()


def test_a_turn_is_given_up_once_however_often_it_is_said() -> None:
    turns = Turns(1)
    with turn(turns):
        with aside():
            turns.acquire()
            with aside():
                late = Thread(target=turns.acquire, daemon=True)
                late.start()
                late.join(0.1)
                assert late.is_alive(), "the one turn there is has been taken"
            turns.release()
            late.join()
            turns.release()
        with aside(), turn(turns):
            pass
