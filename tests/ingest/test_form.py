"""Forms read part by part, from bodies that arrive in any pieces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import BodyStalled, BodyTruncated, ChunkMismatch, MalformedBody
from app.ingest.copy import BodyLimits
from app.ingest.form import FIELDS_READ_BYTES, READ_BYTES, FilePart, FormReader
from app.ingest.multipart import Field
from app.ingest.source import BodySource
from tests.storage.sources import PiecesSource, pattern

BOUNDARY = b"the-boundary"
PATIENT = BodyLimits(idle_seconds=30.0, minimum_bytes_per_second=0.0)
TRICKY = b"\r\n--the-boundar" + pattern(0, 300) + b"\n--the-boundary\r\n--" + b"\r" * 9
"""A payload full of things that look like a delimiter."""


def field(name: str, value: bytes) -> bytes:
    head = f'--the-boundary\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
    return head.encode() + value + b"\r\n"


def file_part(payload: bytes, filename: str = "a.mp4", name: str = "file") -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"; filename="{filename}"'
    kind = "Content-Type: video/mp4"
    return f"--the-boundary\r\n{head}\r\n{kind}\r\n\r\n".encode() + payload + b"\r\n"


END = b"--the-boundary--\r\n"


def reader_of(data: bytes, *pieces: int | None, is_told: bool = True) -> FormReader:
    return FormReader(PiecesSource(data, pieces or (1 << 30,), is_told=is_told), BOUNDARY, PATIENT)


def drain(source: BodySource, block: int = 64) -> bytes:
    """All bytes of a source, read as a copy reads them."""
    taken, buffer = bytearray(), memoryview(bytearray(block))
    while (count := source.readinto(buffer)) != 0:
        taken += buffer[: count or 0]
    source.finish()
    return bytes(taken)


def read_whole(reader: FormReader, block: int = 64) -> list[tuple[str, object]]:
    """Fields as name and value, files as name and payload up to the delimiter."""
    found: list[tuple[str, object]] = []
    for part in reader.parts():
        if isinstance(part, Field):
            found.append((part.name, part.value))
        else:
            found.append((part.filename, drain(part.whole(), block)))
    return found


FORM = field("dzuuid", b"abc") + field("empty", b"") + file_part(TRICKY) + field("z", "é".encode())
EXPECTED = [("dzuuid", "abc"), ("empty", ""), ("a.mp4", TRICKY), ("z", "é")]


@pytest.mark.parametrize("size", [*range(1, 20), 64, 255, 1 << 20])
@pytest.mark.parametrize("is_told", [True, False])
def test_parts_are_the_same_whatever_pieces_they_arrive_in(size: int, is_told: bool) -> None:
    assert read_whole(reader_of(FORM + END, size, None, is_told=is_told)) == EXPECTED


@settings(max_examples=80)
@given(
    st.binary(max_size=200).map(lambda data: data.replace(b"--the-boundary", b"")),
    st.lists(st.one_of(st.none(), st.integers(1, 60)), max_size=5),
    st.integers(1, 300),
)
def test_any_payload_is_read_exactly_by_length_and_by_delimiter(
    payload: bytes, pieces: list[int | None], block: int
) -> None:
    body = field("a", b"1") + file_part(payload) + field("b", b"2") + END
    by_delimiter = read_whole(reader_of(body, *pieces, 37), block)
    assert by_delimiter == [("a", "1"), ("a.mp4", payload), ("b", "2")]
    by_length: list[object] = []
    for part in reader_of(body, *pieces, 37).parts():
        if isinstance(part, Field):
            by_length.append(part.value)
        else:
            by_length.append(drain(part.exactly(len(payload)), block))
    assert by_length == ["1", payload, "2"]


@pytest.mark.parametrize("size", [1, 2, 3, 17, 1 << 20])
def test_a_payload_of_known_length_may_contain_the_delimiter(size: int) -> None:
    payload = b"x\r\n--the-boundary\r\ny\r\n--the-boundary--\r\n"
    reader = reader_of(file_part(payload) + END, size, None)
    [drained] = [drain(p.exactly(len(payload))) for p in reader.parts() if isinstance(p, FilePart)]
    assert drained == payload


def first_file(reader: FormReader) -> FilePart:
    return next(part for part in reader.parts() if isinstance(part, FilePart))


def test_the_exact_payload_knows_what_remains() -> None:
    source = first_file(reader_of(file_part(b"x" * 100) + END, 90)).exactly(100)
    assert source.remaining == 100
    assert source.readinto(memoryview(bytearray(3))) == 3
    assert source.remaining == 97
    assert not source.is_verified_at_end


def test_more_than_the_body_has_is_refused_unread() -> None:
    data = file_part(b"x" * 100) + END
    with pytest.raises(ChunkMismatch):
        first_file(reader_of(data)).exactly(100 + len(END) + 3)


@pytest.mark.parametrize("told", [0, 1, 99, 101])
def test_a_payload_of_the_wrong_length_is_malformed(told: int) -> None:
    source = first_file(reader_of(file_part(b"x" * 100) + END, 10)).exactly(told)
    with pytest.raises(MalformedBody):
        drain(source)


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_cut_connection_is_reported_as_truncated(is_exact: bool) -> None:
    data = file_part(b"x" * 1000) + END
    body = PiecesSource(data, (50, None), cut_at=600)
    part = first_file(FormReader(body, BOUNDARY, PATIENT))
    with pytest.raises(BodyTruncated):
        drain(part.exactly(1000) if is_exact else part.whole())


def test_a_chunked_body_that_ends_inside_the_payload_is_malformed() -> None:
    data = file_part(b"x" * 1000)[:600]
    for source in (
        first_file(reader_of(data, 50, is_told=False)).exactly(1000),
        first_file(reader_of(data, 50, is_told=False)).whole(),
    ):
        with pytest.raises(MalformedBody):
            drain(source)


@pytest.mark.parametrize("data", [FORM, b"", b"hello", FORM + b"--the-bound"])
def test_a_form_without_its_end_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedBody):
        read_whole(reader_of(data))


def test_a_file_that_is_not_read_is_skipped() -> None:
    data = file_part(b"\r\n" * 500) + field("after", b"x") + END
    parts = list(reader_of(data, 100, None).parts())
    assert [part.name for part in parts] == ["file", "after"]


class Asked(PiecesSource):
    """Records how much each read asks for."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.sizes: list[int] = []

    def readinto(self, buffer: memoryview, /) -> int | None:
        self.sizes.append(len(buffer))
        return super().readinto(buffer)


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_payload_is_scanned_in_large_reads_and_what_follows_in_small_ones(
    is_taken: bool,
) -> None:
    payload = bytes(FIELDS_READ_BYTES + 2 * READ_BYTES - 200)  # Plus about 100 bytes of headers.
    body = Asked(file_part(payload) + field("after", bytes(FIELDS_READ_BYTES)) + END)
    for part in FormReader(body, BOUNDARY, PATIENT).parts():
        if is_taken and isinstance(part, FilePart):
            assert drain(part.whole()) == payload
    assert body.sizes[:4] == [FIELDS_READ_BYTES, READ_BYTES, READ_BYTES, FIELDS_READ_BYTES]


def test_what_follows_the_end_is_read_and_ignored() -> None:
    body = PiecesSource(field("a", b"1") + END + b"epilogue" * 50, (20, None))
    reader = FormReader(body, BOUNDARY, PATIENT)
    assert read_whole(reader) == [("a", "1")]
    assert reader.remaining == 0


def test_several_files_come_one_after_another() -> None:
    data = file_part(b"one", "1.mp4") + file_part(b"", "2.mp4") + file_part(b"three", "3.mp4")
    found = read_whole(reader_of(data + END, 11, None))
    assert found == [("1.mp4", b"one"), ("2.mp4", b""), ("3.mp4", b"three")]


class Trickle(PiecesSource):
    """One byte, or one tick, at a time, with `seconds` between them."""

    def __init__(self, data: bytes, seconds: float, piece: int | None) -> None:
        super().__init__(data, (piece,))
        self._seconds = seconds
        self._now = 1000.0

    def monotonic(self) -> float:
        return self._now

    def readinto(self, buffer: memoryview, /) -> int | None:
        self._now += self._seconds
        return super().readinto(buffer)


@pytest.mark.parametrize(("idle_seconds", "minimum_rate"), [(5.0, 0.0), (1000.0, 100.0)])
def test_a_form_that_stops_has_stalled(idle_seconds: float, minimum_rate: float) -> None:
    source = Trickle(FORM, 0.5, None)
    limits = BodyLimits(idle_seconds, minimum_rate, source.monotonic)
    with pytest.raises(BodyStalled):
        next(FormReader(source, BOUNDARY, limits).parts())


def test_trickling_fields_have_stalled_before_they_end() -> None:
    source = Trickle(field("a", b"x" * 5000) + END, 0.4, 1)
    limits = BodyLimits(30.0, 100.0, source.monotonic)
    with pytest.raises(BodyStalled):
        read_whole(FormReader(source, BOUNDARY, limits))
    assert source.position < 1000
