"""tus extension: expiration."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.conformance.tus_client import CHUNK_TYPE, GONE, Tus
from tests.conformance.wire import Reply
from tests.live_server import running_server

pytestmark = [pytest.mark.e2e, pytest.mark.extension("expiration")]

HTTP_DATE = "%a, %d %b %Y %H:%M:%S GMT"
"""The only format that may be sent (RFC 9110, section 5.6.7)."""

PATIENCE_SECONDS = 10
"""Tests do not wait for a server whose uploads live longer."""

LAG_SECONDS = 60
"""An upload may outlive its expiry by this: "the Server MAY remove unfinished uploads"."""


def expiry_of(reply: Reply) -> datetime:
    """The time in `Upload-Expires`."""
    text = reply["Upload-Expires"]
    time_told = datetime.strptime(text, HTTP_DATE).replace(tzinfo=UTC)
    assert time_told.strftime(HTTP_DATE) == text
    return time_told


@pytest.fixture(scope="module")
def forgetful(tus: Tus, is_own: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tus]:
    """A server whose uploads live for seconds: ours configured so, or the given one."""
    if not is_own:
        if "expiration" not in tus.extensions:
            pytest.skip("not announced: expiration")
        lifetime = expiry_of(tus.post(Upload_Length=5)) - datetime.now(UTC)
        if lifetime.total_seconds() > PATIENCE_SECONDS:
            pytest.skip(f"not waited for: uploads live for {lifetime}")
        yield tus
        return
    with running_server(tmp_path_factory.mktemp("forgetful"), SLUICE_EXPIRY_SECONDS="2") as server:
        yield Tus(f"{server.url}/tus/")


def wait_until_gone(tus: Tus, url: str, expiry: datetime) -> Reply:
    """The answer to HEAD once the upload has expired."""
    while (reply := tus.head(url)).status not in GONE:
        late = (datetime.now(UTC) - expiry).total_seconds()
        assert late < LAG_SECONDS, f"{late} s after its time: {reply}"
        time.sleep(0.2)
    return reply


def created_whole(tus: Tus) -> str:
    """The URL of a complete upload, if possible made by one request: a second may come too late."""
    if "creation-with-upload" not in tus.extensions:
        return tus.create_with(b"hello")
    return tus.location(tus.post(b"hello", Upload_Length=5, Content_Type=CHUNK_TYPE))


# Upload-Expires: MUST be in the answer to POST if it is known at creation; RFC 9110 date.
def test_the_answer_to_a_creation_says_when_the_upload_expires(tus: Tus) -> None:
    assert expiry_of(tus.post(Upload_Length=5)) > datetime.now(UTC)


# Upload-Expires: "MUST be included in every PATCH response if the upload is going to expire".
def test_the_answer_to_each_chunk_says_when_the_upload_expires(tus: Tus) -> None:
    url = tus.create(5)
    first = expiry_of(tus.patch(url, 0, b"he"))
    assert expiry_of(tus.patch(url, 2, b"l")) >= first


# Upload-Expires, with creation-with-upload.
@pytest.mark.extension("creation-with-upload")
def test_the_answer_to_a_creation_with_bytes_says_when_the_upload_expires(tus: Tus) -> None:
    reply = tus.post(b"he", Upload_Length=5, Content_Type=CHUNK_TYPE)
    assert expiry_of(reply) > datetime.now(UTC)


# Upload-Expires: 404 or 410 for an upload that was removed; it cannot be resumed.
def test_an_expired_upload_cannot_be_resumed(forgetful: Tus) -> None:
    created = forgetful.post(Upload_Length=5)
    url = forgetful.location(created)
    assert "Upload-Offset" not in wait_until_gone(forgetful, url, expiry_of(created))
    assert forgetful.patch(url, 0, b"hello").status in {404, 410}


# Expiration: "remove unfinished uploads"; a finished one stays.
def test_a_complete_upload_does_not_expire(forgetful: Tus) -> None:
    complete, unfinished = created_whole(forgetful), forgetful.post(Upload_Length=5)
    wait_until_gone(forgetful, forgetful.location(unfinished), expiry_of(unfinished))
    assert forgetful.offset(complete) == 5
