"""Upload libraries on a page of another site: through an upload link, and with an API key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext

from tests.access.accounts import bearer, make_key
from tests.browser import test_dialects as dialects
from tests.browser import test_upload_libraries as libraries
from tests.browser.complaints import Complaints
from tests.browser.library_page import LibraryPage
from tests.browser.module_site import module_site
from tests.browser.test_uppy import upload as upload_with_uppy
from tests.client.bad_line import BadLine, Line, bad_line, sometimes
from tests.dropzone_client import random_bytes
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.long_tests import long

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

MIB = 1024 * 1024

DROPZONE = libraries.Library(
    (),
    """async () => {
      const { Dropzone } = await import("/library/dropzone/dist/dropzone.mjs");
      const dropzone = new Dropzone("#button", {
        url: "BASE/upload", headers: HEADERS, chunking: true, chunkSize: 1048576, OPTIONS
      });
      dropzone.on("success", () => { outcome = "success"; });
      dropzone.on("error", (file, message) => { outcome = String(message); });
      pick.onchange = () => dropzone.addFile(pick.files[0]);
    }""",
)

AT_UPLOAD = {**libraries.ALL, "dropzone": DROPZONE}
"""Those of the first part are tested at home by test_upload_libraries.py."""

IN_CHUNKS = {"chunkUploads": True, "chunkSize": MIB}

DIALECTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "resumable": (dialects.RESUMABLE, dialects.START_RESUMABLE, {}),
    "flow": (dialects.FLOW, dialects.START_FLOW, {}),
    "filepond": (dialects.FILEPOND, dialects.START_FILEPOND, IN_CHUNKS),
    "fine_uploader": (dialects.FINE_UPLOADER, dialects.START_FINE_UPLOADER, {}),
}
"""Libraries with a URL of their own on the server."""

LOCAL = {"permissions": ["local-network-access"]}
"""Chromium asks before a page without an address, such as those here, may use this machine."""


@dataclass
class Site:
    """A server with accounts, and the page of another site that may use it."""

    page_url: str
    server: Server
    line: BadLine
    key: dict[str, str]

    def make_link(self) -> str:
        """The path of a new upload link that takes one file."""
        answer = self.server.post("/api/upload-links", json={"max_files": 1}, headers=self.key)
        url: str = answer.json()["url"]
        return url.removeprefix(self.server.url)

    def check_newest(self, film: Path, name: str) -> None:
        """The film has arrived last, under that name and unharmed."""
        video = self.server.get("/api/videos", headers=self.key).json()["videos"][0]
        content = self.server.get(f"/media/{video['id']}", headers=self.key).content
        assert (video["filename"], content == film.read_bytes()) == (name, True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        page_url = f"http://127.0.0.1:{stack.enter_context(module_site())}"
        options = {"SLUICE_ACCESS": "accounts", "SLUICE_CORS_ORIGINS": page_url, **NO_FFMPEG}
        server = stack.enter_context(running_server(tmp_path_factory.mktemp("site"), **options))
        line = stack.enter_context(bad_line(server.port))
        yield Site(page_url, server, line, bearer(make_key(server)))


@pytest.fixture(params=["link", "key"])
def way(request: pytest.FixtureRequest, site: Site) -> dict[str, Any]:
    """What a library is told: the URL that its own paths lie below, and the headers it sends."""
    site.line.heal()
    if request.param == "key":
        return {"base": site.line.url, "headers": site.key}
    return {"base": site.line.url + site.make_link(), "headers": {}}


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "Film 影片.mp4"
    path.write_bytes(random_bytes(MIB + 500_001))
    return path


NewContext = Callable[..., BrowserContext]


@pytest.mark.parametrize("name", ["dropzone", *long(libraries.ALL)])
def test_a_library_that_posts_to_upload(
    new_context: NewContext,
    complaints: Complaints,
    site: Site,
    way: dict[str, Any],
    film: Path,
    name: str,
) -> None:
    complaints.allow("JQMIGRATE")
    page = LibraryPage(new_context(**LOCAL), site.page_url, AT_UPLOAD[name].scripts)
    page.upload(AT_UPLOAD[name].script(**way), film)
    assert page.outcome() == "success"
    site.check_newest(film, "unnamed" if name == "huge_uploader" else film.name)


@pytest.mark.parametrize("name", ["filepond", *long(["resumable", "flow", "fine_uploader"])])
def test_a_library_with_a_url_of_its_own(
    new_context: NewContext, site: Site, way: dict[str, Any], film: Path, name: str
) -> None:
    library, script, options = DIALECTS[name]
    page = dialects.DialectPage(new_context(**LOCAL), site.page_url, library)
    page.start(script, {**way, **options})
    page.pick(film)
    page.page.evaluate("window.start?.()")
    page.wait_for("success")
    site.check_newest(film, film.name)


def test_uppy_goes_on_after_the_connection_broke(
    new_context: NewContext, complaints: Complaints, site: Site, way: dict[str, Any], film: Path
) -> None:
    complaints.allow_failed_requests()
    site.line.on_body = sometimes(Line.cut_at_server_first, after=MIB // 2, times=1, path="/")
    options = {"endpoint": f"{way['base']}/tus/", "headers": way["headers"]}
    _, (outcome, url) = upload_with_uppy(new_context(), site.page_url, film, **options)
    assert (outcome, url.rpartition("/")[0] + "/") == ("success", options["endpoint"])
    # Chromium itself repeats the request. The offset is another by then, so that Uppy asks for it.
    methods = [request.method for request in site.line.requests]
    assert methods.count("PATCH") > 1
    assert "HEAD" in methods
    site.check_newest(film, film.name)
