"""At the end of a file, a chunk that is late goes out once more, on connections that are idle."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs, urlsplit

import pytest

from sluice_client import Client, Progress, chunk_sender, pace
from sluice_client.transport import AbortHandle
from tests.client.bad_line import BadLine, Line, Request
from tests.client.conftest import MakeFile
from tests.client.test_upload import assert_same
from tests.live_server import Server

SIZE = 6_000_000
CHUNK = 64 * 1024

FOREVER = 1_000.0
"""Seconds; the test would be ended before a connection was given up."""


class Slow:
    """Holds up what ends the file, so many times, with what `fault` does."""

    def __init__(self, fault: Callable[[Line], None], times: int = 1) -> None:
        self.fault, self.left = fault, times
        self._lock = Lock()

    def __call__(self, line: Line, request: Request) -> None:
        with self._lock:
            is_due = is_last(request) and self.left > 0
            self.left -= is_due
        if is_due:
            self.fault(line)


def is_last(request: Request) -> bool:
    """Whether its chunk is the end of the file."""
    found = parse_qs(urlsplit(request.path).query).get("dzchunkbyteoffset")
    return found is not None and int(found[0]) + request.length == SIZE


def times_last(line: BadLine) -> int:
    """How often the end of the file was begun."""
    return sum(is_last(request) for request in line.requests)


@pytest.fixture
def path(make_file: MakeFile) -> Path:
    """No film: the ends of those go first."""
    return make_file("notes.bin", size=SIZE)


@pytest.fixture
def connect(line: BadLine, make_client: Callable[..., Client]) -> Callable[..., Client]:
    """Makes a client on a line that keeps its chunks short."""
    line.bytes_per_second = 1_000_000

    def connect(seconds: float = FOREVER, **more: int) -> Client:
        limits = {"stall_seconds": seconds, "answer_seconds": seconds}
        return make_client(line.url, chunk_bytes=CHUNK, parallel=6, **limits, **more)

    return connect


@pytest.mark.parametrize("place", ["on_body", "on_answer"])
def test_the_end_of_a_file_does_not_wait_for_a_connection_that_stalls(
    server: Server, line: BadLine, connect: Callable[..., Client], path: Path, place: str
) -> None:
    setattr(line, place, Slow(Line.stall))
    seen: list[Progress] = []
    uploaded = connect().upload(path, on_progress=seen.append)
    assert_same(server, uploaded.id, path)
    assert times_last(line) == 2
    assert seen[-1].done == SIZE


def test_the_end_of_a_file_does_not_wait_for_a_request_that_cannot_be_ended(
    server: Server,
    line: BadLine,
    connect: Callable[..., Client],
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that is still connecting."""
    monkeypatch.setattr(AbortHandle, "abort", lambda _: None)
    line.on_body = Slow(Line.stall)
    seen: list[Progress] = []
    uploaded = connect().upload(path, on_progress=seen.append)
    assert_same(server, uploaded.id, path)
    assert times_last(line) == 2
    assert seen[-1].done == SIZE


def test_a_repetition_that_fails_too_leaves_the_chunk_to_the_others(
    server: Server, line: BadLine, connect: Callable[..., Client], path: Path
) -> None:
    stalled: list[Line] = []

    def fail(each: Line) -> None:
        """The first one stalls until the second one is cut, and is then cut too."""
        stalled.append(each)
        if len(stalled) == 2:
            stalled[0].client.shutdown(socket.SHUT_RDWR)
            each.cut()
        each.stall()

    line.on_body = Slow(fail, times=2)
    uploaded = connect().upload(path)
    assert_same(server, uploaded.id, path)
    assert times_last(line) >= 3


def test_nothing_is_sent_twice_where_nothing_is_late(
    server: Server,
    line: BadLine,
    connect: Callable[..., Client],
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "LATE_SECONDS", 60.0)  # Whatever else the machine does.
    uploaded = connect().upload(path)
    assert_same(server, uploaded.id, path)
    assert line.sent() == SIZE


def test_no_more_than_a_share_of_a_file_is_sent_twice(
    server: Server,
    line: BadLine,
    connect: Callable[..., Client],
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunk_sender, "MOST_REPEATED", 0.001)
    line.on_body = Slow(Line.stall)
    assert waits_for_the_connection(server, connect(3.0), path)


def test_a_limited_rate_is_not_spent_on_repetitions(
    server: Server, line: BadLine, connect: Callable[..., Client], path: Path
) -> None:
    line.on_body = Slow(Line.stall)
    assert waits_for_the_connection(server, connect(3.0, limit_rate=100_000_000), path)


def waits_for_the_connection(server: Server, client: Client, path: Path) -> bool:
    """Whether the upload goes on only once the slow connection is given up."""
    seen: list[Progress] = []
    uploaded = client.upload(path, on_progress=seen.append)
    assert_same(server, uploaded.id, path)
    return any("stalled" in progress.note for progress in seen)
