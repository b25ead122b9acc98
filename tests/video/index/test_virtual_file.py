"""Virtual files give back, for any range, exactly the bytes they were made of."""

from __future__ import annotations

import random
from array import array
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.ranges import ByteRange
from app.video.index.boxes import NotIndexable
from app.video.index.virtual_file import MAGIC, Piece, StoredVirtualFile, VirtualFileWriter

SOURCE = random.Random(1).randbytes(2000)

spans = st.tuples(st.integers(0, 2000), st.integers(0, 2000)).map(
    lambda ends: ByteRange(min(ends), max(ends))
)
pieces_of_files = st.lists(st.one_of(st.binary(max_size=40), spans), max_size=30)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("virtual") / "film.virtual"


def write(path: Path, pieces: list[Piece]) -> int:
    with path.open("wb") as target:
        writer = VirtualFileWriter(target)
        writer.extend(pieces)
        writer.finish()
    return writer.position


def content(pieces: list[Piece]) -> bytes:
    return b"".join(
        SOURCE[piece.start : piece.end] if isinstance(piece, ByteRange) else piece
        for piece in pieces
    )


@given(pieces_of_files, st.integers(0), st.integers(0))
def test_any_range_has_the_bytes_of_its_pieces(
    stored: Path, pieces: list[Piece], start: int, end: int
) -> None:
    whole = content(pieces)
    assert write(stored, pieces) == len(whole)
    start, end = sorted((start % (len(whole) + 1), end % (len(whole) + 1)))
    with StoredVirtualFile(FileIO(stored)) as file:
        assert file.length == len(whole)
        found = list(file.pieces(ByteRange(start, end)))
        assert content(found) == whole[start:end]


def test_ranges_that_touch_become_one_piece(stored: Path) -> None:
    write(stored, [ByteRange(0, 10), ByteRange(10, 30), ByteRange(30, 31), b"!", ByteRange(31, 40)])
    with StoredVirtualFile(FileIO(stored)) as file:
        found = list(file.pieces(ByteRange(0, file.length)))
    assert found == [ByteRange(0, 31), b"!", ByteRange(31, 40)]


@given(st.lists(st.tuples(st.integers(0, 1800), st.integers(1, 90)), max_size=40), st.booleans())
def test_ranges_added_together_are_as_if_added_one_by_one(
    stored: Path, ranges: list[tuple[int, int]], begins_with_one: bool
) -> None:
    spans: list[ByteRange] = []
    for start, length in ranges:
        if not spans or start != spans[-1].end:
            spans.append(ByteRange(start, start + length))
    first = ByteRange(0, spans[0].start) if spans and begins_with_one else ByteRange(0, 0)
    with stored.open("wb") as target:
        writer = VirtualFileWriter(target)
        writer.add(first)
        starts, ends = ([getattr(span, side) for span in spans] for side in ("start", "end"))
        writer.add_ranges(array("Q", starts), array("Q", ends))
        writer.add(b"end")
        writer.finish()
    with StoredVirtualFile(FileIO(stored)) as file:
        found = list(file.pieces(ByteRange(0, file.length)))
    write(stored, [first, *spans, b"end"])
    with StoredVirtualFile(FileIO(stored)) as file:
        assert found == list(file.pieces(ByteRange(0, file.length)))


def test_a_long_table_is_read_in_blocks(stored: Path) -> None:
    pieces: list[Piece] = [
        ByteRange(number % 1900, number % 1900 + 7) for number in range(0, 90000, 9)
    ]
    whole = content(pieces)
    write(stored, pieces)
    with StoredVirtualFile(FileIO(stored)) as file:
        assert content(list(file.pieces(ByteRange(0, file.length)))) == whole
        assert content(list(file.pieces(ByteRange(29000, 29100)))) == whole[29000:29100]


def test_a_range_beyond_the_end_is_refused(stored: Path) -> None:
    write(stored, [b"abc"])
    with (
        StoredVirtualFile(FileIO(stored)) as file,
        pytest.raises(ValueError, match="not within 3 bytes"),
    ):
        list(file.pieces(ByteRange(0, 4)))


def test_no_file_is_longer_than_any_can_be(stored: Path) -> None:
    with pytest.raises(NotIndexable, match="longer than any file"):
        write(stored, [ByteRange(0, 1 << 61), ByteRange(5, 1 << 61), ByteRange(7, 1 << 62)])


@pytest.mark.parametrize(
    "data",
    [b"", b"short", b"\0" * 100, b"\xff" * 16 + MAGIC],
    ids=["empty", "short", "zeros", "many"],
)
def test_other_files_are_refused(stored: Path, data: bytes) -> None:
    stored.write_bytes(data)
    with pytest.raises(ValueError, match="not a virtual file"):
        StoredVirtualFile(FileIO(stored))


def test_long_literal_bytes_come_in_parts(stored: Path) -> None:
    literal = random.Random(2).randbytes(600_000)
    write(stored, [b"head", ByteRange(0, 10), literal])
    with StoredVirtualFile(FileIO(stored)) as file:
        found = list(file.pieces(ByteRange(0, file.length)))
        inside = list(file.pieces(ByteRange(20, 300_020)))
    assert content(found) == content([b"head", ByteRange(0, 10), literal])
    assert content(inside) == literal[6:300_006]
    assert max(len(piece) for piece in found if isinstance(piece, bytes)) == 256 << 10
