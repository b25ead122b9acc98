"""The client's memory does not depend on the size of the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.running import CommandLine
from tests.server import Server

pytestmark = pytest.mark.e2e

MB = 1_000_000
SMALL, LARGE = 256 * MB, 2000 * MB

MOST_GROWTH = 16 * MB
"""What eight times the size may add: below one chunk, and far below the difference in size."""


def sparse_file(path: Path, size: int) -> Path:
    """A file that takes no room here, with something in it at both ends."""
    with path.open("wb") as file:
        file.write(os.urandom(1000))
        file.truncate(size)
        file.seek(size - 1000)
        file.write(os.urandom(1000))
    return path


def peaks(command: CommandLine, size: int) -> dict[str, int]:
    """Peak memory of an upload and of a fetch, in bytes."""
    path, copy = sparse_file(command.home / "film.mp4", size), command.home / "copy.mp4"
    up = command.run("upload", path, "--json")
    assert up.code == 0, up.err
    down = command.run("fetch", up.documents[0]["id"], "-o", copy, "--json")
    assert down.code == 0, down.err
    assert up.documents[0]["verified"]
    assert down.documents[0]["sha256"] == up.documents[0]["sha256"]
    command.run("rm", up.documents[0]["id"])
    path.unlink()
    copy.unlink()
    return {"upload": up.peak_bytes, "fetch": down.peak_bytes}


def test_two_gigabytes_need_no_more_memory_than_a_quarter_of_one(
    start_server: Callable[..., Server], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_server(SLUICE_DURABILITY="none")
    command = CommandLine(home, server.url)
    small, large = peaks(command, SMALL), peaks(command, LARGE)
    with capsys.disabled():
        for name in small:
            print(f"\n  {name}: {small[name] / MB:.1f} MB for {SMALL // MB} MB, ", end="")
            print(f"{large[name] / MB:.1f} MB for {LARGE // MB} MB", end="")
    for name in small:
        assert large[name] < small[name] + MOST_GROWTH
