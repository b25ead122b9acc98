"""What Dropzone's fields say about a chunk, and when they contradict each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import ChunkMismatch, InvalidRequest
from app.protocols.forms.dialects import DROPZONE, DROPZONE_FIELDS
from app.uploads.client_uploads import Chunk


def fields(
    index: object, total: object, size: object, count: object, offset: object, key: str = "uuid"
) -> dict[str, str]:
    values = (key, *(str(value) for value in (index, total, size, count, offset)))
    return dict(zip(DROPZONE_FIELDS, values, strict=True))


@pytest.mark.parametrize(
    ("given_fields", "chunk"),
    [
        (fields(0, 25, 10, 3, 0), Chunk("uuid", 0, 10, 25)),
        (fields(1, 25, 10, 3, 10), Chunk("uuid", 10, 10, 25)),
        (fields(2, 25, 10, 3, 20), Chunk("uuid", 20, 5, 25)),
        (fields(1, 20, 10, 2, 10), Chunk("uuid", 10, 10, 20)),
        (fields(0, 5, 10, 1, 0), Chunk("uuid", 0, 5, 5)),
        (fields(0, 0, 10, 1, 0), Chunk("uuid", 0, 0, 0)),
        (fields(0, 10**15, 10**9, 10**6, 0), Chunk("uuid", 0, 10**9, 10**15)),
    ],
)
def test_the_length_of_a_chunk_follows_from_its_fields(
    given_fields: dict[str, str], chunk: Chunk
) -> None:
    assert DROPZONE.parse(given_fields) == chunk
    assert DROPZONE.parse({**given_fields, "other": "field"}) == chunk


def test_a_form_without_the_fields_is_not_a_chunk() -> None:
    assert DROPZONE.parse({}) is None
    assert DROPZONE.parse({"filename": "a.mp4", "total": "5"}) is None


@pytest.mark.parametrize("name", DROPZONE_FIELDS)
def test_a_missing_field_is_named(name: str) -> None:
    given_fields = fields(0, 25, 10, 3, 0)
    del given_fields[name]
    with pytest.raises(InvalidRequest, match=name):
        DROPZONE.parse(given_fields)


@pytest.mark.parametrize("name", DROPZONE_FIELDS[1:])
@pytest.mark.parametrize(
    "text",
    ["", " ", "-1", "+1", "1.0", "1e3", "0x1", "1_0", "٣", "NaN", "null", "undefined", "1 ", "1\n"],
)
def test_a_field_that_is_not_a_plain_number_is_malformed(name: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        DROPZONE.parse({**fields(0, 25, 10, 3, 0), name: text})


@pytest.mark.parametrize("name", DROPZONE_FIELDS[1:])
def test_numbers_beyond_any_file_are_malformed(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        DROPZONE.parse({**fields(0, 25, 10, 3, 0), name: "9" * 19})


@pytest.mark.parametrize(
    "contradiction",
    [
        fields(3, 25, 10, 3, 30),
        fields(0, 25, 10, 2, 0),
        fields(0, 25, 10, 4, 0),
        fields(0, 25, 0, 3, 0),
        fields(1, 25, 10, 3, 11),
        fields(1, 25, 10, 3, 0),
        fields(0, 25, 10, 3, 10),
        fields(0, 0, 10, 0, 0),
        fields(0, 0, 0, 1, 0),
        fields(0, 20, 10, 3, 0),
        fields(2, 20, 10, 3, 20),
    ],
)
def test_fields_that_contradict_each_other_are_a_mismatch(contradiction: dict[str, str]) -> None:
    with pytest.raises(ChunkMismatch):
        DROPZONE.parse(contradiction)


@given(st.integers(0, 10_000), st.integers(1, 600))
def test_the_chunks_of_a_file_are_adjacent_and_cover_it(total: int, size: int) -> None:
    count = max(1, -(-total // size))
    chunks = [DROPZONE.parse(fields(n, total, size, count, n * size)) for n in range(count)]
    end = 0
    for chunk in chunks:
        assert isinstance(chunk, Chunk)
        assert chunk.offset == end
        end += chunk.length
    assert end == total


@given(st.lists(st.text("0123456789", min_size=1, max_size=3), min_size=5, max_size=5))
def test_a_chunk_never_reaches_beyond_its_file(numbers: list[str]) -> None:
    index, total, size, count, offset = numbers
    try:
        chunk = DROPZONE.parse(fields(index, total, size, count, offset))
    except ChunkMismatch:
        return
    assert isinstance(chunk, Chunk)
    assert 0 <= chunk.offset <= chunk.offset + chunk.length <= chunk.total == int(total)
