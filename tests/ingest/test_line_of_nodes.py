"""Fair shares of a line that several nodes have together, with a clock that the test turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.ingest.bandwidth import Line, OtherNodes

MB = 1_000_000.0
STEP = 0.005
"""Seconds between two looks of a connection, as threads would have."""

BEAT = 1.0
"""Seconds between two reports of a node."""


@dataclass
class Fleet:
    """Nodes that report one after the other, each once a beat."""

    folder: Path
    total: float
    cap: float
    own: Mapping[str, float] = field(default_factory=dict)
    """The rates of senders whose own lines are slower than their shares, on each node."""

    def __post_init__(self) -> None:
        self.now = 5000.0
        self._beats = 0
        self._nodes = [self._node(number) for number in range(3)]
        self._reports = [self._nodes[0].report()] * len(self._nodes)
        self.sent: dict[str, float] = {}

    def _node(self, number: int) -> Line:
        others = OtherNodes(self.folder / f"others{number}")
        file = self.folder / f"line{number}"
        return Line(file, total=self.total, cap=self.cap, others=others, clock=lambda: self.now)

    def run(self, seconds: float, greed: Mapping[str, Sequence[int]]) -> dict[str, float]:
        """Bytes a second that each sender got, with so many connections to each of the nodes."""
        self.sent = dict.fromkeys(greed, 0.0)
        began, paced = self.now, dict.fromkeys(greed, 0.0)
        while self.now < began + seconds:
            for name, place in _connections(greed):
                line = self._nodes[place]
                slot, size = line.slot(name), line.quantum()
                if name in self.own:
                    if paced[name] + size > self.own[name] * (self.now - began):
                        continue
                    paced[name] += size
                if not line.wait_seconds(slot):
                    line.took(slot, size)
                    self.sent[name] += size
            self.now += STEP
            self._beat()
        return {name: count / seconds for name, count in self.sent.items()}

    def _beat(self) -> None:
        due = int((self.now - 5000.0) / BEAT * len(self._nodes))
        while self._beats < due:
            self._beats += 1
            number = self._beats % len(self._nodes)
            self._reports[number] = self._nodes[number].report()
            others = self._nodes[number].others
            assert others is not None
            others.learn(report for place, report in enumerate(self._reports) if place != number)


def _connections(greed: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, int]]:
    for name, counts in greed.items():
        for place, count in enumerate(counts):
            yield from [(name, place)] * count


def settled(fleet: Fleet, greed: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Bytes a second of each sender once the nodes know of all."""
    fleet.run(3, greed)
    return fleet.run(4, greed)


def test_senders_on_different_nodes_share_the_line(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, total=6 * MB, cap=0)
    rates = settled(fleet, {"one": (1, 0, 0), "greedy": (0, 8, 0)})
    assert rates["one"] == pytest.approx(3 * MB, rel=0.1)
    assert rates["greedy"] == pytest.approx(3 * MB, rel=0.1)


def test_a_sender_on_several_nodes_gets_no_more_than_one_on_a_single_node(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, total=6 * MB, cap=0)
    rates = settled(fleet, {"one": (0, 0, 1), "everywhere": (3, 3, 3)})
    assert rates["one"] == pytest.approx(3 * MB, rel=0.1)
    assert rates["everywhere"] == pytest.approx(3 * MB, rel=0.1)


@pytest.mark.parametrize("total", [0, 100 * MB])
def test_the_cap_of_a_sender_holds_over_all_nodes(tmp_path: Path, total: float) -> None:
    fleet = Fleet(tmp_path, total=total, cap=1 * MB)
    rates = settled(fleet, {"one": (1, 0, 0), "everywhere": (2, 2, 2)})
    assert rates["one"] == pytest.approx(1 * MB, rel=0.1)
    assert rates["everywhere"] == pytest.approx(1 * MB, rel=0.1)


def test_what_slow_senders_leave_is_divided_over_all_nodes(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, total=6 * MB, cap=0, own={"slow": 0.5 * MB})
    rates = settled(fleet, {"slow": (1, 0, 0), "one": (0, 1, 0), "greedy": (0, 3, 3)})
    assert rates["slow"] == pytest.approx(0.5 * MB, rel=0.15)
    assert rates["one"] == pytest.approx(2.75 * MB, rel=0.1)
    assert rates["greedy"] == pytest.approx(2.75 * MB, rel=0.1)


def test_who_leaves_frees_a_share_within_three_beats(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, total=6 * MB, cap=0)
    settled(fleet, {"one": (1, 0, 0), "greedy": (0, 8, 8)})
    fleet.run(3 * BEAT, {"one": (1, 0, 0)})
    assert fleet.run(2, {"one": (1, 0, 0)})["one"] == pytest.approx(6 * MB, rel=0.1)


def test_who_joins_costs_no_more_than_two_beats_beyond_the_limit(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, total=6 * MB, cap=0)
    settled(fleet, {"one": (1, 0, 0)})
    greed = {"one": (1, 0, 0), "greedy": (0, 8, 8)}
    fleet.run(2 * BEAT, greed)
    assert sum(fleet.run(3, greed).values()) < 6.6 * MB
