"""tus core: versions, OPTIONS and method override."""

from __future__ import annotations

import re

import pytest

from tests.conformance.tus_client import CHUNK_TYPE, GONE, Tus, headers_of
from tests.conformance.wire import exchange, exchange_chunked

pytestmark = pytest.mark.e2e

PATCH_FIELDS: dict[str, str | int | None] = {"Upload_Offset": 0, "Content_Type": CHUNK_TYPE}

NEEDS = {
    "creation-with-upload": "creation",
    "creation-defer-length": "creation",
    "checksum-trailer": "checksum",
    "concatenation-unfinished": "concatenation",
}
"""Extensions that depend on another one."""


# Core, OPTIONS: 204 or 200, with Tus-Version.
def test_options_lists_the_versions_of_the_server(tus: Tus) -> None:
    assert tus.options.status in {200, 204}
    assert "1.0.0" in tus.options.items("Tus-Version")


# Core, OPTIONS: "the Server MUST ignore the header".
def test_options_ignores_the_version_of_the_client(tus: Tus) -> None:
    reply = tus.request("OPTIONS", tus.url, Tus_Resumable="9.9.9")
    assert reply.status in {200, 204}
    assert "Tus-Version" in reply


# Tus-Extension: a comma-separated list. Clients in the field split at commas and trim nothing.
def test_extensions_are_listed_without_spaces(tus: Tus) -> None:
    assert re.fullmatch(r"[a-z-]+(,[a-z-]+)*", tus.options["Tus-Extension"])


# Creation With Upload: MUST NOT be offered without Creation; likewise for the others.
@pytest.mark.parametrize(("extension", "base"), NEEDS.items())
def test_an_extension_comes_with_the_one_it_builds_on(tus: Tus, extension: str, base: str) -> None:
    assert extension not in tus.extensions or base in tus.extensions


# Tus-Max-Size: a non-negative integer, where there is a limit.
def test_the_largest_size_is_a_number(tus: Tus) -> None:
    assert re.fullmatch(r"\d+", tus.options.get("Tus-Max-Size") or "0")


# Tus-Resumable: 412 with Tus-Version for a version that the server does not support.
@pytest.mark.parametrize("version", ["0.2.2", "2.0.0", "1.0", "x"])
@pytest.mark.parametrize("method", ["HEAD", "PATCH"])
def test_an_unknown_version_is_refused_with_412_and_the_known_ones(
    tus: Tus, method: str, version: str
) -> None:
    url = tus.create(5)
    fields = PATCH_FIELDS if method == "PATCH" else {}
    reply = tus.request(method, url, Tus_Resumable=version, **fields)
    assert reply.status == 412
    assert "1.0.0" in reply.items("Tus-Version")


# Tus-Resumable: the same holds for creation and termination.
@pytest.mark.extension("creation")
def test_creation_in_an_unknown_version_is_refused_with_412(tus: Tus) -> None:
    reply = tus.post(Upload_Length=5, Tus_Resumable="0.2.2")
    assert reply.status == 412
    assert "1.0.0" in reply.items("Tus-Version")
    assert "Location" not in reply


# Tus-Resumable: "the Server MUST NOT process the request".
@pytest.mark.extension("termination")
def test_termination_in_an_unknown_version_terminates_nothing(tus: Tus) -> None:
    url = tus.create(5)
    reply = tus.delete(url, Tus_Resumable="0.2.2")
    assert reply.status == 412
    assert "1.0.0" in reply.items("Tus-Version")
    assert tus.offset(url) == 0


# Tus-Resumable: MUST be in every request but OPTIONS.
@pytest.mark.parametrize("method", ["HEAD", "PATCH"])
def test_a_request_without_a_version_is_refused_with_412(tus: Tus, method: str) -> None:
    url = tus.create(5)
    fields = PATCH_FIELDS if method == "PATCH" else {}
    reply = tus.request(method, url, Tus_Resumable=None, **fields)
    assert reply.status == 412
    assert "1.0.0" in reply.items("Tus-Version")


# Tus-Resumable: "the Server MUST NOT process the request".
@pytest.mark.parametrize("version", ["0.2.2", None])
def test_bytes_sent_in_an_unknown_version_are_not_accepted(tus: Tus, version: str | None) -> None:
    url = tus.create(5)
    assert tus.patch(url, 0, b"hello", Tus_Resumable=version).status == 412
    assert tus.offset(url) == 0


# Tus-Resumable: MUST be in every response, and is the server's version.
def test_every_answer_has_the_version(tus: Tus) -> None:
    url = tus.create(5)
    replies = [
        tus.post(Upload_Length=5),
        tus.post(),
        tus.head(url),
        tus.head(url + "0"),
        tus.patch(url, 1, b"hello"),
        tus.patch(url, 0, b"hello", Content_Type="text/plain"),
        tus.patch(url, 0, b"hello"),
        tus.request("HEAD", url, Tus_Resumable="9.9.9"),
    ]
    assert [(reply.status, reply.get("Tus-Resumable")) for reply in replies] == [
        (reply.status, "1.0.0") for reply in replies
    ]


# X-HTTP-Method-Override: MUST be interpreted as the request's method.
def test_a_post_can_stand_for_patch(tus: Tus) -> None:
    url = tus.create(5)
    reply = tus.request("POST", url, b"hello", X_HTTP_Method_Override="PATCH", **PATCH_FIELDS)
    assert (reply.status, reply["Upload-Offset"]) == (204, "5")


# X-HTTP-Method-Override; what the Java client sends for every chunk.
def test_a_post_that_stands_for_patch_may_have_a_chunked_body(tus: Tus) -> None:
    url = tus.create(11)
    fields = headers_of(Upload_Offset=0, Content_Type=CHUNK_TYPE, X_HTTP_Method_Override="PATCH")
    reply = exchange_chunked("POST", url, fields, [b"hello", b" world"])
    assert (reply.status, reply["Upload-Offset"]) == (204, "11")


# X-HTTP-Method-Override: MUST be interpreted as the request's method.
def test_a_post_can_stand_for_head(tus: Tus) -> None:
    url = tus.create(5)
    reply = tus.request("POST", url, X_HTTP_Method_Override="HEAD")
    assert reply.status in {200, 204}
    assert (reply["Upload-Offset"], reply["Upload-Length"]) == ("0", "5")


# X-HTTP-Method-Override: MUST be interpreted as the request's method.
@pytest.mark.extension("termination")
def test_a_post_can_stand_for_delete(tus: Tus) -> None:
    url = tus.create(5)
    assert tus.request("POST", url, X_HTTP_Method_Override="DELETE").status == 204
    assert tus.head(url).status in GONE


# X-HTTP-Method-Override: MUST be interpreted as the request's method.
def test_a_post_can_stand_for_options(tus: Tus) -> None:
    reply = tus.request("POST", tus.url, X_HTTP_Method_Override="OPTIONS")
    assert reply.status in {200, 204}
    assert "1.0.0" in reply.items("Tus-Version")


# X-HTTP-Method-Override: "The actual method of the request MUST be ignored."
def test_the_override_wins_over_any_method(tus: Tus) -> None:
    url = tus.create(5)
    reply = tus.patch(url, 0, b"hello", X_HTTP_Method_Override="HEAD")
    assert reply.status in {200, 204}
    assert reply["Upload-Length"] == "5"
    assert tus.offset(url) == 0


# RFC 9110, section 15.5.6: a method that the resource does not have.
def test_a_method_outside_the_protocol_is_refused(tus: Tus) -> None:
    reply = exchange("TRACE", tus.url, headers_of())
    assert 400 <= reply.status < 500 or reply.status == 501
