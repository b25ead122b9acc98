"""IETF draft: upload append."""

from __future__ import annotations

import random
from urllib.parse import urljoin

import pytest

from tests.conformance.draft_client import PROBLEM_TYPES, Draft, content_of, problem_of

pytestmark = pytest.mark.e2e

LARGE = random.Random(3).randbytes(3_000_000)


# 4.4 Upload Append: 2xx with completeness false; before -06 201.
def test_more_content_is_accepted(draft: Draft) -> None:
    url = draft.create(b"hello")
    reply = draft.patch(url, 5, b" wor", complete=False)
    assert 200 <= reply.status < 300
    assert draft.is_complete(reply) is False
    assert draft.offset(url) == 9


# Drafts -01 to -05, Upload Append: 201, and Upload-Offset MUST be sent.
@pytest.mark.versions(3, 5, 6)
def test_the_answer_to_an_append_has_the_offset(draft: Draft) -> None:
    reply = draft.patch(draft.create(b"hello"), 5, b" wor", complete=False)
    assert (reply.status, reply["Upload-Offset"]) == (201, "9")


# 4.4 Upload Append: the last content completes the upload, which is stored as it was sent.
def test_the_last_content_completes_the_upload(draft: Draft) -> None:
    url = draft.create(b"hello")
    reply = draft.patch(url, 5, b" world", complete=True)
    assert 200 <= reply.status < 300
    assert draft.is_complete(reply) is not False
    assert draft.is_complete(draft.head(url)) is True
    assert content_of(draft, url, reply) in (b"hello world", None)


# 4.4 Upload Append: "the response MUST include the Upload-Complete header field with a true value".
@pytest.mark.versions(8)
def test_the_answer_to_the_last_content_says_complete(draft: Draft) -> None:
    reply = draft.patch(draft.create(b"hello"), 5, b" world", complete=True)
    assert draft.is_complete(reply) is True


# 4.4 Upload Append: a request without content completes an upload that has all.
def test_an_append_without_content_completes_the_upload(draft: Draft) -> None:
    url = draft.create(b"hello")
    reply = draft.patch(url, 5, complete=True)
    assert 200 <= reply.status < 300
    assert draft.is_complete(draft.head(url)) is True
    assert content_of(draft, url, reply) in (b"hello", None)


# 4.4 Upload Append: large content over several requests.
def test_large_content_arrives_unchanged(draft: Draft) -> None:
    url, first, second = draft.create(LARGE[:999_999]), 999_999, 2_000_001
    draft.patch(url, first, LARGE[first:second], complete=False)
    reply = draft.patch(url, second, LARGE[second:], complete=True)
    assert content_of(draft, url, reply) in (LARGE, None)


# RFC 9112, section 7.1: the length of the content need not be known.
def test_an_append_may_have_a_chunked_body(draft: Draft) -> None:
    url = draft.create(b"hello")
    reply = draft.patch_chunked(url, 5, [b" wo", b"rld"], complete=True)
    assert 200 <= reply.status < 300
    assert draft.is_complete(draft.head(url)) is True
    assert content_of(draft, url, reply) in (b"hello world", None)


# 4.4 Upload Append: 409 with the right offset; nothing is changed.
@pytest.mark.parametrize("offset", [0, 4, 6, 1000])
def test_a_wrong_offset_is_a_conflict_that_names_the_right_one(draft: Draft, offset: int) -> None:
    url = draft.create(b"hello")
    reply = draft.patch(url, offset, b"XX", complete=False)
    assert (reply.status, reply["Upload-Offset"]) == (409, "5")
    assert draft.offset(url) == 5


# 4.4 Upload Append: "and the Upload-Complete header field set to false".
@pytest.mark.versions(8)
def test_a_conflict_says_incomplete(draft: Draft) -> None:
    reply = draft.patch(draft.create(b"hello"), 4, b"XX", complete=True)
    assert (reply.status, draft.is_complete(reply)) == (409, False)


# 7.1 Mismatching Offset: the problem type and both of its members, where the answer has it.
@pytest.mark.versions(6, 8)
def test_the_problem_of_a_conflict_names_both_offsets(draft: Draft, is_own: bool) -> None:
    problem = problem_of(draft.patch(draft.create(b"hello"), 4, b"XX", complete=False))
    if not problem and not is_own:
        pytest.skip("not announced: problem documents")
    assert problem["type"] == PROBLEM_TYPES + "mismatching-upload-offset"
    assert (problem["expected-offset"], problem["provided-offset"]) == (5, 4)


# 4.4 Upload Append: the offset MUST be indicated.
def test_an_append_without_an_offset_is_refused(draft: Draft) -> None:
    url = draft.create(b"hello")
    assert 400 <= draft.patch(url, None, b"!", complete=False).status < 500
    assert draft.offset(url) == 5


# 4.4 Upload Append: "The request MUST include the Upload-Complete header field."
@pytest.mark.versions(8)
def test_an_append_without_completeness_is_refused(draft: Draft) -> None:
    url = draft.create(b"hello")
    assert 400 <= draft.patch(url, 5, b"!", complete=None).status < 500
    assert draft.offset(url) == 5


# Draft -01, Upload Append: complete "with the Upload-Incomplete header being omitted".
@pytest.mark.versions(3)
def test_an_append_without_incomplete_is_the_last(draft: Draft) -> None:
    url = draft.create(b"hello")
    assert 200 <= draft.patch(url, 5, b"!", complete=None).status < 300
    assert draft.is_complete(draft.head(url)) is True


# 6 Media Type: MUST be application/partial-upload since -04.
@pytest.mark.versions(6, 8)
@pytest.mark.parametrize("media_type", [None, "application/octet-stream", "text/plain"])
def test_a_wrong_media_type_is_refused(draft: Draft, media_type: str | None) -> None:
    url = draft.create(b"hello")
    reply = draft.patch(url, 5, b"!", complete=False, Content_Type=media_type)
    assert 400 <= reply.status < 500
    assert draft.offset(url) == 5


# 4.4 Upload Append: an unknown upload; before -06 the status is 404.
@pytest.mark.parametrize("name", ["0" * 32, "a%00b"])
def test_content_for_an_unknown_upload_is_refused(draft: Draft, name: str) -> None:
    reply = draft.patch(urljoin(draft.url, name), 0, b"hello", complete=False)
    assert reply.status in {404, 410}


# Drafts -04 and -05: 400 for a completed upload, which MUST NOT be modified.
@pytest.mark.versions(6)
def test_an_upload_completed_by_the_client_accepts_no_more_content(draft: Draft) -> None:
    url = draft.location(draft.post(b"hello", complete=True))
    assert draft.patch(url, 5, b"!", complete=True).status == 400
    assert draft.offset(url) == 5


# 4.1.2 Completeness: "After this point, no more representation data can be appended."
@pytest.mark.versions(8)
def test_a_complete_upload_accepts_no_more_content(draft: Draft) -> None:
    url = draft.create(b"hello")
    draft.patch(url, 5, complete=True)
    assert 400 <= draft.patch(url, 5, b"!", complete=True).status < 500
    lookup = draft.head(url)
    assert lookup.status >= 400 or lookup["Upload-Offset"] == "5"


# 4.4 Upload Append: the final response may be replayed to a client that has lost it.
@pytest.mark.versions(8)
def test_the_completing_request_can_be_repeated(draft: Draft) -> None:
    url = draft.create(b"hello")
    draft.patch(url, 5, complete=True)
    again = draft.patch(url, 5, complete=True)
    assert 400 <= again.status < 500 or draft.is_complete(again) is True
    assert draft.is_complete(draft.head(url)) is not False
