"""The page sends cells straight to the bucket, and to the server what the bucket does not take."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.browser.complaints import Complaints
from tests.browser.films import sha256_of
from tests.browser.stored import digests_of
from tests.browser.upload_page import MIB, PATIENCE_SECONDS, UploadPage
from tests.client.bad_line import BadLine, Line, bad_line
from tests.client.bad_line import Request as SentRequest
from tests.dropzone_client import random_bytes
from tests.live_server import Server, running_server
from tests.s3_servers import S3Server, find_versitygw, running
from tests.storage.stores import bucket_at

pytestmark = pytest.mark.browser

CELL = 20 * MIB
CELLS = 3

OpenPage = Callable[..., UploadPage]


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    """An object store whose bucket takes parts from any page."""
    with running(find_versitygw()) as server:
        bucket_at(server.access, "").let_pages_store("*")
        yield server


@pytest.fixture(scope="module")
def line_to_bucket(store: S3Server) -> Iterator[BadLine]:
    with bad_line(store.port) as running_one:
        yield running_one


@pytest.fixture
def line(line_to_bucket: BadLine) -> BadLine:
    """The line to the bucket, of browsers and of the server; good until told otherwise."""
    line_to_bucket.heal()
    return line_to_bucket


@pytest.fixture(scope="module")
def direct_server(
    store: S3Server, line_to_bucket: BadLine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    options = store.access.settings("films", endpoint=line_to_bucket.url)
    folder = tmp_path_factory.mktemp("direct")
    with running_server(folder, **options, SLUICE_DIRECT_UPLOADS="1") as running_one:
        yield running_one


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three cells; the last is short, so it arrives first."""
    path = tmp_path_factory.mktemp("files") / "large.bin"
    path.write_bytes(random_bytes((CELLS - 1) * CELL + MIB))
    return path


@pytest.fixture(scope="module")
def short_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of one cell."""
    path = tmp_path_factory.mktemp("files") / "short.bin"
    path.write_bytes(random_bytes(6 * MIB))
    return path


@pytest.fixture
def site(direct_server: Server, line: BadLine) -> Server:
    """The server, without uploads and videos, and with a good line to its bucket."""
    direct_server.empty()
    return direct_server


class BucketTraffic:
    """Which cells a page begins to send to the bucket."""

    def __init__(self, page: Page, line: BadLine) -> None:
        self.begun: list[int | None] = []
        self._endpoint = line.url
        page.on("request", self._note)

    def _note(self, request: Request) -> None:
        if request.method == "PUT" and request.url.startswith(self._endpoint):
            self.begun.append(cell_of(request.url))


def cell_of(url: str) -> int | None:
    """Which cell a request to the bucket stores."""
    start = re.search(r"/direct/[0-9a-f]+\.(\d+)-", url)
    return int(start[1]) // CELL if start else None


def test_after_a_reload_the_bucket_gets_the_cells_that_were_on_their_way(
    site: Server, line: BadLine, open_page: OpenPage, large_file: Path
) -> None:
    page = open_page(site)
    traffic = BucketTraffic(page.page, line)
    page.throttle(2 * MIB)
    page.choose(large_file)
    page.wait_for_progress(page.row(large_file), 2)
    page.reload()
    (upload,) = site.get("/api/uploads").json()["uploads"]
    page.throttle(-1)
    traffic.begun.clear()
    page.choose(large_file)
    page.wait_for_success(large_file)
    missing = [start // CELL for start, _ in upload["missing"]]
    assert 0 < len(missing) < CELLS
    assert len(traffic.begun) == len(set(traffic.begun)) < CELLS
    assert page.chunk_bytes == 0
    assert digests_of(site) == {"large.bin": sha256_of(large_file)}


@pytest.mark.long
def test_a_line_that_breaks_once_and_a_reload_in_the_middle(
    site: Server, line: BadLine, any_page: Page, large_file: Path
) -> None:
    was_cut = False

    def disturb(line: Line, request: SentRequest) -> None:
        """Within the first block of 1 MiB, before which Garage does not count an attempt.

        The browser repeats a request by itself if a connection that it had used before breaks.
        """
        nonlocal was_cut
        if request.body < MIB // 4:
            return
        if not was_cut and cell_of(request.path) == 0:
            was_cut = True
            line.cut()
        if cell_of(request.path) == 1:
            line.stall()

    line.on_body = disturb
    traffic = BucketTraffic(any_page, line)
    any_page.goto(site.url)
    choose(any_page, large_file)
    await_missing(site, [[CELL, 2 * CELL]], page=any_page)
    assert was_cut
    line.heal()
    traffic.begun.clear()
    any_page.reload()
    choose(any_page, large_file)
    row = any_page.locator("upload-row").filter(has_text=large_file.name)
    expect(row).to_contain_class("dz-success", timeout=PATIENCE_SECONDS * 1000)
    assert traffic.begun == [1]
    assert digests_of(site) == {"large.bin": sha256_of(large_file)}


def choose(page: Page, path: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose files", exact=True).click()
    chooser.value.set_files(path)


def await_missing(site: Server, missing: list[list[int]], *, page: Page) -> None:
    """Wait until the only upload has just these gaps."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while [one["missing"] for one in site.get("/api/uploads").json()["uploads"]] != [missing]:
        assert time.monotonic() < deadline, "the other cells have never arrived"
        page.wait_for_timeout(100)


@pytest.mark.long
def test_a_bucket_that_cannot_be_reached_is_left_alone(
    site: Server,
    line: BadLine,
    open_page: OpenPage,
    tmp_path: Path,
    complaints: Complaints,
) -> None:
    complaints.allow_failed_requests()
    page = open_page(site)
    traffic = BucketTraffic(page.page, line)
    page.page.route(f"{line.url}/**", lambda route: route.abort())
    files = [tmp_path / f"{number}.bin" for number in range(3)]
    for file in files:
        file.write_bytes(random_bytes(6 * MIB))
        page.choose(file)
        page.wait_for_success(file)
    expect(page.notice).to_be_hidden()
    assert len(traffic.begun) == 2
    assert page.chunk_bytes >= sum(file.stat().st_size for file in files)
    assert digests_of(site) == {file.name: sha256_of(file) for file in files}


@pytest.mark.long
def test_a_cell_that_the_bucket_refuses_goes_through_the_server(
    site: Server,
    line: BadLine,
    open_page: OpenPage,
    short_file: Path,
    complaints: Complaints,
) -> None:
    complaints.allow_failed_requests()
    refused: list[str] = []

    def refuse_once(route: Route) -> None:
        if refused or route.request.method != "PUT":
            return route.fallback()
        refused.append(route.request.url)
        headers = {"Access-Control-Allow-Origin": "*"}
        return route.fulfill(status=403, headers=headers, body="Request has expired")

    page = open_page(site)
    traffic = BucketTraffic(page.page, line)
    page.page.route(f"{line.url}/**", refuse_once)
    page.choose(short_file)
    page.wait_for_success(short_file)
    assert len(refused) == len(traffic.begun) == 1
    assert page.chunk_bytes >= short_file.stat().st_size
    assert digests_of(site) == {"short.bin": sha256_of(short_file)}
