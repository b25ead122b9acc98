"""How many connections the client sends on, on lines that are simulated."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from sluice_client.connections import (
    BOUNDS,
    BOUNDS_OF_BBR,
    NEAR_BYTES_PER_SECOND,
    SETTLED_SECONDS,
    Bounds,
    Connections,
)
from sluice_client.line_state import LineState, OpenSockets
from sluice_client.pace import ADVICE_SECONDS, Pace
from sluice_client.spans import ChunkLadder

LOOKS_A_SECOND = 4
MIB = 1024 * 1024


class Line(OpenSockets):
    """Tells what the kernel would; `rate` gives bytes a second for a number of connections."""

    def __init__(
        self,
        rate: Callable[[int], float],
        *,
        loss: float = 0,
        queue: float = 0,
        bounds: Bounds = BOUNDS,
    ) -> None:
        super().__init__()
        self.rate, self.loss, self.queue = rate, loss, queue
        self.now = self.seen_at = 0.0
        self.connections = Connections(24, self, bounds=bounds, clock=lambda: self.now)

    def look(self) -> LineState | None:
        elapsed, self.seen_at = self.now - self.seen_at, self.now
        sent = int(self.rate(self.connections.count) * elapsed)
        return LineState(sent, 10_000, int(10_000 * self.loss), self.queue, 0.15)

    def counts(self, seconds: float) -> list[int]:
        """The numbers of connections meanwhile."""
        found = []
        for _ in range(int(seconds * LOOKS_A_SECOND)):
            self.now += 1 / LOOKS_A_SECOND
            self.connections.look()
            found.append(self.connections.count)
        return found


def each(most: int) -> Callable[[int], float]:
    """What a connection gets by itself, up to `most` of them."""
    return lambda count: 100_000.0 * min(count, most)


def test_a_line_that_loses_packets_gets_as_many_as_bring_something() -> None:
    line = Line(each(24), loss=0.01)
    assert line.counts(0.25) == [BOUNDS.first]
    assert line.counts(8)[-1] == 24


@pytest.mark.parametrize("gain_up_to", [6, 7])
def test_connections_that_bring_nothing_are_given_back_and_tried_again_later(
    gain_up_to: int,
) -> None:
    line = Line(each(gain_up_to), loss=0.01)
    counts = line.counts(SETTLED_SECONDS)
    assert max(counts) == 2 * BOUNDS.first
    assert counts[-1] == BOUNDS.first
    assert counts.count(2 * BOUNDS.first) <= 4 * LOOKS_A_SECOND
    assert max(line.counts(SETTLED_SECONDS)) == 2 * BOUNDS.first


def test_a_line_whose_queue_is_full_is_left_to_two_within_three_seconds() -> None:
    assert Line(each(2), queue=0.1).counts(3)[-1] == 2


def test_connections_that_were_given_back_return_once_there_is_no_queue() -> None:
    line = Line(each(6), queue=0.1)
    assert line.counts(3)[-1] == 2
    line.queue = 0.0
    assert line.counts(6)[-1] == BOUNDS.first


def test_a_clean_line_keeps_what_it_has() -> None:
    assert set(Line(each(24)).counts(30)) == {BOUNDS.first}


def test_losses_of_a_full_queue_are_no_reason_for_more() -> None:
    assert max(Line(each(2), queue=0.1, loss=0.01).counts(30)) == BOUNDS.first


def test_without_news_of_the_kernel_the_number_stays() -> None:
    line = Line(each(24))
    line.look = lambda: None  # type: ignore[method-assign]
    assert set(line.counts(30)) == {BOUNDS.first}


def test_no_more_are_used_than_the_server_asks_for_until_it_asks_no_more() -> None:
    line = Line(each(24), loss=0.01)
    line.connections.obey(3)
    assert set(line.counts(8)) == {3}
    line.connections.obey(0)
    assert set(line.counts(1)) == {1}
    line.connections.obey(None)
    assert line.counts(20)[-1] == 24


def test_the_server_is_asked_every_minute_while_something_is_sent() -> None:
    line, asked = Line(each(6)), Event()
    pace = Pace(
        ChunkLadder.around(MIB, smallest=MIB, largest=MIB),
        chunk_bytes=MIB,
        connections=line.connections,
        ask_advice=asked.set,
        clock=lambda: line.now,
    )
    line.now = ADVICE_SECONDS - 1
    assert pace.parallel == BOUNDS.first
    assert not asked.is_set()
    line.now = ADVICE_SECONDS
    assert pace.parallel == BOUNDS.first
    assert asked.wait(60)


class Near(Line):
    """A server on the same machine, or in the same room."""

    def least_rtt_seconds(self) -> float:
        return 0.0001


def test_a_near_server_that_takes_much_gets_two_connections() -> None:
    line = Near(each(24))
    assert (line.connections.wanted, line.connections.wanted_at_end) == (BOUNDS.first, BOUNDS.first)
    line.connections.has_brought(10 * NEAR_BYTES_PER_SECOND)
    assert (line.connections.wanted, line.connections.wanted_at_end) == (
        BOUNDS.fewest,
        BOUNDS.fewest,
    )


def test_behind_a_proxy_on_this_machine_the_line_may_be_slow() -> None:
    line = Near(each(24))
    line.connections.has_brought(10 * NEAR_BYTES_PER_SECOND)
    line.connections.has_brought(NEAR_BYTES_PER_SECOND / 10)
    assert line.connections.wanted == BOUNDS.first


def test_a_distant_server_that_takes_much_gets_all_connections() -> None:
    line = Line(each(24))
    line.connections.has_brought(10 * NEAR_BYTES_PER_SECOND)
    assert line.connections.wanted == BOUNDS.first


def test_with_bbr_two_connections_become_four_at_most() -> None:
    line = Line(each(24), loss=0.01, bounds=BOUNDS_OF_BBR)
    counts = line.counts(20)
    assert (counts[0], max(counts)) == (2, 4)
