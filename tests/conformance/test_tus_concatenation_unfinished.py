"""tus extension: concatenation-unfinished."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Stored
from tests.conformance.tus_client import Tus

pytestmark = [pytest.mark.e2e, pytest.mark.extension("concatenation-unfinished")]


def parts_of(tus: Tus, *lengths: int) -> list[str]:
    """URLs of partial uploads without bytes."""
    return [tus.create(length, Upload_Concat="partial") for length in lengths]


# Concatenation: the request MAY come "while the partial uploads are still in progress"; HEAD
# SHOULD NOT have an offset until it is done, and MUST have a length that can be calculated.
def test_a_final_upload_may_be_created_before_its_parts_are_complete(tus: Tus) -> None:
    first, second = parts_of(tus, 5, 6)
    url = tus.location(tus.concatenate(first, second))
    reply = tus.head(url)
    assert reply.status in {200, 204}
    assert reply["Upload-Length"] == "11"
    assert reply["Upload-Concat"] == f"final;{first} {second}"
    assert "Upload-Offset" not in reply


# Concatenation: "After successful concatenation, the Upload-Offset and Upload-Length MUST be set".
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["in order", "in another order"])
def test_a_final_upload_is_complete_once_its_parts_are(
    tus: Tus, stored: Stored, order: tuple[int, int]
) -> None:
    urls, contents = parts_of(tus, 5, 6), (b"hello", b" world")
    url = tus.location(tus.concatenate(*urls))
    for index in order:
        assert "Upload-Offset" not in tus.head(url)
        assert tus.patch(urls[index], 0, contents[index]).status == 204
    assert tus.settled_offset(url, 11) == 11
    assert tus.head(url)["Upload-Length"] == "11"
    assert stored(url) in (b"hello world", None)


# Concatenation: a complete part beside an unfinished one.
def test_some_parts_may_be_complete_already(tus: Tus, stored: Stored) -> None:
    complete = tus.create_with(b"hello", Upload_Concat="partial")
    (unfinished,) = parts_of(tus, 6)
    tus.patch(unfinished, 0, b" wo")
    url = tus.location(tus.concatenate(complete, unfinished))
    assert tus.patch(unfinished, 3, b"rld").status == 204
    assert tus.settled_offset(url, 11) == 11
    assert stored(url) in (b"hello world", None)


# Concatenation: 403 to PATCH requests, done or not.
def test_an_incomplete_final_upload_accepts_no_bytes(tus: Tus) -> None:
    (unfinished,) = parts_of(tus, 5)
    url = tus.location(tus.concatenate(unfinished))
    assert tus.patch(url, 0, b"hello").status == 403
    assert tus.offset(unfinished) == 0


# Concatenation: the length is sent once it can be calculated.
@pytest.mark.extension("creation-defer-length")
def test_the_length_is_known_once_those_of_all_parts_are(tus: Tus, stored: Stored) -> None:
    known, deferred = tus.create(5, Upload_Concat="partial"), tus.create(Upload_Concat="partial")
    url = tus.location(tus.concatenate(known, deferred))
    assert "Upload-Length" not in tus.head(url)
    assert tus.patch(deferred, 0, b" wor", Upload_Length=6).status == 204
    assert tus.head(url)["Upload-Length"] == "11"
    tus.patch(deferred, 4, b"ld")
    tus.patch(known, 0, b"hello")
    assert tus.settled_offset(url, 11) == 11
    assert stored(url) in (b"hello world", None)
