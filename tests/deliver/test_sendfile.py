"""A span of a file, the way servers send it."""

from __future__ import annotations

import socket
from io import FileIO
from pathlib import Path

import pytest

from app.core.ranges import ByteRange
from app.deliver.bodies import SpanFile


@pytest.fixture
def middle(tmp_path: Path) -> SpanFile:
    """Bytes 10 to 19 of a file of 100, each byte its own position."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    file = FileIO(path)
    file.seek(10)
    return SpanFile(file, ByteRange(10, 20))


def test_reading_ends_with_the_span(middle: SpanFile) -> None:
    assert middle.read(4) + middle.read(100) == bytes(range(10, 20))
    assert middle.read(1) == b""
    middle.close()


def test_the_kernel_sends_from_the_files_position(middle: SpanFile) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert ours.sendfile(middle, 10, 10) == 10
        assert theirs.recv(100) == bytes(range(10, 20))
    middle.close()


def test_a_player_that_left_is_a_broken_pipe_and_not_a_bug(middle: SpanFile) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(BrokenPipeError):
        ours.sendfile(middle, 10, 10)
    middle.close()
