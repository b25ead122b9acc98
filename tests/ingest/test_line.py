"""Fair shares of the line, with a clock that the test turns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from app.ingest.bandwidth import Line, paced
from tests.storage.sources import PiecesSource, pattern

MB = 1_000_000.0
STEP = 0.002
"""Seconds between two looks of a connection, as threads would have."""


class Clock:
    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        return self.now


def simulated(
    folder: Path, greed: Mapping[str, int], own: Mapping[str, float], *, total: float, cap: float
) -> dict[str, float]:
    """Bytes a second that each sender got in the last four of six seconds.

    `greed` are the numbers of connections, spread over two processes; `own` are the rates of those
    whose own line is slower than their share.
    """
    clock = Clock()
    workers = [Line(folder / "line", total=total, cap=cap, clock=clock) for _ in range(2)]
    sent = dict.fromkeys(greed, 0.0)
    settled: dict[str, float] = {}
    began = clock.now
    while clock.now < began + 6:
        for name, connections in greed.items():
            for number in range(connections):
                line = workers[number % 2]
                slot, size = line.slot(name), line.quantum()
                if name in own and sent[name] + size > own[name] * (clock.now - began):
                    continue
                if not line.wait_seconds(slot):
                    line.took(slot, size)
                    sent[name] += size
        clock.now += STEP
        if not settled and clock.now >= began + 2:
            settled = dict(sent)
    return {name: (count - settled[name]) / 4 for name, count in sent.items()}


def test_ten_senders_of_different_greed_get_the_same(tmp_path: Path) -> None:
    greed = {f"person:{number}": connections for number, connections in enumerate(range(1, 21, 2))}
    rates = simulated(tmp_path, greed, {}, total=10 * MB, cap=0)
    assert max(rates.values()) < 1.1 * min(rates.values())
    assert 9 * MB < sum(rates.values()) < 11 * MB


def test_what_slow_senders_leave_is_divided_among_the_others(tmp_path: Path) -> None:
    greed = {"slow": 2, "one": 1, "greedy": 20}
    rates = simulated(tmp_path, greed, {"slow": 0.5 * MB}, total=6 * MB, cap=0)
    assert rates["slow"] == pytest.approx(0.5 * MB, rel=0.1)
    assert rates["one"] == pytest.approx(2.75 * MB, rel=0.1)
    assert rates["greedy"] == pytest.approx(2.75 * MB, rel=0.1)


def test_a_sender_alone_gets_the_whole_line(tmp_path: Path) -> None:
    rates = simulated(tmp_path, {"one": 4}, {}, total=6 * MB, cap=0)
    assert rates["one"] == pytest.approx(6 * MB, rel=0.1)


@pytest.mark.parametrize("total", [0, 100 * MB])
def test_the_cap_holds_for_each_sender(tmp_path: Path, total: float) -> None:
    rates = simulated(tmp_path, {"one": 1, "greedy": 20}, {}, total=total, cap=1 * MB)
    assert rates["one"] == pytest.approx(1 * MB, rel=0.1)
    assert rates["greedy"] == pytest.approx(1 * MB, rel=0.1)


def test_moments_from_before_a_restart_hold_up_nobody(tmp_path: Path) -> None:
    clock = Clock()
    line = Line(tmp_path / "line", total=0, cap=1000, clock=clock)
    slot = line.slot("one")
    line.took(slot, 30_000)
    assert line.wait_seconds(slot) > 0
    clock.now = 1.0
    assert line.wait_seconds(slot) == 0


def test_a_paced_body_arrives_whole(tmp_path: Path) -> None:
    line = Line(tmp_path / "line", total=0, cap=1 << 20)
    source = paced(PiecesSource(pattern(0, 100_000)), line, "one")
    buffer, filled = memoryview(bytearray(100_000)), 0
    while filled < len(buffer):
        filled += source.readinto(buffer[filled:]) or 0
    source.finish()
    assert bytes(buffer) == pattern(0, 100_000)
    assert source.remaining == 0
