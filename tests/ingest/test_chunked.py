"""The decoder of the chunked transfer coding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import MalformedBody
from app.ingest.chunked import MAX_LINE_BYTES, MAX_TRAILER_BYTES, ChunkedDecoder

BODIES = {
    b"0\r\n\r\n": b"",
    b"4\r\nbody\r\n0\r\n\r\n": b"body",
    b"1\r\nb\r\n0003\r\nody\r\n0000\r\n\r\n": b"body",
    b"A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n": b"0123456789" * 2,
    b'4;name=value;other="quoted"\r\nbody\r\n0;last\r\n\r\n': b"body",
    b"2\r\n\r\n\r\n0\r\n\r\n": b"\r\n",
    b"5\r\n0\r\n\r\n\r\n0\r\n\r\n": b"0\r\n\r\n",
}

MALFORMED = [
    b"\r\n",
    b"x\r\n",
    b"-1\r\n",
    b"+1\r\nb",
    b"0x1\r\nb",
    b"1_0\r\n",
    b" 1\r\nb",
    b"1 \r\nb",
    b"1\n\r\nb",
    b"1;a\nb\r\nb",
    b"1;a\rb\r\nb",
    b"1;a\x00b\r\nb",
    b"1000000000000000\r\n",
    b"1\r\nbb\r\n",
    b"1\r\nb\n0\r\n",
    b"1\r\nb0\r\n",
    b"1" * (MAX_LINE_BYTES + 1),
    b"0\r\n" + b"a" * (MAX_TRAILER_BYTES + 1),
]


def decode(decoder: ChunkedDecoder, data: bytes, steps: list[int]) -> bytes:
    """The payload, with the data fed in pieces of these lengths, repeated."""
    payload, number = b"", 0
    buffer = memoryview(bytearray(7))
    while data:
        size = steps[number % len(steps)]
        decoder.feed(data[:size])
        data, number = data[size:], number + 1
        while count := decoder.take(buffer):
            payload += buffer[:count]
    return payload


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_the_payload_is_decoded_however_the_bytes_arrive(body: bytes, size: int) -> None:
    decoder = ChunkedDecoder()
    assert decode(decoder, body, [size]) == BODIES[body]
    assert decoder.has_ended
    assert decoder.leftover == decoder.trailers == b""


@given(
    st.lists(st.binary(min_size=1, max_size=50)),
    st.lists(st.integers(1, 60), min_size=1),
)
def test_any_chunks_in_any_pieces_yield_the_payload(chunks: list[bytes], steps: list[int]) -> None:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    decoder = ChunkedDecoder()
    assert decode(decoder, body + b"0\r\n\r\n", steps) == b"".join(chunks)
    assert decoder.has_ended


def test_payload_that_bypasses_the_decoder_is_counted() -> None:
    decoder = ChunkedDecoder()
    decoder.feed(b"8\r\nab")
    assert decoder.take(memoryview(bytearray(10))) == 2
    assert decoder.data_left == 6
    decoder.passed(4)
    assert decoder.data_left == 2
    decoder.passed(2)
    decoder.feed(b"\r\n0\r\n\r\n")
    assert decoder.has_ended


@pytest.mark.parametrize("size", [1, 1000])
def test_what_follows_the_body_is_left_over(size: int) -> None:
    decoder = ChunkedDecoder()
    body = b"4\r\nbody\r\n0\r\n\r\n"
    decode(decoder, body, [size])
    decoder.feed(b"GET / HTTP/1.1\r\n")
    assert decoder.leftover == b"GET / HTTP/1.1\r\n"


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_trailers_are_kept(size: int) -> None:
    decoder = ChunkedDecoder()
    fields = b"Upload-Checksum: sha1 AAAA\r\nOther: 1"
    assert decode(decoder, b"4\r\nbody\r\n0\r\n" + fields + b"\r\n\r\n", [size]) == b"body"
    assert decoder.trailers == fields
    assert decoder.has_ended


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: repr(body[:20]))
@pytest.mark.parametrize("size", [1, 100_000])
def test_anything_else_is_refused(body: bytes, size: int) -> None:
    with pytest.raises(MalformedBody):
        decode(ChunkedDecoder(), body, [size])


@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_breaks_off_has_not_ended(body: bytes) -> None:
    for end in range(len(body)):
        decoder = ChunkedDecoder()
        decode(decoder, body[:end], [1000])
        assert not decoder.has_ended


@pytest.mark.parametrize("body", MALFORMED)
def test_a_broken_decoder_stays_broken(body: bytes) -> None:
    """What follows the error could look like the end of the body, and the rest like a request."""
    decoder = ChunkedDecoder()
    buffer = memoryview(bytearray(7))
    with pytest.raises(MalformedBody):
        decode(decoder, body, [len(body)])
    for _ in range(3):
        with pytest.raises(MalformedBody):
            decoder.feed(b"\r\n0\r\n\r\n")
        with pytest.raises(MalformedBody):
            decoder.take(buffer)
    assert not decoder.has_ended
