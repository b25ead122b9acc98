"""Transfers that leave room on the line."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from sluice_client.rate_limit import PIECE_BYTES, RateLimit
from tests.client.conftest import MakeFile
from tests.client.running import CommandLine
from tests.live_server import Server

RATE = 1_000_000


class Clock:
    """Turns by itself while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def test_bytes_are_spread_over_time() -> None:
    clock = Clock()
    limit = RateLimit(RATE, clock.wait, clock=clock)
    data = bytes(3 * RATE)
    assert b"".join(limit.pieces(data)) == data
    assert clock.now == pytest.approx(3, abs=2 * PIECE_BYTES / RATE)


def test_a_pause_is_not_made_up_for() -> None:
    clock = Clock()
    limit = RateLimit(RATE, clock.wait, clock=clock)
    clock.now = 100.0
    limit.take(RATE)
    limit.take(RATE)
    assert clock.now == pytest.approx(101)


def test_without_a_limit_nothing_is_cut() -> None:
    data = bytes(3 * RATE)
    assert list(RateLimit(0, threading.Event().wait).pieces(data)) == [data]


@pytest.mark.e2e
def test_connections_keep_to_the_limit_together(
    server: Server, command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    path = make_file(size=2 * RATE)
    began = time.monotonic()
    sent = command.run("upload", path, "--limit-rate", "1M", "--json")
    assert sent.code == 0, sent.err
    assert time.monotonic() - began > 1.9
    began = time.monotonic()
    copy = home / "copy"
    got = command.run("fetch", sent.documents[0]["id"], "-o", copy, "--limit-rate", "1000k")
    assert got.code == 0, got.err
    assert time.monotonic() - began > 1.5
    assert copy.read_bytes() == path.read_bytes()
    assert server.get(f"/media/{sent.documents[0]['id']}").content == path.read_bytes()
