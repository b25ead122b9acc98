"""What tests of the library's tools do on the page."""

from __future__ import annotations

from pathlib import Path

import requests
from playwright.sync_api import Locator, expect

from tests.browser.upload_page import UploadPage
from tests.live_server import Server

NAMES = ["Clip 10.mp4", "été.mp4", "clip 2.mp4", "film.webm", "clip 1.mov"]
"""Of the videos of the fixture `clips`."""


def put(server: Server, name: str, path: Path) -> str:
    """Store a file under a name without the browser; its id."""
    with path.open("rb") as file:
        files = {"file": (name, file)}
        answer = requests.post(f"{server.url}/upload", files=files, timeout=60)
    upload_id: str = answer.json()["id"]
    return upload_id


def expect_names(page: UploadPage, *names: str) -> None:
    expect(page.videos.locator(".video-row__name")).to_have_text(list(names))


def search_field(page: UploadPage) -> Locator:
    return page.page.get_by_role("searchbox", name="Search names")


def hold(page: UploadPage, method: str) -> None:
    """Make the page's requests with this method wait until `release` is called.

    The page looks by itself for films that arrive: those requests pass.
    """
    page.page.evaluate(
        """(method) => {
            const { fetch } = window;
            const released = new Promise((resolve) => (window.release = resolve));
            window.held = 0;
            window.fetch = async (path, options) => {
                if (options.method === method && !path.startsWith("/api/uploads")) {
                    window.held += 1;
                    await released;
                }
                return fetch(path, options);
            };
        }""",
        method,
    )


def release(page: UploadPage) -> None:
    page.page.evaluate("release()")


def box(page: UploadPage, name: str) -> Locator:
    return page.page.get_by_role("checkbox", name=name, exact=True)
