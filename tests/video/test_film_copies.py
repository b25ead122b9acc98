"""Films in a bucket, as indexes and programs read them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from io import FileIO, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.core.errors import ServerBusy
from app.core.jobs import JobCancelled, JobFailed
from app.video.serve.derived_files import DerivedFiles
from app.video.serve.scratch import MAKING
from app.video.serve.source import CACHED_BLOCK_BYTES, ENDS_BYTES, TOO_LARGE, Blocks, MediaSource
from tests.derived import files_in
from tests.records.making import new_sqlite
from tests.storage.stores import local_store

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CONTENT = random.Random(3).randbytes(3_000_000)


class Counted(RawIOBase):
    """A file that is read like one in a bucket, and counts how often."""

    def __init__(self, path: Path) -> None:
        self._file = FileIO(path)
        self.reads = 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self.reads += 1
        return self._file.readinto(buffer) or 0

    def close(self) -> None:
        self._file.close()
        super().close()


@pytest.fixture
def film(tmp_path: Path) -> Iterator[Counted]:
    (tmp_path / "film.mp4").write_bytes(CONTENT)
    with Counted(tmp_path / "film.mp4") as film:
        yield film


@pytest.fixture
def files(tmp_path: Path) -> Iterator[DerivedFiles]:
    with closing(new_sqlite(tmp_path / "records.db")) as database:
        yield files_in(tmp_path / "media", database)


def go_on() -> None:
    """What is told while a film is copied."""


def source_of(files: DerivedFiles, most_copied_bytes: int) -> MediaSource:
    store = local_store(files.scratch.root / "in", files.scratch.root / "out")
    return MediaSource(store, files, most_copied_bytes=most_copied_bytes)


def half_made(files: DerivedFiles) -> list[Path]:
    return list((files.scratch.root / MAKING).glob("*"))


def test_short_reads_near_each_other_are_one_request(film: Counted) -> None:
    blocks = Blocks(film)
    for start in range(0, CACHED_BLOCK_BYTES, 1000):
        assert blocks.read_at(start, 8) == CONTENT[start : start + 8]
    assert film.reads == 1


@pytest.mark.parametrize(
    "length", [0, 1, CACHED_BLOCK_BYTES - 1, CACHED_BLOCK_BYTES + 1, 3 * CACHED_BLOCK_BYTES]
)
def test_reads_of_any_length_have_the_bytes_of_the_film(film: Counted, length: int) -> None:
    blocks, number = Blocks(film), random.Random(4)
    for start in (0, len(CONTENT) - 5, len(CONTENT), *(number.randrange(3_000_000),) * 2):
        assert blocks.read_at(start, length) == CONTENT[start : start + length]


def test_a_program_reads_a_copy_that_goes_afterwards(film: Counted, files: DerivedFiles) -> None:
    with source_of(files, len(CONTENT)).on_disk(film, go_on) as path:
        assert path.read_bytes() == CONTENT
    assert half_made(files) == []


def test_a_film_that_can_never_be_copied_fails_for_good(film: Counted, files: DerivedFiles) -> None:
    copies = source_of(files, len(CONTENT) - 1)
    with (
        pytest.raises(JobFailed, match="SLUICE_SPOOL_BYTES") as failed,
        copies.on_disk(film, go_on),
    ):
        pass
    assert (failed.value.problem.code, failed.value.is_final) == (TOO_LARGE, True)


def test_films_wait_for_the_room_that_others_take(film: Counted, files: DerivedFiles) -> None:
    copies = source_of(files, len(CONTENT) + 5)
    with ExitStack() as stack:
        stack.enter_context(copies.on_disk(film, go_on))
        with pytest.raises(ServerBusy):
            stack.enter_context(copies.on_disk(film, go_on))
    with copies.on_disk(film, go_on):
        pass


def test_a_copy_that_is_stopped_leaves_nothing(film: Counted, files: DerivedFiles) -> None:
    def stop() -> None:
        raise JobCancelled

    copies = source_of(files, len(CONTENT))
    with pytest.raises(JobCancelled), copies.on_disk(film, stop):
        pass
    assert half_made(files) == []
    with copies.on_disk(film, go_on):
        pass


def test_the_ends_of_a_film_are_where_they_belong(film: Counted, files: DerivedFiles) -> None:
    long = files.scratch.root.parent / "long.mkv"
    with long.open("wb") as file:
        file.write(b"begin")
        file.truncate(3 * ENDS_BYTES)
        file.seek(0, 2)
        file.write(b"end")
    copies = source_of(files, 2 * ENDS_BYTES)
    with (
        Counted(long) as source,
        copies.on_disk(source, go_on, only_ends=True) as path,
        path.open("rb") as copy,
    ):
        assert path.stat().st_size == 3 * ENDS_BYTES + 3
        assert path.stat().st_blocks * 512 < 2 * ENDS_BYTES + 100_000
        assert copy.read(5) == b"begin"
        copy.seek(-3, 2)
        assert copy.read() == b"end"
    with copies.on_disk(film, go_on, only_ends=True) as path:
        assert path.read_bytes() == CONTENT
