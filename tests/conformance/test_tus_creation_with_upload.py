"""tus extension: creation-with-upload."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Stored
from tests.conformance.tus_client import CHUNK_TYPE, Tus, base64_of, headers_of
from tests.conformance.wire import Connection, exchange_chunked

pytestmark = [pytest.mark.e2e, pytest.mark.extension("creation-with-upload")]


# Creation With Upload: the offset in the answer counts the bytes that were accepted.
def test_a_whole_file_may_come_with_its_creation(tus: Tus, stored: Stored) -> None:
    reply = tus.post(b"hello", Upload_Length=5, Content_Type=CHUNK_TYPE)
    url = tus.location(reply)
    assert reply["Upload-Offset"] == "5"
    assert tus.offset(url) == 5
    assert stored(url) in (b"hello", None)


# Creation With Upload: "either the entirety or a chunk".
def test_a_first_chunk_may_come_with_the_creation(tus: Tus, stored: Stored) -> None:
    reply = tus.post(b"hello", Upload_Length=11, Content_Type=CHUNK_TYPE)
    url = tus.location(reply)
    assert reply["Upload-Offset"] == "5"
    assert tus.patch(url, 5, b" world")["Upload-Offset"] == "11"
    assert stored(url) in (b"hello world", None)


# Creation With Upload: "similar rules as for the PATCH request"; a body may be chunked.
def test_the_first_chunk_may_have_no_length(tus: Tus) -> None:
    fields = headers_of(Upload_Length=11, Content_Type=CHUNK_TYPE)
    reply = exchange_chunked("POST", tus.url, fields, [b"hello", b" world"])
    assert reply["Upload-Offset"] == "11"
    assert tus.offset(tus.location(reply)) == 11


# Creation With Upload: the type of the body MUST be application/offset+octet-stream.
def test_a_body_of_another_type_is_not_stored(tus: Tus) -> None:
    reply = tus.post(b"hello", Upload_Length=5, Content_Type="text/plain")
    assert reply.status == 415 or tus.offset(tus.location(reply)) == 0


# Creation With Upload: clients SHOULD expect 100 before they send.
def test_a_creation_that_expects_100_is_told_to_continue(tus: Tus) -> None:
    fields = headers_of(
        Upload_Length=5, Content_Type=CHUNK_TYPE, Content_Length=5, Expect="100-continue"
    )
    with Connection(tus.url) as connection:
        connection.begin("POST", tus.url, fields)
        assert connection.read_one().status == 100
        connection.send(b"hello")
        reply = connection.read()
    assert (reply.status, reply["Upload-Offset"]) == (201, "5")


# Creation With Upload: "similar rules as for the PATCH request": no byte beyond the length.
def test_a_body_longer_than_the_upload_is_refused_at_creation(tus: Tus) -> None:
    reply = tus.post(b"hello world", Upload_Length=5, Content_Type=CHUNK_TYPE)
    assert 400 <= reply.status < 500


# Creation With Upload, with creation-defer-length.
@pytest.mark.extension("creation-defer-length")
def test_bytes_may_come_before_the_length_is_known(tus: Tus, stored: Stored) -> None:
    reply = tus.post(b"hello", Upload_Defer_Length=1, Content_Type=CHUNK_TYPE)
    url = tus.location(reply)
    assert reply["Upload-Offset"] == "5"
    assert tus.head(url)["Upload-Defer-Length"] == "1"
    assert tus.patch(url, 5, b" world", Upload_Length=11).status == 204
    assert stored(url) in (b"hello world", None)


# Creation With Upload: "similar rules as for the PATCH request", with checksum.
@pytest.mark.extension("checksum")
def test_bytes_that_do_not_match_their_checksum_are_refused_at_creation(tus: Tus) -> None:
    reply = tus.post(
        b"hello",
        Upload_Length=5,
        Content_Type=CHUNK_TYPE,
        Upload_Checksum=f"sha1 {base64_of(bytes(20))}",
    )
    assert reply.status == 460
    assert "Location" not in reply


# Creation With Upload, with concatenation.
@pytest.mark.extension("concatenation")
def test_a_partial_upload_may_come_with_its_bytes(tus: Tus, stored: Stored) -> None:
    reply = tus.post(b"hello", Upload_Length=5, Content_Type=CHUNK_TYPE, Upload_Concat="partial")
    part = tus.location(reply)
    assert reply["Upload-Offset"] == "5"
    url = tus.location(tus.concatenate(part, part))
    assert tus.settled_offset(url, 10) == 10
    assert stored(url) in (b"hellohello", None)
