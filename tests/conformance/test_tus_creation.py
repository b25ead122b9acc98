"""tus extension: creation."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Stored
from tests.conformance.tus_client import Tus

pytestmark = [pytest.mark.e2e, pytest.mark.extension("creation")]

MALFORMED_LENGTHS = ["", "-1", "1.0", "0x10", "ten", "1 0", "1,1", "9" * 40]


# Creation, POST: 201 with Location.
def test_an_upload_is_created_and_its_url_sent(tus: Tus) -> None:
    url = tus.location(tus.post(Upload_Length=5))
    assert tus.head(url).status in {200, 204}


# Creation, POST: the request has no body, and a client may leave Content-Length out.
def test_an_upload_is_created_without_a_content_length(tus: Tus) -> None:
    reply = tus.request("POST", tus.url, Upload_Length=5, Content_Length=0)
    assert tus.offset(tus.location(reply)) == 0


# Creation: each request makes its own resource.
def test_two_requests_create_two_uploads(tus: Tus) -> None:
    first, second = tus.create(5), tus.create(5)
    assert first != second
    tus.patch(first, 0, b"hello")
    assert (tus.offset(first), tus.offset(second)) == (5, 0)


# Creation, POST: "Such an upload is immediately complete after its creation".
def test_an_empty_upload_is_complete_at_once(tus: Tus, stored: Stored) -> None:
    url = tus.create(0)
    reply = tus.head(url)
    assert (reply["Upload-Offset"], reply["Upload-Length"]) == ("0", "0")
    assert stored(url) in (b"", None)


# Creation, POST: MUST include Upload-Length or Upload-Defer-Length.
def test_an_upload_without_a_length_or_its_deferral_is_refused(tus: Tus) -> None:
    assert 400 <= tus.post().status < 500


# Upload-Length: MUST be a non-negative integer.
@pytest.mark.parametrize("length", MALFORMED_LENGTHS)
def test_a_length_that_is_not_a_number_is_refused(tus: Tus, length: str) -> None:
    reply = tus.post(Upload_Length=length)
    assert reply.status in {400, 413}
    assert "Location" not in reply


# Creation, POST: "one of the following headers".
def test_a_length_cannot_be_both_known_and_deferred(tus: Tus) -> None:
    assert tus.post(Upload_Length=5, Upload_Defer_Length=1).status == 400


# Creation, POST: 413 beyond Tus-Max-Size.
def test_an_upload_beyond_the_largest_size_is_refused_with_413(tus: Tus) -> None:
    largest = tus.options.get("Tus-Max-Size")
    if largest is None:
        pytest.skip("not announced: Tus-Max-Size")
    reply = tus.post(Upload_Length=int(largest) + 1)
    assert reply.status == 413
    assert "Location" not in reply
