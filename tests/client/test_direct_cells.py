"""Uploads whose bytes go straight from the client to the bucket of the server."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from threading import Event
from typing import BinaryIO

import pytest

from sluice_client import Client, Interrupted
from sluice_client.direct_cells import DirectCells
from sluice_client.local_file import FileSlice
from sluice_client.options import Options
from sluice_client.spans import Span
from sluice_client.transport import Transport
from tests.client.bad_line import BadLine, Line, Request, bad_line, sometimes
from tests.client.conftest import MakeFile
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.s3_servers import S3Server, new_prefix

pytestmark = pytest.mark.e2e

MIB = 1024 * 1024
CELL = 20 * MIB
SIZE = CELL + 2 * MIB
SIGNED = "X-Amz-Signature"
"""In the URLs that the server signs for clients."""

MakeClient = Callable[..., Client]


@pytest.fixture(scope="module")
def line_to_bucket(versitygw: S3Server) -> Iterator[BadLine]:
    """The line to the bucket, of the server and of its clients."""
    with bad_line(versitygw.port) as running:
        yield running


@pytest.fixture(scope="module")
def direct_server(
    versitygw: S3Server, line_to_bucket: BadLine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    options = versitygw.access.settings(new_prefix(), endpoint=line_to_bucket.url)
    folder = tmp_path_factory.mktemp("direct")
    with running_server(folder, **options, **NO_FFMPEG, SLUICE_DIRECT_UPLOADS="1") as running:
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


def is_of(request: Request, *, cell: int) -> bool:
    """Whether a request stores that cell in the bucket."""
    return SIGNED in request.path and f".{cell * CELL}-" in request.path


def cut_once(*, cell: int) -> Callable[[Line, Request], None]:
    """The first request that stores that cell breaks off in its body."""
    cut = sometimes(Line.cut, after=MIB, times=1, path="/")
    return lambda line, request: cut(line, request) if is_of(request, cell=cell) else None


@contextmanager
def direct_cells(
    line: BadLine, *, clock: Callable[[], float]
) -> Iterator[tuple[DirectCells, Transport]]:
    """What sends cells, with the given clock, and its connection to the server."""
    with (
        closing(Transport(Options(server=line.url), Event())) as transport,
        closing(DirectCells(transport, clock=clock)) as direct,
    ):
        yield direct, transport


def create(transport: Transport, path: Path) -> str:
    wish = {"name": path.name, "size": path.stat().st_size}
    return str(transport.json("POST", "/api/uploads", json=wish)["id"])


def send(direct: DirectCells, upload_id: str, file: BinaryIO, cells: Sequence[Span]) -> int:
    """Where the cells end that the server counts."""

    def body(span: Span) -> FileSlice:
        return FileSlice(file.fileno(), span, is_over=lambda: False, on_sent=lambda _sent: None)

    return direct.send(upload_id, file.fileno(), cells=cells, body=body)


def assert_same(client: Client, upload_id: str, path: Path) -> None:
    back = path.with_suffix(".back")
    assert client.fetch(upload_id, back).is_verified
    assert back.read_bytes() == path.read_bytes()


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


def test_a_cell_that_the_bucket_refuses_goes_through_the_server_alone(
    line: BadLine, bucket: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    bucket.on_head = refuse(times=1)
    path, client = make_file(size=SIZE), make_client(line.url, parallel=1)
    uploaded = client.upload(path)
    assert (sent_directly(bucket), line.sent()) == (SIZE - CELL, CELL)
    assert_same(client, uploaded.id, path)


def test_the_next_run_sends_only_the_cells_that_are_missing(
    direct_server: Server, bucket: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    path, stopped = make_file(size=SIZE), make_client(direct_server.url, parallel=1)

    def stop_at_the_second_cell(line: Line, request: Request) -> None:
        if is_of(request, cell=1):
            stopped.stop()
            line.cut()

    bucket.on_head = stop_at_the_second_cell
    with pytest.raises(Interrupted):
        stopped.upload(path)
    bucket.heal()
    client = make_client(direct_server.url)
    uploaded = client.upload(path)
    assert uploaded.sent == SIZE - CELL
    assert sent_directly(bucket) == SIZE - CELL, "under another name than what broke off"
    assert_same(client, uploaded.id, path)


def test_a_cell_whose_request_broke_off_goes_through_the_server(
    line: BadLine, bucket: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    """The bucket has nothing of it, and the server would keep a part."""
    bucket.on_body = cut_once(cell=0)
    path, client = make_file(size=SIZE), make_client(line.url, parallel=1)
    uploaded = client.upload(path)
    assert line.sent() == CELL
    assert sum(is_of(request, cell=0) for request in bucket.requests) == 1
    assert_same(client, uploaded.id, path)


def test_one_request_counts_several_cells_and_those_stored_before_a_failure(
    line: BadLine, bucket: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    bucket.on_body = cut_once(cell=2)
    path = make_file(size=4 * CELL)
    grid = [Span(start, start + CELL) for start in range(0, 4 * CELL, CELL)]
    with direct_cells(line, clock=time.monotonic) as (direct, transport), path.open("rb") as file:
        upload_id = create(transport, path)
        assert send(direct, upload_id, file, grid) == 2 * CELL
        assert send(direct, upload_id, file, grid[3:]) == 4 * CELL
        missing = transport.json("GET", f"/api/uploads/{upload_id}")["missing"]
    assert missing == [[2 * CELL, 3 * CELL]]
    told = [request for request in line.requests if request.path.endswith("/cells/stored")]
    assert len(told) == 2
    assert len([request for request in bucket.requests if request.body == CELL]) == 3


@pytest.mark.parametrize(("cell_seconds", "expected"), [(0, 8), (1, 8), (4, 3), (15, 1), (300, 1)])
def test_as_many_cells_at_once_as_the_line_takes_in_fifteen_seconds(
    line: BadLine, make_file: MakeFile, cell_seconds: int, expected: int
) -> None:
    path = make_file(size=5 * MIB)
    ticks = count(step=cell_seconds)
    with (
        direct_cells(line, clock=lambda: next(ticks)) as (direct, transport),
        path.open("rb") as file,
    ):
        assert direct.cells_at_once == 1
        upload_id = create(transport, path)
        send(direct, upload_id, file, [Span(0, 5 * MIB)])
        assert direct.cells_at_once == expected


def test_without_crc32c_a_file_that_looks_the_same_is_sent(
    line: BadLine,
    make_client: MakeClient,
    make_file: MakeFile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = make_file(size=SIZE)
    facts = path.stat()
    first = make_client(line.url).upload(path)
    with path.open("r+b") as file:
        file.seek(300_000)  # Between the bytes that the fingerprint samples.
        file.write(b"other bytes")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    monkeypatch.setitem(sys.modules, "crc32c", None)
    line.heal()
    client = make_client(line.url)
    second = client.upload(path)
    assert second.id != first.id
    assert line.sent() == SIZE
    assert_same(client, second.id, path)
