"""IETF draft: interruptions and concurrency."""

from __future__ import annotations

import random

import pytest

from tests.conformance.draft_client import Draft, content_of

pytestmark = [pytest.mark.e2e, pytest.mark.versions(6, 8)]

CONTENT = random.Random(13).randbytes(1_000_000)
HALF = len(CONTENT) // 2


# 4.2 Upload Creation: "the server SHOULD append as much of the request content as possible"; the
# upload "MUST NOT be considered complete".
def test_a_creation_that_breaks_keeps_every_byte_that_arrived(draft: Draft) -> None:
    with draft.begun(len(CONTENT), complete=True) as connection:
        url = draft.location(connection.read_one())
        connection.send_and_stall(CONTENT[:HALF])
    assert draft.settled_offset(url, HALF) == HALF
    assert draft.is_complete(draft.head(url)) is False
    reply = draft.patch(url, HALF, CONTENT[HALF:], complete=True)
    assert 200 <= reply.status < 300
    assert content_of(draft, url, reply) in (CONTENT, None)


# 4.4 Upload Append: the same.
def test_an_append_that_breaks_keeps_every_byte_that_arrived(draft: Draft) -> None:
    url, first = draft.create(CONTENT[:1000]), 1000
    rest = len(CONTENT) - first
    draft.half_sent(url, first, rest, CONTENT[first:HALF], complete=True).close()
    assert draft.settled_offset(url, HALF) == HALF
    assert draft.is_complete(draft.head(url)) is False
    reply = draft.patch(url, HALF, CONTENT[HALF:], complete=True)
    assert content_of(draft, url, reply) in (CONTENT, None)


# 4.6 Concurrency: the reported offset "MUST be accepted in a subsequent request".
def test_an_upload_can_resume_after_a_connection_reset(draft: Draft) -> None:
    url = draft.create()
    draft.half_sent(url, 0, len(CONTENT), CONTENT[:HALF], complete=True).abort()
    offset = draft.offset(url)
    assert offset <= HALF
    reply = draft.patch(url, offset, CONTENT[offset:], complete=True)
    assert 200 <= reply.status < 300
    assert content_of(draft, url, reply) in (CONTENT, None)


# 4.6 Concurrency: clients "have to be able to use received offsets", while the older request is
# open.
def test_an_upload_can_resume_while_an_older_append_stalls(draft: Draft) -> None:
    url = draft.create()
    with draft.half_sent(url, 0, len(CONTENT), CONTENT[:HALF], complete=True):
        offset = draft.offset(url)
        reply = draft.patch(url, offset, CONTENT[offset:], complete=True)
    assert 200 <= reply.status < 300
    assert content_of(draft, url, reply) in (CONTENT, None)


# 4.6 Concurrency: the same while the creation is still open.
def test_an_upload_can_resume_while_its_creation_stalls(draft: Draft) -> None:
    with draft.begun(len(CONTENT), complete=True) as connection:
        url = draft.location(connection.read_one())
        connection.send_and_stall(CONTENT[:HALF])
        offset = draft.offset(url)
        reply = draft.patch(url, offset, CONTENT[offset:], complete=True)
    assert 200 <= reply.status < 300
    assert content_of(draft, url, reply) in (CONTENT, None)


# 4.6 Concurrency: "terminating the previous request before processing the new request" is
# recommended.
def test_a_lookup_ends_an_older_append(draft: Draft) -> None:
    url = draft.create()
    with draft.half_sent(url, 0, len(CONTENT), CONTENT[:HALF], complete=True) as older:
        assert draft.head(url).status in {200, 204}
        status = older.outcome()
    assert status is None or status >= 400


# 4.6 Concurrency: nothing that the older request still sends reaches the upload.
def test_late_content_of_an_older_append_changes_nothing(draft: Draft) -> None:
    url, later = draft.create(), HALF + 5
    with draft.half_sent(url, 0, len(CONTENT), CONTENT[:HALF], complete=True) as older:
        offset = draft.offset(url)
        draft.patch(url, offset, CONTENT[offset:later], complete=False)
        older.send(bytes(HALF))
    assert draft.offset(url) == later
    reply = draft.patch(url, later, CONTENT[later:], complete=True)
    assert content_of(draft, url, reply) in (CONTENT, None)


# 4.1.1 Offset: "the offset MUST NOT decrease".
def test_the_offset_never_goes_back(draft: Draft) -> None:
    url = draft.create()
    told = []
    for end in (1000, HALF, HALF + 1):
        start = draft.offset(url)
        draft.half_sent(url, start, len(CONTENT), CONTENT[start:end], complete=True).abort()
        told += [start, draft.offset(url)]
    assert told == sorted(told)


# 4.5 Upload Cancellation: "SHOULD terminate any in-flight requests ... before sending the
# response".
def test_a_cancellation_ends_an_older_append(draft: Draft) -> None:
    url = draft.create()
    with draft.half_sent(url, 0, len(CONTENT), CONTENT[:HALF], complete=True) as older:
        assert draft.delete(url).status == 204
        status = older.outcome()
    assert status is None or status >= 400
    assert draft.head(url).status in {404, 410}
