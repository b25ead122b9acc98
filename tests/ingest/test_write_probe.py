"""A file system that has turned read-only is noticed after an fsync that succeeds."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.ingest.write_probe import WriteProbe
from tests.hostile.disks import BreakableDisk, breakable_disk


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
