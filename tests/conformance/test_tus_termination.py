"""tus extension: termination."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest

from tests.conformance.conftest import Stored
from tests.conformance.tus_client import GONE, Tus

pytestmark = [pytest.mark.e2e, pytest.mark.extension("termination")]


# Termination, DELETE: MUST be answered with 204.
def test_an_unfinished_upload_is_terminated(tus: Tus) -> None:
    url = tus.create(5)
    tus.patch(url, 0, b"he")
    reply = tus.delete(url)
    assert (reply.status, reply.body) == (204, b"")


# Termination: "completed and unfinished uploads".
def test_a_complete_upload_is_terminated(tus: Tus, stored: Stored) -> None:
    url = tus.create_with(b"hello")
    assert tus.delete(url).status == 204
    assert tus.head(url).status in GONE
    assert stored(url) is None


# Termination, DELETE: 404 or 410 "for all future requests to this URL".
@pytest.mark.parametrize("content", [b"", b"he", b"hello"], ids=["new", "begun", "complete"])
def test_a_terminated_upload_is_gone(tus: Tus, content: bytes) -> None:
    url = tus.create(5)
    tus.patch(url, 0, content)
    tus.delete(url)
    lookup = tus.head(url)
    assert lookup.status in {404, 410}
    assert "Upload-Offset" not in lookup
    assert tus.patch(url, len(content), b"x").status in {404, 410}
    assert tus.delete(url).status in {404, 410}


# Termination, DELETE: an unknown upload.
@pytest.mark.parametrize("name", ["0" * 32, "%2e%2e", "a%00b"])
def test_terminating_an_unknown_upload_is_refused(tus: Tus, name: str) -> None:
    assert tus.delete(urljoin(tus.url, name)).status in {403, 404, 405, 410}


# Termination: an upload of unknown length too.
@pytest.mark.extension("creation-defer-length")
def test_an_upload_of_unknown_length_is_terminated(tus: Tus) -> None:
    url = tus.create()
    tus.patch(url, 0, b"he")
    assert tus.delete(url).status == 204
    assert tus.head(url).status in GONE


# Termination, with concatenation.
@pytest.mark.extension("concatenation")
def test_a_partial_upload_is_terminated(tus: Tus) -> None:
    url = tus.create_with(b"hello", Upload_Concat="partial")
    assert tus.delete(url).status == 204
    assert tus.head(url).status in GONE


# Termination, with concatenation.
@pytest.mark.extension("concatenation")
def test_a_final_upload_is_terminated(tus: Tus) -> None:
    part = tus.create_with(b"hello", Upload_Concat="partial")
    url = tus.location(tus.concatenate(part))
    assert tus.delete(url).status == 204
    assert tus.head(url).status in GONE


# Termination: of one upload only.
def test_terminating_one_upload_leaves_the_others_alone(tus: Tus, stored: Stored) -> None:
    first, second = tus.create_with(b"first"), tus.create_with(b"other")
    tus.delete(first)
    assert tus.offset(second) == 5
    assert stored(second) in (b"other", None)
