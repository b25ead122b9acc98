"""tus extension: creation-defer-length."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Stored
from tests.conformance.tus_client import Tus

pytestmark = [pytest.mark.e2e, pytest.mark.extension("creation-defer-length")]


# Creation, POST: "MUST set Upload-Defer-Length: 1 in all responses to HEAD requests".
def test_a_deferred_length_is_marked_as_deferred(tus: Tus) -> None:
    reply = tus.head(tus.create())
    assert (reply["Upload-Defer-Length"], reply["Upload-Offset"]) == ("1", "0")
    assert "Upload-Length" not in reply


# Upload-Defer-Length: "If the length of an upload is not deferred, this header MUST be omitted."
def test_a_known_length_is_not_marked_as_deferred(tus: Tus) -> None:
    assert "Upload-Defer-Length" not in tus.head(tus.create(5))


# Creation, POST: 400 for any value but 1.
@pytest.mark.parametrize("value", ["", "0", "2", "-1", "true", "01", "1.0"])
def test_any_value_but_1_is_refused(tus: Tus, value: str) -> None:
    assert tus.post(Upload_Defer_Length=value).status == 400


# Creation, POST: bytes may arrive while the length is unknown.
def test_the_length_stays_deferred_until_it_is_sent(tus: Tus) -> None:
    url = tus.create()
    assert tus.patch(url, 0, b"hello")["Upload-Offset"] == "5"
    reply = tus.head(url)
    assert (reply["Upload-Defer-Length"], reply["Upload-Offset"]) == ("1", "5")
    assert "Upload-Length" not in reply


# Creation, POST: Upload-Length comes with a PATCH request once it is known.
def test_the_length_may_come_with_the_last_bytes(tus: Tus, stored: Stored) -> None:
    url = tus.create()
    tus.patch(url, 0, b"hello")
    assert tus.patch(url, 5, b" world", Upload_Length=11)["Upload-Offset"] == "11"
    reply = tus.head(url)
    assert (reply["Upload-Length"], reply["Upload-Offset"]) == ("11", "11")
    assert "Upload-Defer-Length" not in reply
    assert stored(url) in (b"hello world", None)


# Creation, POST: the length may arrive before the last bytes.
def test_the_length_may_come_before_the_last_bytes(tus: Tus) -> None:
    url = tus.create()
    tus.patch(url, 0, b"hello", Upload_Length=11)
    reply = tus.head(url)
    assert (reply["Upload-Length"], reply["Upload-Offset"]) == ("11", "5")
    assert "Upload-Defer-Length" not in reply


# Creation, POST: a PATCH request without bytes may have the length.
def test_the_length_may_come_after_the_last_bytes(tus: Tus, stored: Stored) -> None:
    url = tus.create()
    tus.patch(url, 0, b"hello")
    assert tus.patch(url, 5, Upload_Length=5).status == 204
    reply = tus.head(url)
    assert (reply["Upload-Length"], reply["Upload-Offset"]) == ("5", "5")
    assert stored(url) in (b"hello", None)


# Creation, POST: "Once set the length MUST NOT be changed."
def test_the_length_cannot_be_changed(tus: Tus) -> None:
    url = tus.create()
    tus.patch(url, 0, b"hello", Upload_Length=11)
    assert 400 <= tus.patch(url, 5, b" wor", Upload_Length=12).status < 500
    reply = tus.head(url)
    assert (reply["Upload-Length"], reply["Upload-Offset"]) == ("11", "5")


# Creation, POST: a length below the received bytes is invalid.
def test_a_length_below_the_offset_is_refused(tus: Tus) -> None:
    url = tus.create()
    tus.patch(url, 0, b"hello")
    assert 400 <= tus.patch(url, 5, Upload_Length=4).status < 500
    reply = tus.head(url)
    assert (reply.get("Upload-Length"), reply["Upload-Offset"]) == (None, "5")


# Upload-Length: MUST be a non-negative integer.
@pytest.mark.parametrize("length", ["-1", "ten", "5.0"])
def test_a_late_length_that_is_not_a_number_is_refused(tus: Tus, length: str) -> None:
    url = tus.create()
    assert 400 <= tus.patch(url, 0, b"hello", Upload_Length=length).status < 500
    reply = tus.head(url)
    assert (reply["Upload-Defer-Length"], reply["Upload-Offset"]) == ("1", "0")


# Tus-Max-Size: holds whenever the length is sent; the status is fixed only for creation.
def test_a_late_length_beyond_the_largest_size_is_refused(tus: Tus) -> None:
    largest = tus.options.get("Tus-Max-Size")
    if largest is None:
        pytest.skip("not announced: Tus-Max-Size")
    url = tus.create()
    assert tus.patch(url, 0, b"hello", Upload_Length=int(largest) + 1).status in {400, 413}
    assert tus.head(url)["Upload-Defer-Length"] == "1"
