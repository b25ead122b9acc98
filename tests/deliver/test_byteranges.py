"""The body of an answer to several ranges: its layout, and how it is read."""

from __future__ import annotations

import tracemalloc
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.ranges import ByteRange
from app.deliver.bodies import COPIED_BYTES, Layout, PartsOfFile
from app.deliver.conditional import requested_spans
from tests.deliver.parts import parts_of

CONTENT = bytes(range(256)) * 1000
GIBIBYTE = 1 << 30


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("byteranges") / "file"
    path.write_bytes(CONTENT)
    return path


def layout(*spans: tuple[int, int], length: int = len(CONTENT)) -> Layout:
    return Layout([ByteRange(start, end) for start, end in spans], length, "video/mp4", "limit")


def test_the_layout_follows_the_rfc(path: Path) -> None:
    body = PartsOfFile(FileIO(path), layout((0, 3), (65, 68)))
    assert b"".join(body) == (
        b"\r\n--limit\r\nContent-Type: video/mp4\r\nContent-Range: bytes 0-2/256000\r\n\r\n\0\1\2"
        b"\r\n--limit\r\nContent-Type: video/mp4\r\nContent-Range: bytes 65-67/256000\r\n\r\nABC"
        b"\r\n--limit--\r\n"
    )
    body.close()


def test_the_boundary_is_different_each_time() -> None:
    boundaries = {Layout([], 1, "video/mp4").boundary for _ in range(100)}
    assert len(boundaries) == 100


edges = st.integers(0, len(CONTENT))
asked_ranges = st.lists(st.tuples(edges, edges).map(sorted), min_size=1, max_size=20)


@given(asked_ranges)
def test_the_content_length_is_the_bodys_and_the_parts_are_the_files_bytes(
    path: Path, asked: list[list[int]]
) -> None:
    header = "bytes=0-0," + ",".join(f"{first}-{last}" for first, last in asked)
    laid_out = Layout(requested_spans(header, len(CONTENT)), len(CONTENT), "video/mp4")
    body = PartsOfFile(FileIO(path), laid_out)
    blocks = list(body)
    body.close()
    assert sum(map(len, blocks)) == laid_out.content_length
    parts = parts_of(b"".join(blocks), laid_out.boundary)
    assert [part.content for part in parts] == [
        CONTENT[span.start : span.end] for span in laid_out.spans
    ]


def test_a_part_is_read_in_blocks_as_they_are_sent(path: Path) -> None:
    file = FileIO(path)
    body = PartsOfFile(file, layout((0, 200_000), (200_001, 256_000)))
    first = next(iter(body))
    assert file.tell() == COPIED_BYTES
    assert len(first) < COPIED_BYTES + 200
    body.close()
    assert file.closed


def test_gigabytes_take_no_more_memory_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(8 * GIBIBYTE)
    spans = [(n * GIBIBYTE, n * GIBIBYTE + GIBIBYTE // 32) for n in range(0, 8, 2)]
    body = PartsOfFile(FileIO(path), layout(*spans, length=8 * GIBIBYTE))
    tracemalloc.start()
    try:
        count = sum(len(block) for block in body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        body.close()
    assert count > GIBIBYTE // 8
    assert peak < 8 * COPIED_BYTES


def test_a_truncated_file_ends_the_answer_instead_of_shifting_it(path: Path) -> None:
    body = PartsOfFile(FileIO(path), layout((0, 10), (255_000, 256_010), length=256_010))
    with pytest.raises(OSError, match="shorter"):
        list(body)
    body.close()


class Counter:
    """Counts the way the metrics do."""

    def __init__(self) -> None:
        self.calls: list[str | int] = []

    def began(self) -> None:
        self.calls.append("began")

    def ended(self, count: int) -> None:
        self.calls.append(count)


def test_sent_bytes_are_counted_once(path: Path) -> None:
    counter = Counter()
    body = PartsOfFile(FileIO(path), layout((0, 100), (200, 300)), counter)
    list(body)
    body.close()
    body.close()
    assert counter.calls == ["began", 200]
