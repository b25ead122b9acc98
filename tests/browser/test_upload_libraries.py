"""Libraries that send their chunks to /upload, as published."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext

from tests.browser.complaints import Complaints
from tests.browser.films import sha256_of
from tests.browser.library_page import LibraryPage
from tests.browser.stored import digests_of, open_uploads_of, videos_of
from tests.client.bad_line import BadLine, Line, Request, bad_line
from tests.dropzone_client import random_bytes
from tests.live_server import Server
from tests.long_tests import long
from tests.protocols.library_chunks import LIBRARIES, LibraryFile

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

MIB = 1024 * 1024
DAY_SECONDS = 24 * 3600

BLUEIMP = """() => {
  let tries = 0;
  $("#pick").fileupload({
    url: "BASE/upload", headers: HEADERS, maxChunkSize: 1048576, OPTIONS
    done: () => { outcome = "success"; },
    fail: (event, data) => {
      if (++tries > 3 || data.jqXHR.status >= 400) { outcome = `${data.jqXHR.status}`; return; }
      data.data = null;
      data.submit();
    },
  });
}"""

PLUPLOAD = """() => {
  const uploader = new plupload.Uploader({
    url: "BASE/upload", headers: HEADERS, browse_button: "button", chunk_size: "1mb",
    max_retries: 3, OPTIONS
  });
  uploader.bind("FilesAdded", () => setTimeout(() => uploader.start()));
  uploader.bind("FileUploaded", () => { outcome = "success"; });
  uploader.bind("Error", (_, error) => { outcome = `${error.status}`; });
  uploader.init();
  pick.onchange = () => uploader.addFile(pick.files[0]);
}"""

UPLOADY = """async () => {
  const [{ createUploader, UPLOADER_EVENTS }, { getChunkedEnhancer }] =
    await Promise.all([import("@rpldy/uploader"), import("@rpldy/chunked-sender")]);
  const enhancer = getChunkedEnhancer({ chunkSize: 1048576, retries: 3 });
  const destination = { url: "BASE/upload", headers: HEADERS };
  const uploader = createUploader({ destination, enhancer, OPTIONS });
  uploader.on(UPLOADER_EVENTS.ITEM_FINISH, () => { outcome = "success"; });
  uploader.on(UPLOADER_EVENTS.ITEM_ERROR, (item) => {
    outcome = `${item.uploadResponse.chunkUploadResponse.status}`;
  });
  pick.onchange = () => uploader.add(pick.files);
}"""

WEBUPLOADER = """() => {
  const uploader = WebUploader.create({
    server: "BASE/upload", headers: HEADERS, chunked: true, chunkSize: 1048576, auto: true, OPTIONS
  });
  uploader.on("uploadSuccess", () => { outcome = "success"; });
  uploader.on("uploadError", (file, reason) => { outcome = reason; });
  pick.onchange = () => uploader.addFiles(pick.files);
}"""

HUGE_UPLOADER = """async () => {
  const { default: HugeUploader } = await import("huge-uploader");
  pick.onchange = () => {
    const uploader = new HugeUploader({
      endpoint: "BASE/upload", headers: HEADERS, file: pick.files[0], chunkSize: 1,
      delayBeforeRetry: 0.2, OPTIONS
    });
    uploader.on("finish", () => { outcome = "success"; });
    uploader.on("error", ({ detail }) => { outcome = `${detail.status}`; });
  };
}"""

SIMPLE_UPLOADER = """() => {
  const uploader = new Uploader({
    target: "BASE/upload", headers: HEADERS, chunkSize: 1048576, maxChunkRetries: 3, OPTIONS
  });
  uploader.on("filesSubmitted", () => uploader.upload());
  uploader.on("fileSuccess", () => { outcome = "success"; });
  uploader.on("fileError", () => { outcome = "error"; });
  pick.onchange = () => uploader.addFiles(pick.files);
}"""


@dataclass(frozen=True)
class Library:
    scripts: tuple[str, ...]
    start: str
    chunk_bytes: int = MIB

    def script(
        self, options: str = "", *, base: str = "", headers: Mapping[str, str] | None = None
    ) -> str:
        """What starts it, for a server at `base`, or the page's own."""
        values = {"OPTIONS": options, "BASE": base, "HEADERS": json.dumps(headers or {})}
        return re.sub("OPTIONS|BASE|HEADERS", lambda found: values[found[0]], self.start)


JQUERY = "jquery/dist/jquery.js"
BLUEIMP_FOLDER = "blueimp-file-upload/js"

ALL = {
    "blueimp": Library(
        (
            JQUERY,
            f"{BLUEIMP_FOLDER}/vendor/jquery.ui.widget.js",
            f"{BLUEIMP_FOLDER}/jquery.fileupload.js",
        ),
        BLUEIMP,
    ),
    "plupload": Library(("plupload/js/plupload.full.min.js",), PLUPLOAD),
    "uploady": Library((), UPLOADY),
    "webuploader": Library((JQUERY, "webuploader/dist/webuploader.html5only.js"), WEBUPLOADER),
    "huge_uploader": Library((), HUGE_UPLOADER, 1_000_000),
    "simple_uploader": Library(("simple-uploader.js/dist/uploader.js",), SIMPLE_UPLOADER),
}

OpenLibrary = Callable[[str], LibraryPage]


@pytest.fixture
def line(site: Server) -> Iterator[BadLine]:
    with bad_line(site.port) as line:
        yield line


@pytest.fixture
def open_library(
    line: BadLine, new_context: Callable[..., BrowserContext], complaints: Complaints
) -> OpenLibrary:
    """Opens a page with one of the libraries, in a separate browser, over the line."""
    complaints.allow_failed_requests()
    complaints.allow("JQMIGRATE")
    return lambda name: LibraryPage(new_context(), line.url, ALL[name].scripts)


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "Film 影片.mp4"
    path.write_bytes(random_bytes(5 * MIB + 500_001))
    return path


@pytest.mark.parametrize("name", ALL)
def test_a_chunked_file_arrives_over_a_broken_connection(
    open_library: OpenLibrary, site: Server, line: BadLine, film: Path, name: str
) -> None:
    first_bytes = note_first_bytes(line)
    line.on_body = cut_in_chunk(3)
    page = open_library(name)
    page.upload(ALL[name].script(), film)
    assert page.outcome() == "success"
    stored_name = "unnamed" if name == "huge_uploader" else film.name
    assert digests_of(site) == {stored_name: sha256_of(film)}
    assert open_uploads_of(site) == []
    posts = [request for request in line.requests if request.method == "POST"]
    expected = 1 + -(-film.stat().st_size // ALL[name].chunk_bytes)
    assert len(posts) == len(first_bytes)
    # It asks before it sends a chunk again, whose bytes the server may have kept.
    assert len(posts) in ({expected - 1, expected} if name == "simple_uploader" else {expected})
    assert_told_as_in_the_table(name, posts[0], first_bytes[0])


def cut_in_chunk(number: int) -> Callable[[Line, Request], None]:
    """Break the connection within a chunk, once."""
    seen: list[Request] = []
    is_cut = False

    def apply(line: Line, request: Request) -> None:
        nonlocal is_cut
        if not any(request is other for other in seen):
            seen.append(request)
        if not is_cut and len(seen) >= number and request.body > MIB // 3:
            is_cut = True
            line.cut_at_server_first()

    return apply


def note_first_bytes(line: BadLine) -> list[bytes]:
    """Record the first block of each body."""
    noted: list[bytes] = []

    def note(request: Request, block: bytes) -> bytes:
        if request.method == "POST" and request.status == 0 and request.body == 0:
            noted.append(block)
        return block

    line.garble = note
    return noted


def assert_told_as_in_the_table(name: str, request: Request, body: bytes) -> None:
    """Assert that the chunks built in tests/protocols have the names that the library sends."""
    fields, headers, _ = LIBRARIES[name](LibraryFile(name, b"x" * 10, 5, "a.mp4"), 0)
    sent = re.findall(rb'form-data; name="([^"]+)"\r\n\r\n', body)
    assert {field.decode() for field in sent} == set(fields)
    told = {text.partition(":")[0].lower() for text in request.headers.split("\r\n")[1:]}
    assert {header.lower() for header in headers} <= told


def test_simple_uploader_sends_the_missing_chunks_on_a_second_visit(
    open_library: OpenLibrary, site: Server, line: BadLine, film: Path
) -> None:
    page = open_library("simple_uploader")
    options = "maxChunkRetries: 0, simultaneousUploads: 1,"
    line.on_body = cut_after(3)
    page.upload(ALL["simple_uploader"].script(options), film)
    assert page.outcome() == "error"
    (upload,) = open_uploads_of(site)
    assert upload["offset"] >= 2 * MIB
    line.heal()
    page = open_library("simple_uploader")
    page.upload(ALL["simple_uploader"].script(), film)
    assert page.outcome() == "success"
    assert sum(request.method == "POST" for request in line.requests) <= 3
    assert digests_of(site) == {film.name: sha256_of(film)}


def cut_after(count: int) -> Callable[[Line, Request], None]:
    """Break the connection in every chunk after the first ones."""
    seen: list[Request] = []

    def apply(line: Line, request: Request) -> None:
        if all(request is not other for other in seen):
            seen.append(request)
        if len(seen) > count:
            line.cut_at_server_first()

    return apply


@pytest.mark.parametrize("name", ["blueimp", *long(["plupload", "uploady", "webuploader"])])
def test_two_pages_sending_files_of_one_name_do_not_mix_them(
    open_library: OpenLibrary, site: Server, tmp_path: Path, name: str
) -> None:
    films = films_of_one_name(tmp_path)
    pages = [open_library(name) for _ in films]
    for page, film in zip(pages, films, strict=True):
        page.upload(ALL[name].script(), film)
    outcomes = [page.outcome() for page in pages]
    stored = {
        sha256(site.get(f"/media/{video['id']}").content).hexdigest() for video in videos_of(site)
    }
    assert stored <= {sha256_of(film) for film in films}
    for film, outcome in zip(films, outcomes, strict=True):
        assert outcome != "success" or sha256_of(film) in stored


def films_of_one_name(folder: Path) -> list[Path]:
    """Two of the same length, of different days: WebUploader sends the date, in seconds."""
    paths = [folder / str(number) / "film.mp4" for number in (1, 2)]
    for seed, path in enumerate(paths):
        path.parent.mkdir()
        path.write_bytes(random_bytes(4 * MIB + 7, seed))
        os.utime(path, (seed * DAY_SECONDS, seed * DAY_SECONDS))
    return paths


UNKNOWN = """() => {
  pick.onchange = async () => {
    const [file] = pick.files;
    const form = new FormData();
    form.append("fileId", "1");
    form.append("chunkIndex", "0");
    form.append("totalChunks", "6");
    form.append("file", file.slice(0, 1048576), file.name);
    const response = await fetch("/upload", { method: "POST", body: form });
    const problem = await response.json();
    outcome = `${response.status} ${problem.code} ${problem.detail}`;
  };
}"""


def test_an_unknown_upload_library_is_refused_with_a_reason(
    open_library: OpenLibrary, site: Server, film: Path
) -> None:
    page = open_library("uploady")
    page.upload(UNKNOWN, film)
    outcome = page.outcome()
    assert outcome.startswith("400 unknown_chunk_fields")
    assert "chunkIndex, totalChunks" in outcome
    assert videos_of(site) == []
