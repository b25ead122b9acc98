"""tus extension: creation, metadata."""

from __future__ import annotations

import pytest

from tests.conformance.tus_client import Tus, base64_of

pytestmark = [pytest.mark.e2e, pytest.mark.extension("creation")]

NAME = base64_of("world_domination_plan.pdf")

WELL_FORMED = {
    "one pair": f"filename {NAME}",
    "a key alone": f"filename {NAME},is_confidential",
    "a key with an empty value": f"empty ,filename {NAME}",
    "keys that are not sorted": f"zebra {base64_of('z')},filename {NAME},apple {base64_of('a')}",
    "keys of many characters": f"a-b_c.d!#$%&'*+^`|~:;/?@[]<>= {base64_of('x')}",
    "keys that differ in case": f"name {base64_of('a')},Name {base64_of('b')}",
    "binary values": f"digest {base64_of(bytes(range(256)))}",
    "a name that is not ASCII": f"filename {base64_of('видео 影片 🎬.mp4')}",
}

MALFORMED = {
    "not base64": "filename not*base64",
    "base64 cut short": "filename Zm9vYmF",
    "a key twice": f"filename {NAME},filename {NAME}",
    "an empty pair": f"filename {NAME},,type {NAME}",
    "a comma at the end": f"filename {NAME},",
    "two values": f"filename {NAME} {NAME}",
}


# Creation, POST: "responses to HEAD requests MUST include the Upload-Metadata header and its value
# as specified by the Client".
@pytest.mark.parametrize("metadata", WELL_FORMED.values(), ids=list(WELL_FORMED))
def test_metadata_is_returned_unchanged(tus: Tus, metadata: str) -> None:
    url = tus.create(5, Upload_Metadata=metadata)
    assert tus.head(url)["Upload-Metadata"] == metadata


# The same, once no byte is missing.
def test_metadata_survives_completion(tus: Tus) -> None:
    metadata = f"zebra {base64_of('z')},filename {NAME}"
    url = tus.create_with(b"hello", Upload_Metadata=metadata)
    assert tus.head(url)["Upload-Metadata"] == metadata


# Upload-Metadata: keys are unique, values are Base64, pairs are divided by commas.
@pytest.mark.parametrize("metadata", MALFORMED.values(), ids=list(MALFORMED))
def test_malformed_metadata_is_refused(tus: Tus, metadata: str) -> None:
    reply = tus.post(Upload_Length=5, Upload_Metadata=metadata)
    assert reply.status == 400
    assert "Location" not in reply


# Upload-Metadata: "to avoid header smuggling".
@pytest.mark.parametrize("key", ["filename", "name", "filetype", "type", "other"])
def test_a_value_never_becomes_a_header(tus: Tus, key: str) -> None:
    value = base64_of("a\r\nX-Smuggled: 1\r\n\r\nb")
    reply = tus.post(Upload_Length=5, Upload_Metadata=f"{key} {value}")
    assert "X-Smuggled" not in reply
    if reply.status == 201:
        assert "X-Smuggled" not in tus.head(tus.location(reply))
    else:
        assert reply.status == 400


# Upload-Metadata: a file's name is not a path.
@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "..", "a/b", "C:\\x", "\0"])
def test_a_strange_file_name_does_no_harm(tus: Tus, name: str) -> None:
    reply = tus.post(Upload_Length=5, Upload_Metadata=f"filename {base64_of(name)}")
    assert reply.status in {201, 400}
    if reply.status == 201:
        url = tus.location(reply)
        assert tus.patch(url, 0, b"hello").status == 204
        assert tus.offset(url) == 5
