"""How a chunk of a larger file is recognised, and where it belongs."""

import pytest

from app.core.chunk_signs import chunk_signs
from app.core.errors import ChunkMismatch
from app.core.ranges import ByteRange
from app.protocols.forms.dialects import UnplacedChunk

LENGTH = 4096


@pytest.mark.parametrize(
    "fields",
    [
        {"chunk": "0", "chunks": "3"},
        {"chunkNumber": "1"},
        {"file_chunk_index": "0"},
        {"chunkIndex": "0", "totalChunks": "4", "chunkSize": "4096"},
        {"chunkSize": "4096"},
        {"isLastChunk": "true"},
        {"part": "2", "parts": "5"},
        {"partNumber": "1", "totalParts": "5"},
        {"index": "0", "total": "20"},
        {"offset": "0", "total": "100000"},
        {"offset": "4096", "fileSize": "100000"},
        {"sliceIndex": "1"},
        {"blockNumber": "0", "blocks": "9"},
        {"start": "0", "end": "4096"},
        {"start": "4096", "end": "8191"},
    ],
)
def test_numbers_that_contradict_a_whole_file_are_named(fields: dict[str, str]) -> None:
    assert chunk_signs(fields, [], LENGTH) == list(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"title": "x", "index": "3"},
        {"part": "2"},
        {"offset": "12"},
        {"size": "4096", "total": "4"},
        {"chunk": "0", "chunks": "1"},
        {"chunkIndex": "0", "totalChunks": "1", "chunkSize": "500000", "fileSize": "4096"},
        {"chunked": "false"},
        {"index": "3", "size": "4096"},
        {"offset": "0", "total": "4096"},
        {"part": "one", "total": "three"},
        {"start": "12", "end": "90"},
    ],
)
def test_a_possibly_whole_file_shows_no_signs_of_a_chunk(fields: dict[str, str]) -> None:
    assert chunk_signs(fields, [], LENGTH) == []


@pytest.mark.parametrize(
    ("header", "is_told"),
    [
        ("X-Chunk-Index", True),
        ("Content-Range", True),
        ("uploader-chunk-number", True),
        ("Upload-Offset", True),
        ("X-File-Offset", True),
        ("X-Part-Number", True),
        ("Transfer-Encoding", False),
        ("Upload-Length", False),
        ("X-File-Name", False),
        ("Content-Disposition", False),
        ("Range", False),
    ],
)
def test_headers_of_chunks_are_recognised_by_name(header: str, is_told: bool) -> None:
    assert chunk_signs({}, ["Host", header], LENGTH) == ([header] if is_told else [])


def counted(index: int, count: int, total: int | None = None) -> UnplacedChunk:
    return UnplacedChunk(dialect="plupload", index=index, count=count, total=total)


@pytest.mark.parametrize(
    ("piece", "length", "chunk_bytes", "start"),
    [
        (counted(0, 3, 25), 10, None, 0),
        (counted(1, 3, 25), 10, None, 10),
        (counted(2, 3, 25), 5, None, 20),
        (counted(2, 3, 30), 10, None, 20),
        (counted(1, 3), 10, 10, 10),
        (counted(2, 3), 4, 10, 20),
        (UnplacedChunk(dialect="range", start=7, length=5, total=25), 5, None, 7),
    ],
)
def test_the_place_of_a_chunk_follows_from_its_numbers_and_its_length(
    piece: UnplacedChunk, length: int, chunk_bytes: int | None, start: int
) -> None:
    assert piece.span(length, chunk_bytes) == ByteRange(start, start + length)


@pytest.mark.parametrize(
    ("piece", "length", "chunk_bytes"),
    [
        (counted(0, 3, 25), 8, None),
        (counted(2, 3, 25), 10, None),
        (counted(2, 3, 26), 5, None),
        (counted(1, 3, 25), 0, None),
        (counted(2, 3, 25), 0, None),
        (counted(1, 3), 9, 10),
        (counted(2, 3), 11, 10),
        (counted(2, 3), 0, 10),
        (UnplacedChunk(dialect="range", start=7, length=5, total=25), 6, None),
        (UnplacedChunk(dialect="range", start=20, total=25), 6, None),
    ],
)
def test_no_place_is_guessed(piece: UnplacedChunk, length: int, chunk_bytes: int | None) -> None:
    with pytest.raises(ChunkMismatch):
        piece.span(length, chunk_bytes)
