"""Other upload libraries, as published, against a real server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, Request, Route

from tests.browser.complaints import Complaints
from tests.browser.films import sha256_of
from tests.browser.stored import digests_of, open_uploads_of, videos_of
from tests.dropzone_client import random_bytes
from tests.live_server import ROOT, Server
from tests.long_tests import long

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

MIB = 1024 * 1024
PATIENCE_MILLISECONDS = 60_000

PAGE = """<!doctype html><title>dialect</title>
<script src="/dialect/library.js"></script><input id="pick" type="file"><div id="pond"></div>"""

RESUMABLE = "resumablejs/resumable.js"
FLOW = "@flowjs/flow.js/dist/flow.js"
FILEPOND = "filepond/dist/filepond.js"
FINE_UPLOADER = "fine-uploader/fine-uploader/fine-uploader.core.js"

START_RESUMABLE = """({ base = "", ...options }) => {
  window.outcome = null;
  const target = `${base}/resumablejs`;
  const resumable = new Resumable({ target, chunkSize: 1048576, ...options });
  resumable.assignBrowse(document.querySelector("#pick"));
  resumable.on("fileAdded", () => resumable.upload());
  resumable.on("fileSuccess", () => { window.outcome = "success"; });
  resumable.on("fileError", (file, message) => { window.outcome = message; });
}"""

START_FLOW = """({ base = "", ...options }) => {
  window.outcome = null;
  const target = `${base}/flow`;
  const flow = new Flow({ target, chunkSize: 1048576, maxChunkRetries: 3, ...options });
  flow.assignBrowse(document.querySelector("#pick"));
  flow.on("filesSubmitted", () => flow.upload());
  flow.on("fileSuccess", () => { window.outcome = "success"; });
  flow.on("fileError", (file, message) => { window.outcome = message; });
}"""

START_FILEPOND = """({ base = "", headers = {}, ...options }) => {
  const element = document.querySelector("#pond");
  const server = { url: `${base}/filepond`, headers };
  window.pond = FilePond.create(element, { server, ...options });
  const pick = document.querySelector("#pick");
  pond.onprocessfile = (error) => { window.outcome = error ? "error" : "success"; };
  window.start = () => { window.outcome = null; pond.addFile(pick.files[0]).catch(() => {}); };
  window.goOn = () => { window.outcome = null; pond.processFile().catch(() => {}); };
}"""

SLOW = MIB // 20
"""Bytes per second."""

START_FINE_UPLOADER = """({ base = "", headers = {} }) => {
  window.outcome = null;
  const endpoint = `${base}/fineuploader`;
  window.uploader = new qq.FineUploaderBasic({
    cors: { expected: base !== "" },
    request: { endpoint, customHeaders: headers },
    chunking: {
      enabled: true, partSize: 1048576, concurrent: { enabled: true }, success: { endpoint },
    },
    resume: { enabled: true },
    retry: { enableAuto: true, autoAttemptDelay: 0.1 },
    deleteFile: { enabled: true, endpoint },
    callbacks: {
      onComplete: (id, name, answer) => { window.outcome = answer.success ? "success" : "error"; },
      onDeleteComplete: (id, xhr, isError) => { window.outcome = isError ? "error" : "deleted"; },
    },
  });
  document.querySelector("#pick").onchange = (event) => uploader.addFiles(event.target.files);
}"""


class DialectPage:
    """A page at `url` with one library; `requests` lists what it sends."""

    def __init__(self, context: BrowserContext, url: str, library: str) -> None:
        self.requests: list[str] = []
        self._url = url
        self._library = ROOT / "node_modules" / library
        context.route("**/dialect/*", self._serve)
        self.page: Page = context.new_page()
        self.page.on("request", self._note)
        self.open()

    def open(self) -> None:
        """Open the page, as a first or a later visit."""
        self.page.goto(f"{self._url}/dialect/page.html")
        self.requests.clear()

    def start(self, script: str, options: dict[str, object] | None = None) -> None:
        """Set the library up."""
        self.page.evaluate(script, options or {})

    def pick(self, path: Path) -> None:
        """Choose a file."""
        self.page.set_input_files("#pick", path)

    def wait_for(self, outcome: str) -> None:
        """Wait until the library has reported an outcome."""
        self.page.wait_for_function("outcome !== null", timeout=PATIENCE_MILLISECONDS)
        assert self.page.evaluate("outcome") == outcome

    def break_request(self, url: str, method: str, number: int) -> None:
        """Break the connection at the request with that number, counted from 1."""
        seen = 0

        def handle(route: Route) -> None:
            nonlocal seen
            seen += route.request.method == method
            if route.request.method == method and seen == number:
                route.abort("connectionreset")
            else:
                route.continue_()

        self.page.route(url, handle)

    def count(self, method: str) -> int:
        """How many requests with a method it has sent."""
        return sum(line.startswith(method) for line in self.requests)

    def _serve(self, route: Route) -> None:
        if route.request.url.endswith(".js"):
            route.fulfill(path=self._library, content_type="text/javascript")
        else:
            route.fulfill(body=PAGE, content_type="text/html")

    def _note(self, request: Request) -> None:
        self.requests.append(f"{request.method} {request.url.removeprefix(self._url)}")


@pytest.fixture
def open_dialect(
    site: Server, new_context: Callable[..., BrowserContext], complaints: Complaints
) -> Callable[[str], DialectPage]:
    """Opens a page with one of the libraries, whose requests may break."""
    complaints.allow_failed_requests()
    complaints.allow("[Fine Uploader")  # It logs each of them, too.
    return lambda library: DialectPage(new_context(), site.url, library)


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A file of five and a half chunks of 1 MiB."""
    path = tmp_path / "Film 影片.mp4"
    path.write_bytes(random_bytes(5 * MIB + 500_001))
    return path


@pytest.mark.parametrize(
    ("library", "script", "url"),
    [(RESUMABLE, START_RESUMABLE, "/resumablejs"), (FLOW, START_FLOW, "/flow")],
)
@pytest.mark.parametrize("method", ["multipart", *long(["octet"])])
def test_a_numbered_upload_survives_a_broken_chunk_and_a_second_visit_sends_nothing(
    open_dialect: Callable[[str], DialectPage],
    site: Server,
    film: Path,
    library: str,
    script: str,
    url: str,
    method: str,
) -> None:
    page = open_dialect(library)
    page.break_request(f"**{url}*", "POST", 3)
    page.start(script, {"method": method})
    page.pick(film)
    page.wait_for("success")
    assert page.count("POST") == 5 + 1
    assert digests_of(site) == {film.name: sha256_of(film)}
    page.open()
    page.start(script, {"method": method})
    page.pick(film)
    page.wait_for("success")
    assert (page.count("GET"), page.count("POST")) == (5, 0)
    assert len(videos_of(site)) == 1


@pytest.mark.long
def test_an_abandoned_upload_is_finished_by_the_missing_chunks(
    open_dialect: Callable[[str], DialectPage], site: Server, film: Path
) -> None:
    page = open_dialect(RESUMABLE)
    page.page.route("**/resumablejs*ChunkNumber=4*", lambda route: route.abort())
    page.start(START_RESUMABLE, {"simultaneousUploads": 1, "maxChunkRetries": 0})
    page.pick(film)
    page.page.wait_for_function("outcome !== null", timeout=PATIENCE_MILLISECONDS)
    page.page.unroute("**/resumablejs*ChunkNumber=4*")
    (upload,) = open_uploads_of(site)
    assert 3 * MIB <= upload["offset"] < film.stat().st_size
    page.open()
    page.start(START_RESUMABLE)
    page.pick(film)
    page.wait_for("success")
    assert 0 < page.count("POST") <= 2
    assert digests_of(site) == {film.name: sha256_of(film)}


def test_filepond_resumes_after_losing_the_connection_within_a_chunk(
    open_dialect: Callable[[str], DialectPage], site: Server, film: Path
) -> None:
    page = open_dialect(FILEPOND)
    line = page.page.context.new_cdp_session(page.page)
    line.send("Network.enable")
    page.page.route("**/filepond*", partial(slow_down_at_the_second, page, line.send))
    page.start(START_FILEPOND, {"chunkUploads": True, "chunkSize": 2 * MIB, "chunkRetryDelays": []})
    page.pick(film)
    before = received_bytes(site)
    page.page.evaluate("start()")
    wait_until(page, lambda: received_bytes(site) - before > 2 * MIB + 2 * SLOW)
    set_line(line.send, is_offline=True)
    page.wait_for("error")
    set_line(line.send)
    page.page.evaluate("goOn()")
    page.wait_for("success")
    assert page.count("HEAD") == 1
    assert page.count("PATCH") == 2 + 2
    (video,) = videos_of(site)
    assert digests_of(site) == {film.name: sha256_of(film)}
    assert page.page.evaluate("pond.getFile().serverId") == video["id"]


def received_bytes(server: Server) -> int:
    """What all requests have brought, unfinished ones included."""
    count: int = server.get("/api/status").json()["transfers"]["received_bytes"]
    return count


def slow_down_at_the_second(page: DialectPage, send: Callable[..., object], route: Route) -> None:
    """Let the second PATCH take longer than the test."""
    if route.request.method == "PATCH" and page.count("PATCH") == 2:
        set_line(send, bytes_per_second=SLOW)
    route.continue_()


def set_line(
    send: Callable[..., object], *, bytes_per_second: int = -1, is_offline: bool = False
) -> None:
    conditions = {
        "offline": is_offline,
        "latency": 0,
        "downloadThroughput": -1,
        "uploadThroughput": bytes_per_second,
    }
    send("Network.emulateNetworkConditions", conditions)


def wait_until(page: DialectPage, is_so: Callable[[], bool]) -> None:
    for _ in range(PATIENCE_MILLISECONDS // 50):
        if is_so():
            return
        page.page.wait_for_timeout(50)
    raise AssertionError("it never happened")


@pytest.mark.long
def test_filepond_retries_a_broken_chunk_and_reverts_the_upload(
    open_dialect: Callable[[str], DialectPage], site: Server, film: Path
) -> None:
    page = open_dialect(FILEPOND)
    page.break_request("**/filepond*", "PATCH", 2)
    options = {"chunkUploads": True, "chunkSize": MIB, "chunkRetryDelays": [50]}
    page.start(START_FILEPOND, options)
    page.pick(film)
    page.page.evaluate("start()")
    page.wait_for("success")
    assert (page.count("PATCH"), page.count("HEAD")) == (6 + 1, 0)
    assert digests_of(site) == {film.name: sha256_of(film)}
    page.page.evaluate("pond.removeFile({ revert: true })")
    wait_until(page, lambda: videos_of(site) == [])


@pytest.mark.long
def test_filepond_sends_a_whole_file_and_loads_it_again(
    open_dialect: Callable[[str], DialectPage], site: Server, film: Path
) -> None:
    page = open_dialect(FILEPOND)
    page.start(START_FILEPOND, {"allowMultiple": True})
    page.pick(film)
    page.page.evaluate("start()")
    page.wait_for("success")
    assert digests_of(site) == {film.name: sha256_of(film)}
    loaded = page.page.evaluate(
        """async () => {
          const item = await pond.addFile(pond.getFile().serverId, { type: "local" });
          return [item.file.size, item.filename];
        }"""
    )
    assert loaded == [film.stat().st_size, film.name]


@pytest.mark.long
def test_fine_uploader_retries_a_broken_part_finishes_and_deletes(
    open_dialect: Callable[[str], DialectPage], site: Server, film: Path
) -> None:
    page = open_dialect(FINE_UPLOADER)
    page.break_request("**/fineuploader*", "POST", 3)
    page.start(START_FINE_UPLOADER)
    page.pick(film)
    page.wait_for("success")
    assert page.count("POST") >= 6 + 1 + 1
    assert digests_of(site) == {film.name: sha256_of(film)}
    page.page.evaluate("outcome = null; uploader.deleteFile(0)")
    page.wait_for("deleted")
    assert videos_of(site) == []


NOTED_BYTES = """() => Math.max(
  0, ...Object.keys(localStorage).filter((key) => key.startsWith("qq"))
    .map((key) => JSON.parse(localStorage.getItem(key)).loaded)
)"""
"""What the page has recorded as sent, for a later visit."""


def test_fine_uploader_resumes_in_a_second_visit(
    open_dialect: Callable[[str], DialectPage], site: Server, film: Path
) -> None:
    page = open_dialect(FINE_UPLOADER)
    page.page.route("**/fineuploader*", lambda route: hold_after(page, route, 4))
    page.start(START_FINE_UPLOADER)
    page.pick(film)
    wait_until(page, lambda: page.count("POST") > 4 and bytes_of_open_upload(site) == 4 * MIB)
    wait_until(page, lambda: page.page.evaluate(NOTED_BYTES) == 4 * MIB)
    page.open()  # Before the held requests are released: the first visit would continue otherwise.
    page.page.unroute_all(behavior="ignoreErrors")
    page.start(START_FINE_UPLOADER)
    page.pick(film)
    page.wait_for("success")
    assert 0 < page.count("POST") < 6 + 1
    assert digests_of(site) == {film.name: sha256_of(film)}


def bytes_of_open_upload(site: Server) -> int:
    uploads = open_uploads_of(site)
    return sum(end - start for start, end in uploads[0]["received"]) if uploads else 0


def hold_after(page: DialectPage, route: Route, count: int) -> None:
    """Leave all but the first requests unanswered."""
    if page.count("POST") <= count:
        route.continue_()
