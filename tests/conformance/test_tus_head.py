"""tus core: HEAD."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest

from tests.conformance.tus_client import GONE, Tus, headers_of
from tests.conformance.wire import Connection

pytestmark = pytest.mark.e2e

STRANGE_NAMES = {
    "unknown": "0" * 32,
    "a NUL byte": "a%00b",
    "dots": "%2e%2e",
    "an escaped slash": "..%2f..%2fetc%2fpasswd",
    "not UTF-8": "%ff%fe",
    "too long": "a" * 1000,
    "a space": "a%20b",
}


# Core, HEAD: "MUST always include the Upload-Offset header ..., even if the offset is 0".
def test_the_offset_of_an_upload_without_bytes_is_0(tus: Tus) -> None:
    reply = tus.head(tus.create(5))
    assert reply["Upload-Offset"] == "0"


# Core, HEAD: "If the size of the upload is known, the Server MUST include the Upload-Length".
def test_a_lookup_has_the_length(tus: Tus) -> None:
    assert tus.head(tus.create(12345))["Upload-Length"] == "12345"


# Core, HEAD: 200 or 204.
def test_a_lookup_is_answered_with_200_or_204(tus: Tus) -> None:
    assert tus.head(tus.create(5)).status in {200, 204}


# Core, HEAD: Upload-Offset.
def test_the_offset_counts_the_bytes_that_arrived(tus: Tus) -> None:
    url = tus.create(5)
    tus.patch(url, 0, b"abc")
    reply = tus.head(url)
    assert (reply["Upload-Offset"], reply["Upload-Length"]) == ("3", "5")


# Core, HEAD: Upload-Offset MUST be there "or the upload is already considered completed".
def test_a_complete_upload_has_its_offset_and_length(tus: Tus) -> None:
    reply = tus.head(tus.create_with(b"hello"))
    assert reply.status in {200, 204}
    assert (reply["Upload-Offset"], reply["Upload-Length"]) == ("5", "5")


# Core, HEAD: "Cache-Control: no-store" MUST be there.
def test_a_lookup_is_not_cached(tus: Tus) -> None:
    assert "no-store" in tus.head(tus.create(5)).items("Cache-Control")


# Core, HEAD: 404, 410 or 403 without Upload-Offset for an unknown upload. Deployed servers answer
# 500 to some of these.
@pytest.mark.parametrize("name", STRANGE_NAMES.values(), ids=list(STRANGE_NAMES))
def test_an_unknown_upload_has_no_offset(tus: Tus, name: str) -> None:
    reply = tus.head(urljoin(tus.url, name))
    assert reply.status in GONE
    assert "Upload-Offset" not in reply


# RFC 9110, section 9.3.2: no content, and the connection is usable afterwards.
def test_two_lookups_can_share_a_connection(tus: Tus) -> None:
    url = tus.create(5)
    with Connection(url) as connection:
        for _ in range(2):
            connection.begin("HEAD", url, headers_of())
            assert connection.read()["Upload-Offset"] == "0"


# RFC 9110, section 9.2.1: HEAD is safe.
def test_a_lookup_changes_nothing(tus: Tus) -> None:
    url = tus.create(5)
    tus.patch(url, 0, b"he")
    assert [tus.offset(url) for _ in range(3)] == [2, 2, 2]
    assert tus.patch(url, 2, b"llo").status == 204
