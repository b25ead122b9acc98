"""IETF draft: integrity digests."""

from __future__ import annotations

import hashlib

import pytest

from tests.conformance.draft_client import Draft, content_of
from tests.conformance.tus_client import base64_of

pytestmark = [pytest.mark.e2e, pytest.mark.versions(6, 8)]

ALGORITHMS = {"sha-256": "sha256", "sha-512": "sha512"}
"""The active ones of the registry (RFC 9530, section 7.2), by hashlib's names."""


def digest_of(content: bytes, name: str = "sha-256") -> str:
    """The value of `Content-Digest` or `Repr-Digest`."""
    return f"{name}=:{base64_of(hashlib.new(ALGORITHMS[name], content).digest())}:"


@pytest.fixture
def _checks_content(draft: Draft, is_own: bool) -> None:
    """Skip if nothing is checked: a server "can" check, and announces it nowhere."""
    reply = draft.post(b"jello", complete=False, Content_Digest=digest_of(b"hello"))
    if not is_own and reply.status < 400:
        pytest.skip("not announced: Content-Digest")


@pytest.fixture
def _checks_representation(draft: Draft, is_own: bool) -> None:
    reply = draft.post(b"jello", complete=True, Repr_Digest=digest_of(b"hello"))
    if not is_own and reply.status < 400:
        pytest.skip("not announced: Repr-Digest")


# 10.2 Content Digests: a digest that matches.
@pytest.mark.parametrize("name", ALGORITHMS)
def test_content_that_matches_its_digest_is_accepted(draft: Draft, name: str) -> None:
    url = draft.create(b"hello", Content_Digest=digest_of(b"hello", name))
    digest = digest_of(b" world", name)
    reply = draft.patch(url, 5, b" world", complete=True, Content_Digest=digest)
    assert 200 <= reply.status < 300
    assert content_of(draft, url, reply) in (b"hello world", None)


# 10.2 Content Digests: SHOULD "not append the content to the upload resource, and signal the
# failure".
@pytest.mark.usefixtures("_checks_content")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_content_that_does_not_match_is_not_appended(draft: Draft, name: str) -> None:
    url = draft.create(b"hello")
    digest = digest_of(b" world", name)
    bad = draft.patch(url, 5, b" wxrld", complete=True, Content_Digest=digest)
    assert 400 <= bad.status < 500
    lookup = draft.head(url)
    assert (lookup["Upload-Offset"], draft.is_complete(lookup)) == ("5", False)
    good = draft.patch(url, 5, b" world", complete=True, Content_Digest=digest)
    assert 200 <= good.status < 300
    assert content_of(draft, url, good) in (b"hello world", None)


# 10.2 Content Digests: the same at creation.
@pytest.mark.usefixtures("_checks_content")
def test_a_creation_whose_content_does_not_match_is_refused(draft: Draft) -> None:
    reply = draft.post(b"jello", complete=True, Content_Digest=digest_of(b"hello"))
    assert 400 <= reply.status < 500


# 10.1 Representation Digests: a digest that matches.
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_file_that_matches_its_digest_is_accepted(draft: Draft, name: str) -> None:
    url = draft.create(b"hello", Repr_Digest=digest_of(b"hello world", name))
    reply = draft.patch(url, 5, b" world", complete=True)
    assert 200 <= reply.status < 300
    assert content_of(draft, url, reply) in (b"hello world", None)


# 10.1 Representation Digests: "the server SHOULD consider the upload failed, not process the
# representation further, and signal the failure to the client".
@pytest.mark.usefixtures("_checks_representation")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_file_that_does_not_match_its_digest_fails(draft: Draft, name: str) -> None:
    url = draft.create(b"hello", Repr_Digest=digest_of(b"hello world", name))
    reply = draft.patch(url, 5, b" wxrld", complete=True)
    assert reply.status >= 400
    assert draft.patch(url, 11, complete=True).status >= 400


# 10.1 Representation Digests: the same for a file in one request.
@pytest.mark.usefixtures("_checks_representation")
def test_a_whole_file_that_does_not_match_its_digest_fails(draft: Draft) -> None:
    reply = draft.post(b"jello", complete=True, Repr_Digest=digest_of(b"hello"))
    assert reply.status >= 400


# RFC 9530, section 2: an unknown algorithm may be ignored; it is not an error by itself.
def test_a_digest_of_an_unknown_algorithm_is_ignored(draft: Draft) -> None:
    reply = draft.post(b"hello", complete=True, Repr_Digest="unknown=:AAAA:")
    assert 200 <= reply.status < 300


# 10.1 Representation Digests: Want-Repr-Digest SHOULD be answered once the upload is complete.
def test_a_requested_digest_is_correct_if_it_is_sent(draft: Draft, is_own: bool) -> None:
    reply = draft.post(b"hello", complete=True, Want_Repr_Digest="sha-256=10")
    assert 200 <= reply.status < 300
    if "Repr-Digest" in reply or is_own:
        assert reply["Repr-Digest"] == digest_of(b"hello")
