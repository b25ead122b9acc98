"""tus core: broken and stalled connections."""

from __future__ import annotations

import random

import pytest

from tests.conformance.conftest import Stored
from tests.conformance.tus_client import GONE, Tus

pytestmark = pytest.mark.e2e

CONTENT = random.Random(11).randbytes(1_000_000)
HALF = len(CONTENT) // 2


# Core, PATCH: "The Server SHOULD always attempt to store as much of the received data as possible."
def test_a_connection_that_breaks_keeps_every_byte_that_arrived(tus: Tus, stored: Stored) -> None:
    url = tus.create(len(CONTENT))
    tus.half_sent(url, 0, len(CONTENT), CONTENT[:HALF]).close()
    assert tus.settled_offset(url, HALF) == HALF
    assert tus.patch(url, HALF, CONTENT[HALF:]).status == 204
    assert stored(url) in (CONTENT, None)


# Core, PATCH: bytes may be lost in a reset, but the server has what it reports.
def test_an_upload_can_resume_after_a_connection_reset(tus: Tus, stored: Stored) -> None:
    url = tus.create(len(CONTENT))
    tus.half_sent(url, 0, len(CONTENT), CONTENT[:HALF]).abort()
    reply = tus.head(url)
    assert reply.status in {200, 204}
    offset = int(reply["Upload-Offset"])
    assert offset <= HALF
    reply = tus.patch(url, offset, CONTENT[offset:])
    assert (reply.status, reply["Upload-Offset"]) == (204, str(len(CONTENT)))
    assert stored(url) in (CONTENT, None)


# Core, PATCH: a body that ends early does not complete the upload.
def test_the_last_chunk_cut_short_does_not_complete_the_upload(tus: Tus) -> None:
    url = tus.create(len(CONTENT))
    tus.patch(url, 0, CONTENT[:HALF])
    tus.half_sent(url, HALF, HALF, CONTENT[HALF:-1]).close()
    assert tus.settled_offset(url, len(CONTENT) - 1) == len(CONTENT) - 1
    assert tus.patch(url, len(CONTENT) - 1, CONTENT[-1:]).status == 204


# Core, HEAD: "MUST always include the Upload-Offset header", also while another request is open. A
# client that gets "locked" here starts again at 0.
def test_a_lookup_is_answered_while_a_request_stalls(tus: Tus) -> None:
    url = tus.create(len(CONTENT))
    with tus.half_sent(url, 0, len(CONTENT), CONTENT[:HALF]):
        reply = tus.head(url)
    assert reply.status in {200, 204}
    assert int(reply["Upload-Offset"]) <= HALF


# Core, PATCH: the offset from HEAD is the current one, whatever became of the older request.
def test_an_upload_can_resume_while_an_older_request_stalls(tus: Tus, stored: Stored) -> None:
    url = tus.create(len(CONTENT))
    with tus.half_sent(url, 0, len(CONTENT), CONTENT[:HALF]):
        offset = tus.offset(url)
        reply = tus.patch(url, offset, CONTENT[offset:])
    assert (reply.status, reply["Upload-Offset"]) == (204, str(len(CONTENT)))
    assert stored(url) in (CONTENT, None)


# Core, PATCH: what an older request still sends does not reach the upload.
def test_late_bytes_of_an_older_request_change_nothing(tus: Tus, stored: Stored) -> None:
    url = tus.create(len(CONTENT))
    with tus.half_sent(url, 0, len(CONTENT), CONTENT[:HALF]) as stalled:
        offset = tus.offset(url)
        assert tus.patch(url, offset, CONTENT[offset : HALF + 5]).status == 204
        stalled.send(bytes(HALF))
    rest = HALF + 5
    assert tus.offset(url) == rest
    assert tus.patch(url, rest, CONTENT[rest:]).status == 204
    assert stored(url) in (CONTENT, None)


# Termination: DELETE frees what a running request holds.
@pytest.mark.extension("termination")
def test_an_upload_can_be_terminated_while_a_request_stalls(tus: Tus) -> None:
    url = tus.create(len(CONTENT))
    with tus.half_sent(url, 0, len(CONTENT), CONTENT[:HALF]):
        assert tus.delete(url).status == 204
    assert tus.head(url).status in GONE
