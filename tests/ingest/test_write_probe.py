"""A file system that has turned read-only is noticed after an fsync that succeeds."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import repeat
from pathlib import Path

import pytest

from app.ingest.write_probe import WriteProbe
from tests.hostile.disks import BreakableDisk, breakable_disk
from tests.long_tests import long
from tests.waiting import wait_until

WRITERS = 4
BLOCK = bytes(8192)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[BreakableDisk]:
    with breakable_disk(tmp_path / "disk", tmp_path / "disk.img", megabytes=32) as disk:
        yield disk


def test_a_disk_that_takes_writes_is_asked_again_and_again(tmp_path: Path) -> None:
    probe = WriteProbe()
    for _ in range(3):
        probe.require_writable(tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_a_disk_that_has_turned_read_only_is_an_error(disk: BreakableDisk) -> None:
    probe = WriteProbe()
    probe.require_writable(disk.folder)
    disk.turn_read_only()
    for each in (probe, WriteProbe()):
        with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
            each.require_writable(disk.folder)


def test_a_folder_that_was_replaced_is_asked_where_it_is_now(
    disk: BreakableDisk, tmp_path: Path
) -> None:
    probe = WriteProbe()
    probe.require_writable(disk.folder)
    disk.turn_read_only()
    probe.require_writable(tmp_path)


def test_a_folder_that_could_not_be_opened_is_tried_again(
    disk: BreakableDisk, tmp_path: Path
) -> None:
    probe, link = WriteProbe(), tmp_path / "link"
    probe.require_writable(link)
    link.symlink_to(disk.folder)
    disk.turn_read_only()
    with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
        probe.require_writable(link)


@pytest.mark.parametrize("rounds", [2, *long([50])])
def test_no_write_is_lost_unnoticed_while_a_disk_turns_read_only(
    tmp_path: Path, rounds: int
) -> None:
    for number in range(rounds):
        folder, image = tmp_path / f"{number}", tmp_path / f"{number}.img"
        with (
            breakable_disk(folder, image, megabytes=64) as disk,
            ThreadPoolExecutor(WRITERS) as threads,
        ):
            probe = WriteProbe()
            paths = [folder / f"log {writer}" for writer in range(WRITERS)]
            safe = threads.map(append_until_refused, paths, repeat(probe))
            wait_until(partial(has_probed, probe, 100), "many writes are confirmed")
            disk.turn_read_only()
            lengths = [*safe]
            os.close(probe._descriptor or -1)
            disk.repair()
            # The repair may remove a file that was never synced.
            found = [path.stat().st_size if path.exists() else 0 for path in paths]
            assert all(length <= there for length, there in zip(lengths, found, strict=True))


def has_probed(probe: WriteProbe, times: int) -> bool:
    return probe._length >= times


def append_until_refused(path: Path, probe: WriteProbe) -> int:
    """How many bytes were synced and confirmed by the probe."""
    safe = 0
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            os.pwrite(file.fileno(), BLOCK, safe)
            os.fdatasync(file.fileno())
            probe.require_writable(path.parent)
            safe += len(BLOCK)
    return safe
