"""IETF draft: upload creation."""

from __future__ import annotations

import pytest

from tests.conformance.draft_client import Draft, content_of

pytestmark = pytest.mark.e2e

FIELDS = {
    "a plain name": {"Content_Disposition": 'inline; filename="film.mp4"'},
    "an encoded name": {"Content_Disposition": "inline; filename*=UTF-8''%F0%9F%8E%AC.mp4"},
    "a name that is a path": {"Content_Disposition": 'inline; filename="../../etc/passwd"'},
    "an attachment": {"Content_Disposition": "attachment; filename=film.mp4"},
    "a media type": {"Content_Type": "video/mp4"},
    "a content coding": {"Content_Encoding": "gzip"},
    "a wish for incremental delivery": {"Incremental": "?1"},
}


# 4.2.2 Upload Creation: the response is that of the resource, and a success.
def test_a_file_may_be_sent_in_one_request(draft: Draft) -> None:
    reply = draft.post(b"hello", complete=True)
    assert 200 <= reply.status < 300
    assert draft.is_complete(reply) is not False
    url = draft.location(next(one for one in reply.interim if "Location" in one))
    assert content_of(draft, url, reply) in (b"hello", None)


# 4.2.2 Upload Creation: an empty representation.
def test_an_empty_file_may_be_sent_in_one_request(draft: Draft) -> None:
    reply = draft.post(complete=True)
    assert 200 <= reply.status < 300
    assert draft.is_complete(reply) is not False


# 4.2.2 Upload Creation: "the server MUST include the Location response header field"; 201 is
# recommended, and before -06 required.
def test_part_of_a_file_creates_an_upload_resource(draft: Draft) -> None:
    reply = draft.post(b"hello", complete=False)
    assert reply.status == 201
    assert draft.is_complete(reply) is False
    lookup = draft.head(draft.location(reply))
    assert lookup["Upload-Offset"] == "5"
    assert draft.is_complete(lookup) is False


# 4.2.1 Upload Creation: an empty request retrieves the URL before any byte is sent.
def test_an_upload_resource_may_be_created_without_content(draft: Draft) -> None:
    lookup = draft.head(draft.create())
    assert lookup["Upload-Offset"] == "0"
    assert draft.is_complete(lookup) is False


# Drafts -01 to -05, Upload Creation: MUST send Upload-Offset if the upload is active.
@pytest.mark.versions(3, 5, 6)
@pytest.mark.parametrize("is_complete", [True, False], ids=["complete", "incomplete"])
def test_the_answer_to_a_creation_has_the_offset(draft: Draft, is_complete: bool) -> None:
    assert draft.post(b"hello", complete=is_complete)["Upload-Offset"] == "5"


# Drafts -01 to -05, Upload Creation: MUST include Location.
@pytest.mark.versions(3, 5, 6)
def test_the_answer_to_a_whole_file_has_the_uploads_url(draft: Draft) -> None:
    reply = draft.post(b"hello", complete=True)
    assert draft.is_complete(draft.head(draft.location(reply))) is True


# 4.1.2 Completeness: the answer itself SHOULD have it.
@pytest.mark.versions(8)
@pytest.mark.parametrize("is_complete", [True, False], ids=["complete", "incomplete"])
def test_the_answer_to_a_creation_has_completeness(draft: Draft, is_complete: bool) -> None:
    assert draft.is_complete(draft.post(b"hello", complete=is_complete)) is is_complete


# 4.2.2 Upload Creation: each creation makes its own resource.
def test_two_creations_create_two_uploads(draft: Draft) -> None:
    first, second = draft.create(b"one"), draft.create(b"three")
    assert first != second
    assert (draft.offset(first), draft.offset(second)) == (3, 5)


# 13 Security Considerations: the URL should be hard to guess.
def test_the_url_of_an_upload_is_hard_to_guess(draft: Draft) -> None:
    names = {draft.create().rstrip("/").rsplit("/", 1)[1] for _ in range(3)}
    assert all(len(name) >= 16 for name in names)
    assert len({name[:8] for name in names}) == 3


# 4.2.1 Upload Creation: representation metadata in the initial request.
@pytest.mark.parametrize("fields", FIELDS.values(), ids=list(FIELDS))
def test_metadata_of_the_file_is_accepted(draft: Draft, fields: dict[str, str]) -> None:
    url = draft.create(b"he", **fields)
    assert draft.offset(url) == 2


# 4.2.1 Upload Creation: "all request methods that allow content are possible"; a server need not
# have them all.
def test_an_upload_may_be_created_with_put(draft: Draft, is_own: bool) -> None:
    reply = draft.request("PUT", draft.url, b"hello", **draft.completeness(False))
    if reply.status in {404, 405} and not is_own:
        pytest.skip("not announced: PUT")
    assert draft.offset(draft.location(reply)) == 5


# RFC 9112, section 7.1: the length of the content need not be known.
def test_a_creation_may_have_a_chunked_body(draft: Draft) -> None:
    url = draft.location(draft.post_chunked([b"hello", b" world"], complete=False))
    assert draft.offset(url) == 11


# 4.2.2 Upload Creation: the same for a whole file.
def test_a_whole_file_may_have_a_chunked_body(draft: Draft) -> None:
    reply = draft.post_chunked([b"hello", b" world"], complete=True)
    assert 200 <= reply.status < 300
    url = draft.location(next(one for one in reply.interim if "Location" in one))
    assert content_of(draft, url, reply) in (b"hello world", None)


# Drafts -01 to -05: "The request MUST NOT include the Upload-Offset header."
def test_a_creation_with_an_offset_is_refused(draft: Draft) -> None:
    reply = draft.post(b"hello", complete=False, Upload_Offset=5)
    assert reply.status >= 400 or draft.offset(draft.location(reply)) == 5
