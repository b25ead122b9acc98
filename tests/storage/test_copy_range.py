"""Copies between files that never pass through the program."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.storage.local.library import copy_range
from tests.storage.sources import pattern

REFUSALS = [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM]


class Files:
    """A source with the test's bytes, and a target that is open for reading and writing."""

    def __init__(self, source: Path, target: Path, length: int) -> None:
        source.write_bytes(pattern(0, length))
        self.path = target
        target.touch()
        self.source = os.open(source, os.O_RDONLY)
        self.target = os.open(target, os.O_RDWR)

    def close(self) -> None:
        os.close(self.source)
        os.close(self.target)


@pytest.fixture(params=["one file system", "two file systems"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    place = tmp_path
    if request.param == "two file systems":
        place = request.getfixturevalue("memory_folder")
    files = Files(place / "source", tmp_path / "target", 10_000)
    yield files
    files.close()


@pytest.fixture(params=["copy_file_range", "sendfile"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the two ways; the second is the fallback of the first."""
    if request.param == "sendfile":
        refuse(monkeypatch, errno.EXDEV)


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A file system that cannot copy ranges."""

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "copy_file_range", fail)


@pytest.mark.parametrize("length", [0, 1, 4096, 9_999, 10_000])
def test_the_first_bytes_of_the_source_arrive(files: Files, length: int) -> None:
    assert copy_range(files.source, files.target, 0, length) == length
    assert files.path.read_bytes() == pattern(0, length)


def test_the_bytes_arrive_at_the_position(files: Files) -> None:
    os.write(files.target, b"\xff" * 20_000)
    assert copy_range(files.source, files.target, 5_000, 100) == 100
    expected = b"\xff" * 5_000 + pattern(0, 100) + b"\xff" * 14_900
    assert files.path.read_bytes() == expected


def test_a_position_beyond_the_end_leaves_a_hole_before_it(files: Files) -> None:
    assert copy_range(files.source, files.target, 7_001, 100) == 100
    assert files.path.read_bytes() == bytes(7_001) + pattern(0, 100)


def test_a_short_source_reports_how_much_was_copied(files: Files) -> None:
    assert copy_range(files.source, files.target, 10, 20_000) == 10_000
    assert files.path.read_bytes() == bytes(10) + pattern(0, 10_000)


def test_bytes_of_several_calls_arrive_in_order(files: Files) -> None:
    assert copy_range(files.source, files.target, 3, 10_000, at_once=777) == 10_000
    assert files.path.read_bytes() == bytes(3) + pattern(0, 10_000)


def test_neither_descriptor_need_be_at_its_start(files: Files) -> None:
    os.lseek(files.source, 5_000, os.SEEK_SET)
    os.lseek(files.target, 123, os.SEEK_SET)
    assert copy_range(files.source, files.target, 0, 10_000) == 10_000
    assert files.path.read_bytes() == pattern(0, 10_000)


@pytest.mark.parametrize("number", REFUSALS)
def test_every_refusal_by_the_kernel_falls_back_to_copying(
    files: Files, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse(monkeypatch, number)
    assert copy_range(files.source, files.target, 0, 10_000) == 10_000
    assert files.path.read_bytes() == pattern(0, 10_000)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_disk_errors_are_not_hidden(
    files: Files, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse(monkeypatch, number)
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        copy_range(files.source, files.target, 0, 10_000)
    assert caught.value.errno == number
