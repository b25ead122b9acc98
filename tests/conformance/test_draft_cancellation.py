"""IETF draft: upload cancellation."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest

from tests.conformance.draft_client import Draft

pytestmark = pytest.mark.e2e


# 4.5 Upload Cancellation: a success; before -09 it MUST be 204.
def test_an_upload_is_cancelled(draft: Draft) -> None:
    reply = draft.delete(draft.create(b"hello"))
    assert reply.status == 204 or (draft.version.number == 8 and 200 <= reply.status < 300)


# 4.5 Upload Cancellation: the resource is deactivated; before -06 it MUST be 404 then.
def test_a_cancelled_upload_is_gone(draft: Draft) -> None:
    url = draft.create(b"hello")
    draft.delete(url)
    gone = {404, 410} if draft.version.number == 8 else {404}
    lookup = draft.head(url)
    assert lookup.status in gone
    assert "Upload-Offset" not in lookup
    assert draft.patch(url, 5, b"!", complete=False).status in gone
    assert draft.delete(url).status in gone


# 4.5 Upload Cancellation: an unknown upload.
@pytest.mark.parametrize("name", ["0" * 32, "a%00b"])
def test_cancelling_an_unknown_upload_is_refused(draft: Draft, name: str) -> None:
    assert draft.delete(urljoin(draft.url, name)).status in {404, 410}


# Drafts -01 to -05, Upload Cancellation: MUST be refused with 400.
@pytest.mark.versions(3, 5, 6)
def test_a_cancellation_with_an_offset_is_refused(draft: Draft) -> None:
    url = draft.create(b"hello")
    assert draft.delete(url, Upload_Offset=5).status == 400
    assert draft.offset(url) == 5


# Drafts -01 to -05, Upload Cancellation: MUST be refused with 400.
@pytest.mark.versions(3, 5, 6)
def test_a_cancellation_with_completeness_is_refused(draft: Draft) -> None:
    url = draft.create(b"hello")
    assert draft.delete(url, **draft.completeness(False)).status == 400
    assert draft.offset(url) == 5


# 4.5 Upload Cancellation: of one upload only.
def test_cancelling_one_upload_leaves_the_others_alone(draft: Draft) -> None:
    first, second = draft.create(b"one"), draft.create(b"three")
    draft.delete(first)
    assert draft.offset(second) == 5
