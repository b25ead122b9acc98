"""tus extension: concatenation."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.conformance.conftest import Stored
from tests.conformance.tus_client import GONE, Tus, base64_of

pytestmark = [pytest.mark.e2e, pytest.mark.extension("concatenation")]

MALFORMED = ["final", "final;", "finale;x", "PARTIAL", "partial;x", "none", "final; "]

NAME = f"filename {base64_of('whole.mp4')}"


def part(tus: Tus, content: bytes) -> str:
    """The URL of a partial upload that has all of its bytes."""
    return tus.create_with(content, Upload_Concat="partial")


# Concatenation: HEAD MUST have Upload-Offset and Upload-Concat for a partial upload.
def test_a_partial_upload_is_marked_as_partial(tus: Tus) -> None:
    url = tus.create(5, Upload_Concat="partial")
    tus.patch(url, 0, b"he")
    reply = tus.head(url)
    assert reply["Upload-Concat"] == "partial"
    assert (reply["Upload-Offset"], reply["Upload-Length"]) == ("2", "5")


# Concatenation: offset and length of a partial upload that has all of its bytes.
def test_a_complete_partial_upload_is_marked_as_partial(tus: Tus) -> None:
    reply = tus.head(part(tus, b"hello"))
    assert reply["Upload-Concat"] == "partial"
    assert (reply["Upload-Offset"], reply["Upload-Length"]) == ("5", "5")


# Upload-Concat: only partial and final uploads have it.
def test_an_ordinary_upload_has_no_concat_header(tus: Tus) -> None:
    assert "Upload-Concat" not in tus.head(tus.create(5))


# Concatenation: "The length of the final upload MUST be the sum of the length of all partial
# uploads"; offset and length "MUST be equal".
def test_a_final_upload_is_its_parts_in_the_order_of_the_list(tus: Tus, stored: Stored) -> None:
    world, hello = part(tus, b" world"), part(tus, b"hello")
    url = tus.location(tus.concatenate(hello, world))
    assert tus.settled_offset(url, 11) == 11
    assert tus.head(url)["Upload-Length"] == "11"
    assert stored(url) in (b"hello world", None)


# Concatenation: HEAD MUST include Upload-Concat "and its value as received".
def test_a_final_upload_lists_its_parts_as_they_were_written(tus: Tus) -> None:
    first, second = part(tus, b"hello"), part(tus, b" world")
    url = tus.location(tus.concatenate(first, second))
    assert tus.head(url)["Upload-Concat"] == f"final;{first} {second}"


# Upload-Concat: "The partial uploads URLs MAY be absolute or relative".
def test_the_parts_may_be_named_by_their_paths(tus: Tus, stored: Stored) -> None:
    first, second = (urlsplit(part(tus, content)).path for content in (b"hello", b" world"))
    url = tus.location(tus.concatenate(first, second))
    assert tus.settled_offset(url, 11) == 11
    assert tus.head(url)["Upload-Concat"] == f"final;{first} {second}"
    assert stored(url) in (b"hello world", None)


# Concatenation: the same partial upload "MAY be present multiple times".
def test_a_part_may_be_listed_more_than_once(tus: Tus, stored: Stored) -> None:
    first, second = part(tus, b"ho"), part(tus, b"hi")
    url = tus.location(tus.concatenate(first, first, second, first))
    assert tus.settled_offset(url, 8) == 8
    assert stored(url) in (b"hohohiho", None)


# Concatenation: it "MAY be used in multiple upload creation requests", but the server MAY have
# deleted it.
def test_a_part_of_two_final_uploads_is_whole_in_both_or_gone(tus: Tus, stored: Stored) -> None:
    shared = part(tus, b"hello")
    first = tus.location(tus.concatenate(shared))
    reply = tus.concatenate(shared, shared)
    assert stored(first) in (b"hello", None)
    assert reply.status in {201, 400, 404, 410}
    if reply.status == 201:
        assert tus.settled_offset(tus.location(reply), 10) == 10


# Concatenation: one part makes a final upload too, and a part may be empty.
def test_empty_parts_are_accepted(tus: Tus, stored: Stored) -> None:
    empty, full = part(tus, b""), part(tus, b"hello")
    url = tus.location(tus.concatenate(empty, full, empty))
    assert tus.settled_offset(url, 5) == 5
    assert stored(url) in (b"hello", None)


# Concatenation: "MUST respond with the 403 Forbidden status to PATCH requests against a final
# upload URL and MUST NOT modify the final or its partial uploads".
def test_a_final_upload_accepts_no_bytes(tus: Tus, stored: Stored) -> None:
    url = tus.location(tus.concatenate(part(tus, b"hello"), part(tus, b" world")))
    assert tus.settled_offset(url, 11) == 11
    assert [tus.patch(url, offset, b"!").status for offset in (0, 11)] == [403, 403]
    assert tus.offset(url) == 11
    assert stored(url) in (b"hello world", None)


# Concatenation: the parts' metadata SHALL NOT be transferred to the final upload.
def test_a_final_upload_has_only_its_own_metadata(tus: Tus) -> None:
    piece = tus.create_with(b"hello", Upload_Concat="partial", Upload_Metadata="piece MQ==")
    named = tus.location(tus.concatenate(piece, Upload_Metadata=NAME))
    assert tus.head(named)["Upload-Metadata"] == NAME


# Concatenation: the same if the final upload has none.
def test_a_final_upload_without_metadata_does_not_inherit_that_of_its_parts(tus: Tus) -> None:
    piece = tus.create_with(b"hello", Upload_Concat="partial", Upload_Metadata="piece MQ==")
    assert "piece" not in (
        tus.head(tus.location(tus.concatenate(piece))).get("Upload-Metadata") or ""
    )


# Upload-Concat: "partial", or "final;" and URLs.
@pytest.mark.parametrize("value", MALFORMED)
def test_a_malformed_list_is_refused(tus: Tus, value: str) -> None:
    reply = tus.post(Upload_Concat=value, Upload_Length=None if "final" in value else 5)
    assert reply.status == 400
    assert "Location" not in reply


# Concatenation: the parts are partial uploads of this server only.
@pytest.mark.parametrize(
    "reference",
    ["{url}" + "0" * 32, "/etc/passwd", "../../../etc/passwd", "{url}..%2f..%2fetc%2fpasswd",
     "file:///etc/passwd", "a%00b"],
)  # fmt: skip
def test_a_part_of_another_server_is_refused(tus: Tus, reference: str) -> None:
    reply = tus.concatenate(part(tus, b"hello"), reference.format(url=tus.url))
    assert 400 <= reply.status < 500
    assert "Location" not in reply


# Upload-Concat: a list of partial uploads. Refusing other uploads is not demanded in so many
# words; an upload that is complete for its client must not vanish into another one.
@pytest.mark.own
def test_an_ordinary_upload_is_refused_as_a_part(tus: Tus, stored: Stored) -> None:
    ordinary = tus.create_with(b"hello")
    assert 400 <= tus.concatenate(ordinary).status < 500
    assert stored(ordinary) in (b"hello", None)


# Concatenation: a terminated part does not count.
@pytest.mark.extension("termination")
def test_a_terminated_part_is_refused(tus: Tus) -> None:
    gone = part(tus, b"hello")
    tus.delete(gone)
    assert tus.head(gone).status in GONE
    assert 400 <= tus.concatenate(gone).status < 500


# Concatenation: without concatenation-unfinished the parts must be complete.
def test_unfinished_parts_need_their_own_extension(tus: Tus) -> None:
    unfinished = tus.create(5, Upload_Concat="partial")
    status = tus.concatenate(unfinished).status
    if "concatenation-unfinished" in tus.extensions:
        assert status == 201
    else:
        assert 400 <= status < 500
