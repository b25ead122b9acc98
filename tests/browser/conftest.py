"""One browser and one server for the tests of the page; each test has its own context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect, sync_playwright

from tests.browser.complaints import Complaints
from tests.browser.films import Films
from tests.browser.library_tools import NAMES, VIDEOS, fill_library, put
from tests.browser.tools import BROWSER_FLAGS, find_browser, find_firefox, need_driver
from tests.browser.upload_page import MIB, UploadPage
from tests.live_server import NO_FFMPEG, Server, running_server

PATIENCE_MILLISECONDS = 60_000
"""For everything that a page is asked to do."""

expect.set_options(timeout=PATIENCE_MILLISECONDS)


@pytest.fixture(scope="package")
def driver() -> Iterator[Playwright]:
    """What drives browsers; it ends with this folder, as its event loop disturbs other tests."""
    need_driver()
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="package")
def browser(driver: Playwright) -> Iterator[Browser]:
    """Chromium."""
    flags = list(BROWSER_FLAGS)
    launched = driver.chromium.launch(executable_path=find_browser(), args=flags)
    yield launched
    launched.close()


@pytest.fixture(scope="package")
def firefox(driver: Playwright) -> Iterator[Browser]:
    """Firefox as distributions have it, driven by WebDriver BiDi."""
    launched = driver.firefox.launch(executable_path=find_firefox(), channel="moz-firefox")
    yield launched
    launched.close()


@pytest.fixture(
    params=[
        pytest.param("browser", id="chromium"),
        pytest.param("firefox", id="firefox", marks=pytest.mark.long),
    ]
)
def any_page(request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of each browser."""
    browser: Browser = request.getfixturevalue(request.param)
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="package")
def films(shared_folder: Path) -> Films:
    """Videos of several sizes, for all processes of this run."""
    folder = shared_folder / "films of the browser"
    folder.mkdir(exist_ok=True)
    return Films(folder)


@pytest.fixture(scope="package")
def page_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with chunks so small that a film of 9 MB has some; it does not examine films."""
    folder = tmp_path_factory.mktemp("pages")
    with running_server(folder, SLUICE_CHUNK_BYTES=str(MIB // 2), **NO_FFMPEG) as running:
        yield running


@pytest.fixture
def site(page_server: Server) -> Server:
    """The shared server, without uploads and videos. Films are played from `default_site`."""
    page_server.empty()
    return page_server


@pytest.fixture(scope="package")
def default_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("default")) as running:
        yield running


@pytest.fixture
def default_site(default_server: Server) -> Server:
    """A shared server that examines films, without uploads and videos; its chunks are large."""
    default_server.empty()
    return default_server


@pytest.fixture(scope="package")
def large_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with VIDEOS, of which it has only records; a test may delete the newest."""
    with running_server(tmp_path_factory.mktemp("library"), **NO_FFMPEG) as running:
        fill_library(running, VIDEOS)
        yield running


@pytest.fixture
def complaints() -> Complaints:
    """The browser's complaints in this test."""
    return Complaints()


@pytest.fixture
def new_context(browser: Browser, complaints: Complaints) -> Iterator[Callable[..., Any]]:
    """Makes contexts, each like a separate browser; an unexpected complaint fails the test.

    Their pages do not move what only moves to please: each picture costs time of the processor.
    """
    with ExitStack() as stack:

        def make(**options: Any) -> BrowserContext:
            context = browser.new_context(**{"reduced_motion": "reduce", **options})
            context.set_default_timeout(PATIENCE_MILLISECONDS)
            stack.callback(context.close)
            complaints.watch(context)
            return context

        yield make
    assert complaints.unexpected == []


@pytest.fixture
def open_page(new_context: Callable[..., BrowserContext]) -> Callable[..., UploadPage]:
    """Opens a server's start page in a new context, made with the given options."""
    return lambda server, *, lanes=False, **options: UploadPage(
        new_context(**options), server, lanes=lanes
    )


@pytest.fixture
def clips(site: Server, tmp_path: Path) -> Server:
    """The shared server with NAMES, the first of them the oldest; each is a byte larger."""
    for number, name in enumerate(NAMES, 1):
        path = tmp_path / f"{number}"
        path.write_bytes(b"x" * number)
        put(site, name, path)
    return site
