"""Uploads whose bytes go straight from the client to the bucket of the server."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.cells import direct_part_number
from sluice_client import Client, Interrupted
from tests.client.bad_line import BadLine, Line, Request, bad_line, sometimes
from tests.client.conftest import MakeFile
from tests.live_server import Server, running_server
from tests.s3_servers import S3Server, new_prefix

pytestmark = pytest.mark.e2e

MIB = 1024 * 1024
CELL = 20 * MIB
SIZE = CELL + 6 * MIB
SIGNED = "X-Amz-Signature"
"""In the URLs that the server signs for clients."""

MakeClient = Callable[..., Client]


@pytest.fixture(scope="module")
def line_to_bucket(s3_server: S3Server) -> Iterator[BadLine]:
    """The line to the bucket, of the server and of its clients."""
    with bad_line(s3_server.port) as running:
        yield running


@pytest.fixture(scope="module")
def direct_server(
    s3_server: S3Server, line_to_bucket: BadLine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    options = s3_server.access.settings(new_prefix(), endpoint=line_to_bucket.url)
    folder = tmp_path_factory.mktemp("direct")
    with running_server(folder, **options, SLUICE_DIRECT_UPLOADS="1") as running:
        yield running


@pytest.fixture
def bucket(line_to_bucket: BadLine) -> BadLine:
    """The same line, good until told otherwise."""
    line_to_bucket.heal()
    return line_to_bucket


@pytest.fixture
def line(direct_server: Server) -> Iterator[BadLine]:
    """The line to the server."""
    with bad_line(direct_server.port) as running:
        yield running


def sent_directly(bucket: BadLine) -> int:
    """Bytes of the bodies that clients sent to the bucket."""
    return sum(request.body for request in bucket.requests if SIGNED in request.path)


def refuse(times: int) -> Callable[[Line, Request], None]:
    """The bucket refuses so many of the clients' requests."""

    def forbid(line: Line) -> None:
        line.answer("403 Forbidden")

    fault = sometimes(forbid, after=0, times=times, path="/")
    return lambda line, request: fault(line, request) if SIGNED in request.path else None


def assert_same(client: Client, upload_id: str, path: Path) -> None:
    found = client.fetch(upload_id, path.with_suffix(".back"))
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_bytes_of_a_file_never_pass_through_the_server(
    line: BadLine, bucket: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    path = make_file(size=SIZE)
    with closing(make_client(line.url, api_key="not-for-the-bucket")) as client:
        uploaded = client.upload(path)
        assert (uploaded.sent, sent_directly(bucket), line.sent()) == (SIZE, SIZE, 0)
        assert_same(client, uploaded.id, path)
    signed = [request for request in bucket.requests if SIGNED in request.path]
    assert not any("authorization" in request.headers.lower() for request in signed)


def test_a_bucket_that_refuses_is_left_alone(
    line: BadLine, bucket: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    bucket.on_head = refuse(times=100)
    path, client = make_file(size=SIZE), make_client(line.url)
    uploaded = client.upload(path)
    assert (sent_directly(bucket), line.sent()) == (0, SIZE)
    assert_same(client, uploaded.id, path)


def test_a_url_that_the_bucket_refuses_is_asked_anew(
    line: BadLine, bucket: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    bucket.on_head = refuse(times=1)
    path, client = make_file(size=SIZE), make_client(line.url)
    uploaded = client.upload(path)
    assert (sent_directly(bucket), line.sent()) == (SIZE, 0)
    assert_same(client, uploaded.id, path)


def test_the_next_run_sends_only_the_cells_that_are_missing(
    direct_server: Server, bucket: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    path, stopped = make_file(size=SIZE), make_client(direct_server.url, parallel=1)

    def stop_at_the_second_cell(line: Line, request: Request) -> None:
        if f"partNumber={direct_part_number(1)}&" in request.path:
            stopped.stop()
            line.cut()

    bucket.on_head = stop_at_the_second_cell
    with pytest.raises(Interrupted):
        stopped.upload(path)
    bucket.heal()
    client = make_client(direct_server.url)
    uploaded = client.upload(path)
    assert uploaded.sent == sent_directly(bucket) == SIZE - CELL
    assert_same(client, uploaded.id, path)


def test_one_request_counts_several_cells_and_those_stored_before_a_failure(
    line: BadLine, bucket: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    cells, failed = 6, sometimes(Line.cut, after=MIB, times=1, path="/")
    third = f"partNumber={direct_part_number(2)}&"
    bucket.on_body = lambda at, request: failed(at, request) if third in request.path else None
    path, client = make_file(size=cells * CELL), make_client(line.url, parallel=1)
    uploaded = client.upload(path)
    told = [request for request in line.requests if request.path.endswith("/cells/stored")]
    assert len(told) < cells
    assert len([request for request in bucket.requests if request.body == CELL]) == cells
    assert line.sent() == 0
    assert_same(client, uploaded.id, path)
