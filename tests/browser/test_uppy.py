"""Uppy with its tus plug-in, on a page of another origin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.browser.complaints import Complaints
from tests.browser.films import sha256_of
from tests.browser.module_site import module_site
from tests.browser.stored import digests_of
from tests.client.bad_line import BadLine, Line, bad_line, sometimes
from tests.dropzone_client import random_bytes
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.long_tests import long

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

MIB = 1024 * 1024
PATIENCE_MILLISECONDS = 60_000

START = """async (options) => {
  const [{ default: Uppy }, { default: Tus }] =
    await Promise.all([import("@uppy/core"), import("@uppy/tus")]);
  window.outcome = null;
  const uppy = new Uppy({ autoProceed: true });
  uppy.use(Tus, { retryDelays: [100, 200, 400], ...options });
  uppy.on("upload-success", (_file, response) => { outcome = ["success", response.uploadURL]; });
  uppy.on("upload-error", (_file, error) => { outcome = ["error", String(error)]; });
  document.querySelector("#pick").addEventListener("change", ({ target }) => {
    const [file] = target.files;
    uppy.addFile({ name: file.name, type: file.type, data: file });
  });
}"""


@dataclass
class Sites:
    """A page on one port, a server on another that accepts its uploads, and the line between."""

    port: int
    server: Server
    line: BadLine

    @property
    def allowed(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def refused(self) -> str:
        return f"http://localhost:{self.port}"


@pytest.fixture(scope="module")
def shared_sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with ExitStack() as stack:
        port = stack.enter_context(module_site())
        options = {"SLUICE_CORS_ORIGINS": f"http://127.0.0.1:{port}", **NO_FFMPEG}
        folder = tmp_path_factory.mktemp("server")
        server = stack.enter_context(running_server(folder, **options))
        yield Sites(port, server, stack.enter_context(bad_line(server.port)))


@pytest.fixture
def sites(shared_sites: Sites) -> Sites:
    """Without uploads and videos, and with a good line that has carried nothing."""
    shared_sites.server.empty()
    shared_sites.line.heal()
    return shared_sites


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "Film 影片.mp4"
    path.write_bytes(random_bytes(11 * MIB + 1))
    return path


def upload(context: BrowserContext, site: str, film: Path, **options: Any) -> tuple[Page, Any]:
    """The outcome of uploading a file on a page of a site."""
    page = context.new_page()
    page.goto(site)
    page.evaluate(START, options)
    page.set_input_files("#pick", film)
    page.wait_for_function("outcome !== null", timeout=PATIENCE_MILLISECONDS)
    return page, page.evaluate("outcome")


NewContext = Callable[..., BrowserContext]


@pytest.mark.parametrize("chunk_bytes", [2 * MIB, *long([64 * MIB])])
def test_a_page_of_an_allowed_origin_uploads_over_a_broken_connection(
    new_context: NewContext, complaints: Complaints, sites: Sites, film: Path, chunk_bytes: int
) -> None:
    complaints.allow_failed_requests()
    sites.line.on_body = sometimes(Line.cut_at_server_first, after=MIB, times=1, path="/tus/")
    endpoint = f"{sites.line.url}/tus/"
    options = {"endpoint": endpoint, "chunkSize": chunk_bytes}
    _, (outcome, url) = upload(new_context(), sites.allowed, film, **options)
    assert (outcome, url.rpartition("/")[0] + "/") == ("success", endpoint)
    assert digests_of(sites.server) == {film.name: sha256_of(film)}
    methods = [request.method for request in sites.line.requests]
    assert methods.count("HEAD") == 1
    assert "OPTIONS" in methods
    # Chromium itself repeats a request if a connection breaks that it had used before. The
    # repeated one has an old offset and is refused, and only then does Uppy ask.
    taken = sum(request.body for request in sites.line.requests if request.status != 409)
    assert taken < film.stat().st_size + MIB


def test_a_page_of_another_origin_gets_a_clear_error(
    new_context: NewContext, complaints: Complaints, sites: Sites, film: Path
) -> None:
    complaints.allow_failed_requests()
    options = {"endpoint": f"{sites.server.url}/tus/", "retryDelays": []}
    page, (outcome, _) = upload(new_context(), sites.refused, film, **options)
    assert outcome == "error"
    assert any("has been blocked by CORS policy" in text for text in complaints.unexpected)
    complaints.allow("Access to XMLHttpRequest")
    complaints.allow("[Uppy]")
    assert digests_of(sites.server) == {}
    assert sites.server.get("/api/uploads").json()["uploads"] == []
    status = page.evaluate(
        "async (url) => (await fetch(url, {method: 'POST', mode: 'no-cors'})).type",
        f"{sites.server.url}/upload",
    )
    assert status == "opaque"
    assert digests_of(sites.server) == {}


@pytest.mark.parametrize("protocol", ["ietf-draft-05", *long(["ietf-draft-03"])])
def test_a_page_of_another_site_uploads_with_the_ietf_drafts(
    new_context: NewContext, sites: Sites, film: Path, protocol: str
) -> None:
    options = {"endpoint": f"{sites.server.url}/resumable/", "protocol": protocol}
    _, (outcome, _) = upload(new_context(), sites.allowed, film, chunkSize=2 * MIB, **options)
    assert outcome == "success"
    assert set(digests_of(sites.server).values()) == {sha256_of(film)}
