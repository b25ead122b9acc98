"""IETF draft: offset retrieval."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest

from tests.conformance.draft_client import Draft, limits_of

pytestmark = pytest.mark.e2e


# 4.3 Offset Retrieval: a success with offset and completeness, which MUST be there.
def test_a_lookup_has_offset_and_completeness(draft: Draft) -> None:
    reply = draft.head(draft.create(b"hello"))
    assert reply.status in {200, 204}
    assert reply["Upload-Offset"] == "5"
    assert draft.is_complete(reply) is False


# 4.3 Offset Retrieval: also of a complete upload; before -06 "true if and only if" it is complete.
def test_a_lookup_of_a_complete_upload_says_so(draft: Draft) -> None:
    url = draft.create(b"hello")
    assert 200 <= draft.patch(url, 5, b" world", complete=True).status < 300
    reply = draft.head(url)
    assert reply["Upload-Offset"] == "11"
    assert draft.is_complete(reply) is True


# 4.3 Offset Retrieval: SHOULD NOT be cached.
def test_a_lookup_is_not_cached(draft: Draft) -> None:
    assert "no-store" in draft.head(draft.create()).items("Cache-Control")


# 4.3 Offset Retrieval: Upload-Length MUST be there once the client supplied it.
@pytest.mark.versions(6, 8)
def test_a_lookup_has_the_length_the_client_sent(draft: Draft) -> None:
    assert draft.head(draft.create(b"hello", Upload_Length=11))["Upload-Length"] == "11"


# Upload-Length: an unknown length is not sent.
@pytest.mark.versions(6, 8)
def test_a_lookup_has_no_length_while_it_is_unknown(draft: Draft) -> None:
    assert "Upload-Length" not in draft.head(draft.create(b"hello"))


# 4.3 Offset Retrieval: "MUST indicate the limits".
@pytest.mark.versions(8)
def test_a_lookup_has_the_limits(draft: Draft) -> None:
    assert limits_of(draft.head(draft.create()))


# 4.3 Offset Retrieval: "a HEAD or GET request", since -12.
@pytest.mark.versions(8)
def test_get_answers_what_head_answers(draft: Draft) -> None:
    url = draft.create(b"hello", Upload_Length=11)
    reply = draft.request("GET", url)
    assert 200 <= reply.status < 300
    assert (reply["Upload-Offset"], reply["Upload-Length"]) == ("5", "11")
    assert draft.is_complete(reply) is False


# 4.3 Offset Retrieval: what is not there; before -06 the status is 404.
@pytest.mark.parametrize("name", ["0" * 32, "a%00b", "%2e%2e", "..%2fx"])
def test_an_unknown_upload_has_no_offset(draft: Draft, name: str) -> None:
    reply = draft.head(urljoin(draft.url, name))
    assert reply.status in {404, 410}
    assert "Upload-Offset" not in reply


# Drafts -01 to -05, Offset Retrieval: MUST be refused with 400.
@pytest.mark.versions(3, 5, 6)
def test_a_lookup_with_an_offset_is_refused(draft: Draft) -> None:
    assert draft.head(draft.create(b"hello"), Upload_Offset=5).status == 400


# Drafts -01 to -05, Offset Retrieval: MUST be refused with 400.
@pytest.mark.versions(3, 5, 6)
def test_a_lookup_with_completeness_is_refused(draft: Draft) -> None:
    url = draft.create(b"hello")
    assert draft.head(url, **draft.completeness(False)).status == 400


# Drafts -04 and -05, Offset Retrieval: MUST be refused with 400.
@pytest.mark.versions(6)
def test_a_lookup_with_a_length_is_refused(draft: Draft) -> None:
    assert draft.head(draft.create(b"hello"), Upload_Length=11).status == 400


# 4.3 Offset Retrieval: the offset "MUST be accepted" by the next append.
def test_the_reported_offset_is_accepted(draft: Draft) -> None:
    url = draft.create(b"hello")
    offset = draft.offset(url)
    assert 200 <= draft.patch(url, offset, b"!", complete=False).status < 300


# Drafts -04 and -05, Upload Creation: "The upload is not automatically completed if the offset
# reaches the upload's final size."
@pytest.mark.versions(6)
def test_having_all_bytes_does_not_complete_an_upload(draft: Draft) -> None:
    url = draft.create(b"hello", Upload_Length=5)
    reply = draft.head(url)
    assert (reply["Upload-Offset"], reply["Upload-Length"]) == ("5", "5")
    assert draft.is_complete(reply) is False


# 4.1.3 Length: "The offset could match the length, but the upload can still be incomplete." Client
# or server may mark it complete; the client that does so last is told so.
@pytest.mark.versions(6, 8)
def test_an_upload_that_has_all_bytes_is_completed_by_its_client(draft: Draft) -> None:
    url = draft.create(b"hello", Upload_Length=5)
    assert draft.head(url)["Upload-Offset"] == "5"
    assert 200 <= draft.patch(url, 5, complete=True).status < 300
    assert draft.is_complete(draft.head(url)) is True
