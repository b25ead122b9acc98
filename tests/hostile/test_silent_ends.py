"""Connections that go silent in the last bytes of a body, and who waits for them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest

from tests.dropzone_client import (
    ChunkedFile,
    chunk_request,
    random_bytes,
    read_response,
    stored_sha256,
)
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

CONTENT = random_bytes(300_000, 17)
SOON_SECONDS = 9.0
"""Less than the time that the rest of an unwanted body is waited for: 10 s and 30 s."""


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that accepts bodies at any rate."""
    folder = tmp_path_factory.mktemp("patient")
    options = {"SLUICE_TEST_CONSTANTS": "min_bytes_per_second=0", **NO_FFMPEG}
    with running_server(folder, **options) as server:
        yield server


def without_closing_boundary(server: Server, file: ChunkedFile) -> bytes:
    return chunk_request(server, file, 0)[:-8]


def without_last_chunk(_server: Server, file: ChunkedFile) -> bytes:
    fields = "&".join(f"{name}={value}" for name, value in file.fields(0).items())
    head = f"POST /upload?{fields}&filename=film.mp4 HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Transfer-Encoding: chunked\r\n\r\n{len(CONTENT):x}\r\n"
    return head.encode() + CONTENT + b"\r\n"


@pytest.mark.parametrize("unfinished", [without_closing_boundary, without_last_chunk])
def test_a_returning_client_takes_over_at_once(
    patient: Server, unfinished: Callable[[Server, ChunkedFile], bytes]
) -> None:
    file = ChunkedFile(CONTENT, len(CONTENT))
    with patient.connect() as silent, patient.connect() as again:
        silent.sendall(unfinished(patient, file))
        written = patient.staging.rglob
        wait_until(
            lambda: any(path.stat().st_blocks * 512 >= len(CONTENT) for path in written("*")),
            "the bytes are in the file",
        )
        time.sleep(0.3)
        began = time.monotonic()
        again.sendall(chunk_request(patient, file, 0))
        status, _, body = read_response(again)
        assert (status, time.monotonic() - began < SOON_SECONDS) == (200, True), body
    assert stored_sha256(patient, file_id(body)) == file.sha256


def file_id(body: bytes) -> str:
    document: dict[str, str] = json.loads(body)
    return document["id"]
