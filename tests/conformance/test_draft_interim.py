"""IETF draft: interim responses (104)."""

from __future__ import annotations

import time

import pytest

from tests.conformance.draft_client import VERSION_HEADER, Draft, limits_of
from tests.conformance.wire import Connection, Reply

pytestmark = pytest.mark.e2e

PIECE = bytes(1_000_000)
PIECES = 2
PAUSE_SECONDS = 1.2
"""Servers report progress about once a second."""


# 4.2 Upload Creation: the 104 arrives before the content is sent, with Location.
def test_the_uploads_url_is_sent_before_the_content_arrives(draft: Draft) -> None:
    with draft.begun(5, complete=False) as connection:
        early = connection.read_one()
        assert early.status == 104
        connection.send(b"hello")
        reply = connection.read()
    assert draft.location(early) == draft.location(reply)
    assert draft.offset(draft.location(early)) == 5


# 4.2 Upload Creation: "all interim and final response messages for the same request MUST contain an
# identical Location value".
def test_all_answers_to_a_creation_have_the_same_location(draft: Draft) -> None:
    reply = draft.post(b"hello", complete=False)
    told = [one["Location"] for one in [*reply.interim, reply] if "Location" in one]
    assert len(told) >= 2
    assert len(set(told)) == 1


# Appendix "Draft Version Identification": the 104 MUST name the version.
def test_an_interim_response_has_the_version(draft: Draft) -> None:
    reply = draft.post(b"hello", complete=True)
    numbers = {one.get(VERSION_HEADER) for one in reply.interim if one.status == 104}
    assert numbers == {str(draft.version.number)}


# 4.2 Upload Creation: the 104 MUST include Upload-Limit if there are limits.
@pytest.mark.versions(8)
def test_the_limits_are_sent_with_the_url(draft: Draft) -> None:
    reply = draft.post(complete=False)
    assert limits_of(reply.interim[0]) == limits_of(reply) != {}


# Appendix "Draft Version Identification": MUST NOT send a 104 when the version "is missing or
# mismatching".
@pytest.mark.versions(8)
@pytest.mark.parametrize("number", [None, "99", "0", "-1", "eight", ""])
def test_no_interim_response_is_sent_to_an_unknown_version(
    draft: Draft, number: str | None
) -> None:
    reply = draft.post(b"hello", complete=True, **{VERSION_HEADER: number})
    assert [one.status for one in reply.interim] == []


# RFC 9110, section 15.2: "A server MUST NOT send a 1xx response to an HTTP/1.0 client."
def test_no_interim_response_is_sent_to_an_old_client(draft: Draft) -> None:
    fields = draft.headers(**draft.completeness(True), Content_Length=5)
    with Connection(draft.url) as connection:
        connection.begin("POST", draft.url, fields, version="1.0")
        connection.send(b"hello")
        reply = connection.read()
    assert [one.status for one in reply.interim] == []
    assert 200 <= reply.status < 300


# 5 Status Code 104: "the server MUST NOT omit the 100 (Continue) response because it has sent" one.
def test_a_client_that_expects_100_still_gets_it(draft: Draft) -> None:
    with draft.begun(5, complete=False, Expect="100-continue") as connection:
        early = [connection.read_one() for _ in range(2)]
        assert {one.status for one in early} == {100, 104}
        connection.send(b"hello")
        assert draft.offset(draft.location(connection.read())) == 5


# 4.4 Upload Append: 104s MUST NOT include Location; their offsets acknowledge what is safe.
@pytest.mark.versions(6, 8)
def test_progress_never_exceeds_what_was_sent(draft: Draft) -> None:
    reply, sent = slow_append(draft, draft.create())
    offsets = [int(one["Upload-Offset"]) for one in reply.interim if "Upload-Offset" in one]
    assert all("Location" not in one for one in reply.interim)
    assert offsets == sorted(offsets)
    assert all(offset <= sent for offset in offsets)


# 4.4 Upload Append: "the server SHOULD send interim responses".
@pytest.mark.versions(8)
def test_progress_is_reported_while_content_arrives(draft: Draft) -> None:
    length = PIECES * len(PIECE)
    with draft.half_sent(draft.create(), 0, length, PIECE, complete=False) as connection:
        while "Upload-Offset" not in (told := connection.read_one()):
            assert told.status < 200
        assert told.status == 104
        connection.send(PIECE * (PIECES - 1))
        assert 200 <= connection.read().status < 300


# 4.4 Upload Append: an append in no version gets no interim response.
@pytest.mark.versions(8)
def test_no_progress_is_reported_without_a_version(draft: Draft) -> None:
    url = draft.create()
    reply = draft.patch(url, 0, PIECE, complete=False, **{VERSION_HEADER: None})
    assert [one.status for one in reply.interim] == []


def slow_append(draft: Draft, url: str) -> tuple[Reply, int]:
    """The answer to an append whose content takes seconds, and the offset after it."""
    length = PIECES * len(PIECE)
    with draft.half_sent(url, 0, length, PIECE, complete=False) as connection:
        for _ in range(PIECES - 1):
            time.sleep(PAUSE_SECONDS)
            connection.send(PIECE)
        return connection.read(), length
