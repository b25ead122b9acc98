"""IETF draft: length."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.conformance.draft_client import PROBLEM_TYPES, Draft, problem_of

pytestmark = [pytest.mark.e2e, pytest.mark.versions(6, 8)]


def refusals(draft: Draft) -> Collection[int]:
    """The statuses of lengths that differ: 400, which is only recommended since -06."""
    return range(400, 500) if draft.version.number == 8 else {400}


# 4.1.3 Length: "If indicators (1) and (2) are both present in the same request, their indicated
# lengths MUST match."
@pytest.mark.parametrize("length", [0, 4, 6])
def test_a_whole_file_of_the_wrong_length_is_refused(draft: Draft, length: int) -> None:
    reply = draft.post(b"hello", complete=True, Upload_Length=length)
    assert reply.status in refusals(draft)


# 4.1.3 Length: lengths that match are no contradiction.
def test_a_whole_file_may_state_its_length_twice(draft: Draft) -> None:
    assert 200 <= draft.post(b"hello", complete=True, Upload_Length=5).status < 300


# 4.1.3 Length: content that is longer than the length sent with it.
def test_a_first_part_longer_than_the_file_is_refused(draft: Draft) -> None:
    reply = draft.post(b"hello", complete=False, Upload_Length=4)
    assert 400 <= reply.status < 500


# 4.1.3 Length: "If multiple requests include indicators, their indicated values MUST match."
def test_a_different_length_in_a_later_request_is_refused(draft: Draft) -> None:
    url = draft.create(b"hello", Upload_Length=11)
    reply = draft.patch(url, 5, b" wor", complete=False, Upload_Length=12)
    assert 400 <= reply.status < 500
    assert draft.head(url)["Upload-Length"] == "11"


# 4.1.3 Length: the last content ends at the length.
@pytest.mark.parametrize("rest", [b"", b" wo"], ids=["nothing", "less"])
def test_an_upload_cannot_be_completed_before_its_length(draft: Draft, rest: bytes) -> None:
    url = draft.create(b"hello", Upload_Length=11)
    assert draft.patch(url, 5, rest, complete=True).status in refusals(draft)
    assert draft.is_complete(draft.head(url)) is False


# 4.1.3 Length: the last content MUST NOT end after the length.
def test_an_upload_cannot_be_completed_beyond_its_length(draft: Draft) -> None:
    url = draft.create(b"hello", Upload_Length=11)
    assert draft.patch(url, 5, b" world!", complete=True).status in refusals(draft)
    lookup = draft.head(url)
    assert lookup.status >= 400 or int(lookup["Upload-Offset"]) <= 11


# 4.1.3 Length: may be sent as soon as it becomes known.
def test_the_length_may_be_sent_later(draft: Draft) -> None:
    url = draft.create(b"hello")
    draft.patch(url, 5, b" wor", complete=False, Upload_Length=11)
    assert draft.head(url)["Upload-Length"] == "11"
    assert 200 <= draft.patch(url, 9, b"ld", complete=True).status < 300


# 4.1.3 Length: the last content determines the length of the file.
def test_the_length_follows_from_the_last_content(draft: Draft) -> None:
    url = draft.create(b"hello")
    draft.patch(url, 5, b" world", complete=True)
    lookup = draft.head(url)
    assert lookup.status >= 400 or lookup["Upload-Length"] == "11"


# 7.2 Inconsistent Length: the problem type (since -06), where the answer is a problem document.
@pytest.mark.versions(8)
def test_contradicting_lengths_get_the_registered_problem_type(draft: Draft, is_own: bool) -> None:
    problem = problem_of(draft.post(b"hello", complete=True, Upload_Length=6))
    if not problem and not is_own:
        pytest.skip("not announced: problem documents")
    assert problem["type"] == PROBLEM_TYPES + "inconsistent-upload-length"


# 4.4 Upload Append: "It is not sufficient to rely on the Content-Length header field". Before -07
# the server stops at the length; since then the upload is invalid.
def test_a_chunked_body_beyond_the_length_is_refused(draft: Draft) -> None:
    url = draft.create(b"hello", Upload_Length=11)
    reply = draft.patch_chunked(url, 5, [b" wor", b"ld!!!"], complete=False)
    assert 400 <= reply.status < 500
    lookup = draft.head(url)
    assert lookup.status >= 400 or int(lookup["Upload-Offset"]) <= 11


# 4.4 Upload Append: "marking the upload resource invalid and rejecting any further interaction".
@pytest.mark.versions(8)
def test_content_beyond_the_length_ends_the_upload(draft: Draft) -> None:
    url = draft.create(b"hello", Upload_Length=11)
    draft.patch_chunked(url, 5, [b" wor", b"ld!!!"], complete=False)
    assert draft.head(url).status >= 400
    assert draft.patch(url, 11, complete=True).status >= 400


# 4.1.3 Length: a chunked body has no length to contradict; the text does not mention it.
@pytest.mark.own
def test_a_chunked_body_that_is_too_short_does_not_complete_the_upload(draft: Draft) -> None:
    url = draft.create(b"hello", Upload_Length=11)
    assert 400 <= draft.patch_chunked(url, 5, [b" wor"], complete=True).status < 500
    assert draft.is_complete(draft.head(url)) is not True
