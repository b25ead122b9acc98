"""Counts that all workers share."""

from __future__ import annotations

from pathlib import Path

from app.db.minute_counts import NEAR, SLOTS, MinuteCounts


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000_020.0  # A full minute.

    def __call__(self) -> float:
        return self.now


def test_all_who_use_the_file_count_together_and_names_apart(tmp_path: Path) -> None:
    clock = Clock()
    first, second = (MinuteCounts(tmp_path / "counts", clock) for _ in range(2))
    assert [first.add("ann"), second.add("ann"), first.add("ann")] == [1, 2, 3]
    assert second.add("bob") == 1


def test_a_minute_begins_anew(tmp_path: Path) -> None:
    clock = Clock()
    counts = MinuteCounts(tmp_path / "counts", clock)
    counts.add("ann")
    clock.now += 59.5
    assert (counts.add("ann"), counts.seconds_left) == (2, 1)
    clock.now += 0.5
    assert (counts.add("ann"), counts.seconds_left) == (1, 60)


def test_more_names_than_slots_need_no_more_memory(tmp_path: Path) -> None:
    counts = MinuteCounts(tmp_path / "counts", Clock())
    for number in range(SLOTS * 2):
        counts.add(f"caller {number}")
    assert (tmp_path / "counts").stat().st_size == SLOTS * 16
    assert counts.add("another") <= NEAR * SLOTS
