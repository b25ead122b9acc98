"""tus core: PATCH."""

from __future__ import annotations

import random
from urllib.parse import urljoin

import pytest

from tests.conformance.conftest import Stored
from tests.conformance.tus_client import CHUNK_TYPE, Tus, headers_of
from tests.conformance.wire import Connection, exchange_chunked

pytestmark = pytest.mark.e2e

MALFORMED_OFFSETS = ["", "-1", "1.0", "0x0", "zero", "0 0", "0,0", "9" * 40]
LARGE = random.Random(7).randbytes(5_000_000)


# Core, PATCH: 204 with the new Upload-Offset.
def test_bytes_are_accepted_and_the_new_offset_is_returned(tus: Tus) -> None:
    reply = tus.patch(tus.create(10), 0, b"hello")
    assert (reply.status, reply["Upload-Offset"]) == (204, "5")


# Core, PATCH: the new offset is the sum of the old one and the bytes received.
def test_an_upload_may_arrive_in_many_requests(tus: Tus, stored: Stored) -> None:
    url = tus.create(11)
    offsets = [
        tus.patch(url, offset, piece)["Upload-Offset"]
        for offset, piece in ((0, b"hello"), (5, b" "), (6, b"world"))
    ]
    assert offsets == ["5", "6", "11"]
    assert stored(url) in (b"hello world", None)


# Core, PATCH: bytes are stored as they were sent.
def test_a_large_body_arrives_unchanged(tus: Tus, stored: Stored) -> None:
    url = tus.create(len(LARGE))
    middle = 3_000_001
    assert tus.patch(url, 0, LARGE[:middle])["Upload-Offset"] == str(middle)
    assert tus.patch(url, middle, LARGE[middle:])["Upload-Offset"] == str(len(LARGE))
    assert stored(url) in (LARGE, None)


# Core, PATCH: 409 "without modifying the upload resource".
@pytest.mark.parametrize("offset", [0, 1, 2, 4, 5, 100])
def test_a_wrong_offset_is_a_conflict_and_changes_nothing(
    tus: Tus, stored: Stored, offset: int
) -> None:
    url = tus.create(5)
    tus.patch(url, 0, b"hello"[:3])
    assert tus.patch(url, offset, b"XX").status == 409
    assert tus.offset(url) == 3
    assert tus.patch(url, 3, b"lo").status == 204
    assert stored(url) in (b"hello", None)


# Core, PATCH: 409 even if nothing is missing.
def test_an_earlier_offset_of_a_complete_upload_is_a_conflict(tus: Tus, stored: Stored) -> None:
    url = tus.create_with(b"hello")
    assert tus.patch(url, 0, b"HELLO").status == 409
    assert tus.offset(url) == 5
    assert stored(url) in (b"hello", None)


# Core, PATCH: a complete upload is not extended; the offset counts bytes "processed or stored"
# only.
def test_bytes_past_the_end_are_not_accepted(tus: Tus, stored: Stored) -> None:
    url = tus.create_with(b"hello")
    reply = tus.patch(url, 5, b"!")
    assert 400 <= reply.status < 500 or (reply.status, reply["Upload-Offset"]) == (204, "5")
    assert tus.offset(url) == 5
    assert stored(url) in (b"hello", None)


# Upload-Offset: MUST be a non-negative integer.
@pytest.mark.parametrize("offset", MALFORMED_OFFSETS)
def test_an_offset_that_is_not_a_number_is_refused(tus: Tus, offset: str) -> None:
    url = tus.create(5)
    assert tus.patch(url, offset, b"hello").status in {400, 409}
    assert tus.offset(url) == 0


# Core, PATCH: the offset is the one "specified by the Upload-Offset header".
def test_a_patch_without_an_offset_is_refused(tus: Tus) -> None:
    url = tus.create(5)
    assert tus.patch(url, None, b"hello").status in {400, 409}
    assert tus.offset(url) == 0


# Core, PATCH: 415 for any other Content-Type.
@pytest.mark.parametrize(
    "content_type",
    [None, "application/octet-stream", "text/plain", "multipart/form-data; boundary=x"],
)
def test_a_wrong_content_type_is_refused_with_415(tus: Tus, content_type: str | None) -> None:
    url = tus.create(5)
    assert tus.patch(url, 0, b"hello", Content_Type=content_type).status == 415
    assert tus.offset(url) == 0


# RFC 9110, section 8.3.1: media types are case-insensitive.
def test_the_content_type_is_case_insensitive(tus: Tus) -> None:
    reply = tus.patch(tus.create(5), 0, b"hello", Content_Type=CHUNK_TYPE.title())
    assert reply.status == 204


# Core, PATCH: 404 for a resource that does not exist.
@pytest.mark.parametrize("name", ["0" * 32, "a%00b", "..%2fx"])
def test_bytes_for_an_unknown_upload_are_refused_with_404(tus: Tus, name: str) -> None:
    assert tus.patch(urljoin(tus.url, name), 0, b"hello").status in {404, 410}


# Core, PATCH: zero bytes are not an error.
def test_a_patch_without_bytes_keeps_the_offset(tus: Tus) -> None:
    url = tus.create(5)
    tus.patch(url, 0, b"he")
    reply = tus.patch(url, 2)
    assert (reply.status, reply["Upload-Offset"]) == (204, "2")


# Core, PATCH: no byte beyond the length that the upload was created with.
def test_a_body_longer_than_the_upload_is_refused(tus: Tus) -> None:
    url = tus.create(5)
    assert 400 <= tus.patch(url, 0, b"hello world").status < 500
    assert tus.offset(url) <= 5


# Core, PATCH: the same for a body of unknown length (RFC 9112, section 7.1).
def test_a_chunked_body_never_moves_the_offset_beyond_the_length(tus: Tus) -> None:
    url = tus.create(5)
    fields = headers_of(Upload_Offset=0, Content_Type=CHUNK_TYPE)
    reply = exchange_chunked("PATCH", url, fields, [b"he", b"llo world"])
    assert reply.status < 500
    assert tus.offset(url) <= 5


# RFC 9112, section 7.1: a body may be chunked.
def test_a_chunked_body_is_accepted(tus: Tus, stored: Stored) -> None:
    url = tus.create(11)
    fields = headers_of(Upload_Offset=0, Content_Type=CHUNK_TYPE)
    reply = exchange_chunked("PATCH", url, fields, [b"hello", b" ", b"world"])
    assert (reply.status, reply["Upload-Offset"]) == (204, "11")
    assert stored(url) in (b"hello world", None)


# RFC 9110, section 10.1.1: a client that waits for 100 gets it.
def test_a_client_that_expects_100_is_told_to_continue(tus: Tus) -> None:
    url = tus.create(5)
    fields = headers_of(
        Upload_Offset=0, Content_Type=CHUNK_TYPE, Content_Length=5, Expect="100-continue"
    )
    with Connection(url) as connection:
        connection.begin("PATCH", url, fields)
        assert connection.read_one().status == 100
        connection.send(b"hello")
        reply = connection.read()
    assert (reply.status, reply["Upload-Offset"]) == (204, "5")


# RFC 9112, section 9.3: the body of a request that was refused is never the next request.
def test_a_refused_body_is_not_read_as_a_request(tus: Tus) -> None:
    url, other = tus.create(500), tus.create(5)
    smuggled = f"PATCH {other} HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\n".encode()
    smuggled += b"Upload-Offset: 0\r\nContent-Length: 5\r\n"
    smuggled += f"Content-Type: {CHUNK_TYPE}\r\n\r\nhello".encode()
    fields = headers_of(Upload_Offset=9, Content_Type=CHUNK_TYPE, Content_Length=len(smuggled))
    with Connection(url) as connection:
        connection.begin("PATCH", url, fields)
        connection.send(smuggled)
        assert connection.read().status == 409
    assert (tus.offset(url), tus.offset(other)) == (0, 0)


# Core, PATCH: both answers can be read from one connection.
def test_chunks_can_follow_each_other_on_one_connection(tus: Tus) -> None:
    url = tus.create(10)
    with Connection(url) as connection:
        for offset in (0, 5):
            fields = headers_of(Upload_Offset=offset, Content_Type=CHUNK_TYPE, Content_Length=5)
            connection.begin("PATCH", url, fields)
            connection.send(b"hello")
            assert connection.read()["Upload-Offset"] == str(offset + 5)
