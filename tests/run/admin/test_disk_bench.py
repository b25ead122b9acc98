"""Measuring a folder: what is written, when it ends, what is left behind."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.run.admin.disk import BLOCK_SIZES, KIB, MIB, Bounds, Mode, measure, needed_bytes
from tests.live_server import ROOT

NEVER = 600.0
"""Seconds in which a cell of a few blocks has always ended."""

SMALL = Bounds(64 * KIB, NEVER)
SIZES = (4 * KIB, 16 * KIB, 64 * KIB)


def test_every_mode_is_measured_with_every_block_size_in_order(tmp_path: Path) -> None:
    cells = list(measure(tmp_path, SMALL, SIZES))
    expected = [(mode, size) for mode in Mode for size in SIZES]
    assert [(cell.mode, cell.block_bytes) for cell in cells] == expected


def test_each_cell_moves_the_requested_bytes(tmp_path: Path) -> None:
    for cell in measure(tmp_path, SMALL, SIZES):
        assert cell.byte_count == 64 * KIB or cell.why_not
        assert cell.seconds > 0 or cell.why_not


def test_a_cell_never_goes_beyond_its_bytes(tmp_path: Path) -> None:
    moved = {cell.byte_count for cell in measure(tmp_path, Bounds(100 * KIB, NEVER), [64 * KIB])}
    assert moved <= {0, 64 * KIB}


def test_a_block_larger_than_the_bytes_is_moved_once(tmp_path: Path) -> None:
    moved = {cell.byte_count for cell in measure(tmp_path, Bounds(4 * KIB, NEVER), [64 * KIB])}
    assert moved <= {0, 64 * KIB}


def test_a_cell_ends_when_its_time_is_up(tmp_path: Path) -> None:
    cells = list(measure(tmp_path, Bounds(4 * MIB, 1e-9), [4 * KIB]))
    assert {cell.byte_count for cell in cells} <= {0, 4 * KIB}


def test_written_bytes_are_really_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: dict[int, int] = {}
    real = os.pwrite

    def counting(descriptor: int, data: bytes, position: int) -> int:
        count = real(descriptor, data, position)
        written[position] = written.get(position, 0) + count
        return count

    monkeypatch.setattr(os, "pwrite", counting)
    cells = measure(tmp_path, SMALL, [16 * KIB])
    next(cells)
    cells.close()  # type: ignore[attr-defined]
    positions = range(0, 64 * KIB, 16 * KIB)
    assert written == {0: 64 * KIB + 16 * KIB, **dict.fromkeys(positions[1:], 16 * KIB)}


def test_the_folder_stays_empty_during_and_after(tmp_path: Path) -> None:
    for _ in measure(tmp_path, SMALL, SIZES):
        assert list(tmp_path.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    program = (
        "import sys; from pathlib import Path; from app.run.admin.disk import *\n"
        "for cell in measure(Path(sys.argv[1]), Bounds(16 * MIB, 60.0)): print(cell, flush=True)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_direct_io_says_so_and_the_rest_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.fcntl

    def refusing(descriptor: int, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETFL and argument & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", refusing)
    cells = list(measure(tmp_path, SMALL, SIZES))
    direct = [cell for cell in cells if cell.mode.is_direct]
    assert {cell.why_not for cell in direct} == {"the file system has no direct I/O"}
    assert {cell.bytes_per_second for cell in direct} == {None}
    assert all(cell.bytes_per_second for cell in cells if not cell.mode.is_direct)


def test_direct_io_below_the_disks_block_size_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, data: bytes, position: int) -> int:
        is_direct = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT
        if is_direct and len(data) < 4 * KIB:
            raise OSError(errno.EINVAL, "Invalid argument")
        return len(data)

    monkeypatch.setattr(os, "pwrite", refuse)
    cells = list(measure(tmp_path, SMALL, [KIB, 4 * KIB]))
    small, large = (cell for cell in cells if cell.mode is Mode.WRITE_DIRECT)
    assert small.why_not == "below the disk's own block size"
    assert large.byte_count == 64 * KIB


def test_other_disk_errors_are_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match="Input/output"):
        list(measure(tmp_path, SMALL, SIZES))
    assert list(tmp_path.iterdir()) == []


def test_the_required_space_holds_both_files() -> None:
    assert needed_bytes(Bounds(256 * MIB, 1.0)) == 512 * MIB
    assert needed_bytes(Bounds(1, 1.0)) == 2 * max(BLOCK_SIZES)
