"""Films in a bucket, as indexes and programs read them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.core.errors import ServerBusy
from app.core.jobs import JobCancelled, JobFailed
from app.video.serve.folder import MAKING, DiskFolder
from app.video.serve.source import CACHED_BLOCK_BYTES, ENDS_BYTES, TOO_LARGE, Blocks, VideoCopies

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CONTENT = random.Random(3).randbytes(3_000_000)


class Counted(FileIO):
    """A file that counts how often it is read."""

    reads = 0

    def readinto(self, buffer: WriteableBuffer) -> int:
        self.reads += 1
        return super().readinto(buffer) or 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        return super().read(size) or b""


@pytest.fixture
def film(tmp_path: Path) -> Iterator[Counted]:
    (tmp_path / "film.mp4").write_bytes(CONTENT)
    with Counted(tmp_path / "film.mp4") as film:
        yield film


@pytest.fixture
def folder(tmp_path: Path) -> DiskFolder:
    return DiskFolder(tmp_path / "media")


def go_on() -> None:
    """What is told while a film is copied."""


def half_made(folder: DiskFolder) -> list[Path]:
    return list((folder.root / MAKING).glob("*"))


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


def test_a_program_reads_a_copy_that_goes_afterwards(film: Counted, folder: DiskFolder) -> None:
    with VideoCopies(folder, len(CONTENT)).whole(film, go_on) as path:
        assert path.read_bytes() == CONTENT
    assert half_made(folder) == []


def test_a_film_that_can_never_be_copied_fails_for_good(film: Counted, folder: DiskFolder) -> None:
    copies = VideoCopies(folder, len(CONTENT) - 1)
    with pytest.raises(JobFailed, match="SLUICE_SPOOL_BYTES") as failed, copies.whole(film, go_on):
        pass
    assert (failed.value.problem.code, failed.value.is_final) == (TOO_LARGE, True)


def test_films_wait_for_the_room_that_others_take(film: Counted, folder: DiskFolder) -> None:
    copies = VideoCopies(folder, len(CONTENT) + 5)
    with ExitStack() as stack:
        stack.enter_context(copies.whole(film, go_on))
        with pytest.raises(ServerBusy):
            stack.enter_context(copies.whole(film, go_on))
    with copies.whole(film, go_on):
        pass


def test_a_copy_that_is_stopped_leaves_nothing(film: Counted, folder: DiskFolder) -> None:
    def stop() -> None:
        raise JobCancelled

    copies = VideoCopies(folder, len(CONTENT))
    with pytest.raises(JobCancelled), copies.whole(film, stop):
        pass
    assert half_made(folder) == []
    with copies.whole(film, go_on):
        pass


def test_the_ends_of_a_film_are_where_they_belong(film: Counted, folder: DiskFolder) -> None:
    long = folder.root.parent / "long.mkv"
    with long.open("wb") as file:
        file.write(b"begin")
        file.truncate(3 * ENDS_BYTES)
        file.seek(0, 2)
        file.write(b"end")
    copies = VideoCopies(folder, 2 * ENDS_BYTES)
    with FileIO(long) as source, copies.ends(source, go_on) as path, path.open("rb") as copy:
        assert path.stat().st_size == 3 * ENDS_BYTES + 3
        assert path.stat().st_blocks * 512 < 2 * ENDS_BYTES + 100_000
        assert copy.read(5) == b"begin"
        copy.seek(-3, 2)
        assert copy.read() == b"end"
    with copies.ends(film, go_on) as path:
        assert path.read_bytes() == CONTENT
