"""What the fields of Resumable.js and Flow.js say about a chunk, and contradictions in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import ChunkMismatch, InvalidRequest
from app.core.policy import check_client_key
from app.protocols.forms.dialects import FLOW, RESUMABLEJS
from app.uploads.client_uploads import Chunk

NUMBERS = ("ChunkNumber", "ChunkSize", "CurrentChunkSize", "TotalSize")


def fields(number: object, size: object, length: object, total: object) -> dict[str, str]:
    values = (str(value) for value in (number, size, length, total))
    return {
        **{f"flow{name}": value for name, value in zip(NUMBERS, values, strict=True)},
        "flowIdentifier": "25-filmmp4",
        "flowFilename": "film.mp4",
    }


def parse(given_fields: dict[str, str]) -> Chunk:
    chunk = FLOW.parse(given_fields)
    assert isinstance(chunk, Chunk)
    return chunk


@pytest.mark.parametrize(
    ("given_fields", "offset", "length"),
    [
        (fields(1, 10, 10, 25), 0, 10),
        (fields(2, 10, 15, 25), 10, 15),
        (fields(3, 10, 5, 25), 20, 5),
        (fields(1, 10, 19, 19), 0, 19),
        (fields(1, 10, 5, 5), 0, 5),
        (fields(1, 10, 0, 0), 0, 0),
        (fields(10**6, 10**9, 10**9, 10**15), (10**6 - 1) * 10**9, 10**9),
    ],
)
def test_offset_and_length_of_a_chunk_follow_from_its_fields(
    given_fields: dict[str, str], offset: int, length: int
) -> None:
    chunk = parse(given_fields)
    assert (chunk.offset, chunk.length) == (offset, length)
    assert chunk.total == int(given_fields["flowTotalSize"])


def test_a_form_without_the_fields_is_not_a_chunk() -> None:
    assert FLOW.parse({}) is None
    assert FLOW.parse({"flowFilename": "a", "resumableChunkNumber": "1"}) is None


@pytest.mark.parametrize("name", [*NUMBERS, "Identifier"])
def test_a_missing_field_is_named(name: str) -> None:
    given_fields = fields(1, 10, 10, 25)
    del given_fields[f"flow{name}"]
    with pytest.raises(InvalidRequest, match=f"flow{name}"):
        FLOW.parse(given_fields)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("text", ["", " ", "-1", "+1", "1.0", "1e3", "٣", "NaN", "1\n", "9" * 19])
def test_a_field_that_is_not_a_plain_number_is_malformed(name: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=f"flow{name}"):
        FLOW.parse({**fields(1, 10, 10, 25), f"flow{name}": text})


@pytest.mark.parametrize(
    "contradiction",
    [
        fields(0, 10, 10, 25),
        fields(1, 0, 10, 25),
        fields(1, 0, 0, 0),
        fields(1, 10, 9, 25),
        fields(1, 10, 25, 25),
        fields(1, 10, 20, 20),
        fields(3, 10, 10, 25),
        fields(4, 10, 5, 25),
        fields(2, 10, 5, 25),
        fields(3, 10, 0, 20),
        fields(2, 10, 0, 0),
    ],
)
def test_fields_that_contradict_each_other_are_a_mismatch(contradiction: dict[str, str]) -> None:
    with pytest.raises(ChunkMismatch):
        FLOW.parse(contradiction)


@given(st.integers(0, 2000), st.integers(1, 600), st.booleans())
def test_the_chunks_of_a_file_are_adjacent_and_cover_it(
    total: int, size: int, is_forced: bool
) -> None:
    count = max(1, -(-total // size) if is_forced else total // size)
    end = 0
    for number in range(1, count + 1):
        length = total - end if number == count else size
        chunk = parse(fields(number, size, length, total))
        assert chunk.offset == end
        end += chunk.length
    assert end == total


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_any_identifier_makes_a_valid_key(identifier: str) -> None:
    chunk = parse({**fields(1, 10, 10, 25), "flowIdentifier": identifier})
    assert check_client_key(chunk.key) == chunk.key
    assert chunk.identifier == identifier


@pytest.mark.parametrize(
    "changed",
    [
        {"flowIdentifier": "other"},
        {"flowFilename": "影片.mp4"},
        {"flowRelativePath": "folder/film.mp4"},
        {"flowTotalSize": "10"},
    ],
)
def test_another_file_has_another_key(changed: dict[str, str]) -> None:
    first = fields(1, 10, 10, 25)
    assert parse(first).key == parse(fields(2, 10, 15, 25)).key
    assert parse(first).key != parse({**first, **changed}).key


def test_the_same_fields_in_the_other_dialect_are_another_upload() -> None:
    first = fields(1, 10, 10, 25)
    others = {name.replace("flow", "resumable"): value for name, value in first.items()}
    other = RESUMABLEJS.parse(others)
    assert isinstance(other, Chunk)
    assert other.key != parse(first).key
