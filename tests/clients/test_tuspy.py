"""tuspy, the Python client of the tus project."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tusclient.client import TusClient

from tests.client.bad_line import BadLine, Line, sometimes
from tests.dropzone_client import stored_sha256
from tests.live_server import Server

CHUNK_BYTES = 3_000_000
LARGE_CHUNK_BYTES = 6_000_000

pytestmark = pytest.mark.e2e


@pytest.fixture
def uploader_of(film: Path) -> Iterator[Callable[..., Any]]:
    """Makes uploaders of the film that retry at once; they do not close their files."""
    with ExitStack() as stack:

        def make(server_url: str, **options: Any) -> Any:
            settings = {"chunk_size": CHUNK_BYTES, "retries": 5, "retry_delay": 0.1, **options}
            stream = stack.enter_context(film.open("rb"))
            metadata = {"filename": film.name}
            client = TusClient(f"{server_url}/tus/")
            return client.uploader(file_stream=stream, metadata=metadata, **settings)

        yield make


def check(server: Server, uploader: Any, film: Path) -> None:
    upload_id = uploader.url.rpartition("/")[2]
    assert server.get(f"/api/videos/{upload_id}").json()["filename"] == film.name
    digest = hashlib.sha256(film.read_bytes()).hexdigest()
    assert stored_sha256(server, upload_id) == digest


@pytest.mark.parametrize("upload_checksum", [False, True])
def test_it_uploads_in_chunks(
    server: Server, film: Path, uploader_of: Callable[..., Any], upload_checksum: bool
) -> None:
    uploader = uploader_of(server.url, upload_checksum=upload_checksum)
    uploader.upload()
    check(server, uploader, film)


def test_it_resumes_where_another_run_left_off(
    server: Server, film: Path, uploader_of: Callable[..., Any]
) -> None:
    first = uploader_of(server.url)
    first.upload(stop_at=CHUNK_BYTES)
    second = uploader_of(server.url, url=first.url)
    assert second.offset == CHUNK_BYTES
    second.upload()
    check(server, second, film)


@pytest.mark.parametrize("fault", [Line.cut_at_server_first, Line.reset_after_server])
def test_it_resumes_within_an_interrupted_chunk(
    server: Server,
    line: BadLine,
    film: Path,
    uploader_of: Callable[..., Any],
    fault: Callable[[Line], None],
) -> None:
    line.on_body = sometimes(fault, after=1_000_000, times=3, path="/tus/")
    uploader = uploader_of(line.url, chunk_size=LARGE_CHUNK_BYTES)
    uploader.upload()
    check(server, uploader, film)
    offsets = [request_offset(request.headers) for request in line.requests if request.body]
    assert len(offsets) == 2 + 3
    assert sum(offset not in {0, LARGE_CHUNK_BYTES} for offset in offsets) >= 2


def request_offset(headers: str) -> int:
    name = "upload-offset: "
    (found,) = [text for text in headers.lower().splitlines() if text.startswith(name)]
    return int(found.removeprefix(name))
