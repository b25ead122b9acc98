"""Counts that all workers share."""

from __future__ import annotations

from pathlib import Path

from app.db.minute_counts import NEAR, REPORTED_NAMES, SLOTS, MinuteCounts, MinuteReport
from app.ingest.shared_table import NameDigest


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


def test_nodes_count_together_once_they_have_told_each_other(tmp_path: Path) -> None:
    clock = Clock()
    one, two, three = (
        MinuteCounts(tmp_path / f"counts{number}", clock, elsewhere=tmp_path / f"others{number}")
        for number in range(3)
    )
    for node, times in ((one, 5), (two, 2), (three, 1)):
        for _ in range(times):
            node.add("ann")
    three.learn([one.report(), two.report()])
    assert (three.add("ann"), three.add("bob")) == (9, 1)
    three.learn([one.report()])
    assert three.add("ann") == 8, "a node that ended is not counted"
    clock.now += 60
    assert three.add("ann") == 1


def test_only_those_with_the_secret_can_tell_who_a_report_is_about(tmp_path: Path) -> None:
    def report_of(node: str, secret: bytes) -> MinuteReport:
        counts = MinuteCounts(tmp_path / node, Clock(), digest=NameDigest(lambda: secret))
        counts.add("192.0.2.7")
        return counts.report()

    assert report_of("one", b"ours") == report_of("two", b"ours")
    assert report_of("three", b"guessed").counts != report_of("one", b"ours").counts


def test_a_report_has_a_bounded_number_of_names_those_that_count_most(tmp_path: Path) -> None:
    clock = Clock()
    one = MinuteCounts(tmp_path / "counts", clock)
    two = MinuteCounts(tmp_path / "counts of two", clock, elsewhere=tmp_path / "others")
    for number in range(2 * REPORTED_NAMES):
        one.add(f"caller {number}")
    one.add("ann")
    one.add("ann")
    report = one.report()
    assert len(report.counts) == REPORTED_NAMES
    two.learn([report])
    assert two.add("ann") == 3
