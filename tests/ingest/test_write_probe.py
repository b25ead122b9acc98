"""A file system that has turned read-only is noticed after an fsync that succeeds."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.ingest.write_probe import WriteProbe, require_writable
from tests.hostile.disks import BreakableDisk, breakable_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[BreakableDisk]:
    with breakable_disk(tmp_path / "disk", tmp_path / "disk.img", megabytes=32) as disk:
        yield disk


def test_a_disk_that_takes_writes_is_left_as_it_is(tmp_path: Path) -> None:
    probe, file = WriteProbe(), tmp_path / "film"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    for _ in range(3):
        require_writable(descriptor)
        probe.require_writable(tmp_path)
    os.close(descriptor)
    assert (file.stat().st_size, [*tmp_path.iterdir()]) == (0, [file])


def test_a_disk_that_has_turned_read_only_is_an_error(disk: BreakableDisk) -> None:
    probe, unused = WriteProbe(), WriteProbe()
    descriptor = os.open(disk.folder / "film", os.O_WRONLY | os.O_CREAT)
    probe.require_writable(disk.folder)
    disk.turn_read_only()
    asks: list[Callable[[], object]] = [
        lambda: require_writable(descriptor),
        lambda: probe.require_writable(disk.folder),
        lambda: unused.require_writable(disk.folder),
    ]
    for ask in asks:
        with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
            ask()
    os.close(descriptor)


def test_a_folder_that_was_replaced_is_asked_where_it_is_now(
    disk: BreakableDisk, tmp_path: Path
) -> None:
    probe = WriteProbe()
    probe.require_writable(disk.folder)
    disk.turn_read_only()
    probe.require_writable(tmp_path)
