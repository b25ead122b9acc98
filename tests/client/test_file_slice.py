"""Bytes of a file that are sent from the page cache."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice_client.errors import FileChanged, Interrupted
from sluice_client.local_file import FileSlice
from sluice_client.spans import Span

DATA = os.urandom(3_000_000)


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    with path.open("rb") as file:
        yield file.fileno()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    here.settimeout(60)
    with here, there:
        yield here, there


def received(there: socket.socket, count: int) -> tuple[threading.Thread, bytearray]:
    found = bytearray()

    def receive() -> None:
        while len(found) < count and (block := there.recv(65536)):
            found.extend(block)

    thread = threading.Thread(target=receive)
    thread.start()
    return thread, found


def slice_of(descriptor: int, start: int, end: int, sent: list[int]) -> FileSlice:
    return FileSlice(descriptor, Span(start, end), is_over=lambda: False, on_sent=sent.append)


def send(
    descriptor: int, ends: tuple[socket.socket, socket.socket], start: int, end: int
) -> tuple[bytes, int]:
    """What arrived, and how much was reported as sent."""
    sent: list[int] = []
    thread, found = received(ends[1], end - start)
    slice_of(descriptor, start, end, sent).send_to(ends[0])
    ends[0].shutdown(socket.SHUT_WR)
    thread.join()
    return bytes(found), sum(sent)


def test_the_span_arrives_and_is_reported(
    descriptor: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    assert send(descriptor, ends, 5, 2_999_999) == (DATA[5:2_999_999], 2_999_994)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_file_system_that_cannot_do_it_is_read_instead(
    descriptor: int,
    ends: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "sendfile", fail)
    assert send(descriptor, ends, 5, 1_000_000) == (DATA[5:1_000_000], 999_995)


def test_a_connection_that_takes_nothing_times_out(
    descriptor: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    ends[0].settimeout(0.2)
    with pytest.raises(TimeoutError, match="timed out"):
        slice_of(descriptor, 0, 3_000_000, []).send_to(ends[0])


def test_a_file_that_became_shorter_is_an_error(
    descriptor: int, ends: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    os.truncate(tmp_path / "file", 10)
    with pytest.raises(FileChanged):
        slice_of(descriptor, 0, 100, []).send_to(ends[0])


def test_nothing_more_is_sent_once_the_job_is_over(
    descriptor: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    body = FileSlice(descriptor, Span(0, 100), is_over=lambda: True, on_sent=lambda _count: None)
    with pytest.raises(Interrupted):
        body.send_to(ends[0])
