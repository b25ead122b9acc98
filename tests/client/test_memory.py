"""The client's memory does not depend on the size of the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client.running import CommandLine
from tests.long_tests import long

pytestmark = pytest.mark.e2e

MB = 1_000_000
SMALL_SIZES = [24 * MB, *long([64 * MB])]
"""Of an eight times larger file, the server's copy and the fetched one exist at once, perhaps in
memory: 1 GB."""

MOST_GROWTH = 8 * MB
"""Bytes that eight times the size may add: less than a chunk, and far less than the file."""


def sparse_file(path: Path, size: int) -> Path:
    """A sparse file with content at both ends."""
    with path.open("wb") as file:
        file.write(os.urandom(1000))
        file.truncate(size)
        file.seek(size - 1000)
        file.write(os.urandom(1000))
    return path


MEASURED = """
import sys
from sluice_client.cli.main import run
code = run()
status = open("/proc/self/status").read()
print(int(status.split("VmHWM:")[1].split()[0]) * 1024, file=sys.stderr)
sys.exit(code)
"""
"""A command that says at its end how much memory it held at most. `getrusage` does not know: what
it says of a child includes the parent, up to the moment the child became a program of its own."""


def run_measured(command: CommandLine, *words: object) -> tuple[dict[str, Any], int]:
    """The command's output, and its peak memory in bytes."""
    ended = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, words), "--json"],
        env=command.environment,
        cwd=command.home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout), int(ended.stderr.splitlines()[-1])


def peaks(command: CommandLine, size: int) -> dict[str, int]:
    """Peak memory of an upload and of a fetch, in bytes."""
    path, copy = sparse_file(command.home / "film.mp4", size), command.home / "copy.mp4"
    uploaded, upload_peak = run_measured(command, "upload", path)
    fetched, fetch_peak = run_measured(command, "fetch", uploaded["id"], "-o", copy)
    assert uploaded["verified"]
    assert fetched["crc32c"] == uploaded["crc32c"]
    command.run("rm", uploaded["id"])
    path.unlink()
    copy.unlink()
    return {"upload": upload_peak, "fetch": fetch_peak}


@pytest.mark.parametrize("size", SMALL_SIZES)
def test_eight_times_the_size_takes_no_more_memory(
    command: CommandLine, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    small, large = peaks(command, size), peaks(command, 8 * size)
    with capsys.disabled():
        for name in small:
            print(f"\n  {name}: {small[name] / MB:.1f} MB for {size // MB} MB, ", end="")
            print(f"{large[name] / MB:.1f} MB for {8 * size // MB} MB", end="")
    for name in small:
        assert large[name] < small[name] + MOST_GROWTH
