"""Uploads a file by a page in headless Chromium: `python -m bench.lib.send_by_page PAGE URL FILE`.

PAGE is one of `PAGES`. Prints the seconds from the choice of the file until the page says that it
is uploaded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from playwright.sync_api import Page, Route, sync_playwright

from bench.peers.process import BUILT
from tests.browser.tools import BROWSER_FLAGS, find_browser

PATIENCE_MILLISECONDS = 3_600_000
"""Its caller ends it when it takes too long."""

UPPY = BUILT / "uppy"

NO_ADDRESS_CHECKS = "--disable-web-security"
"""A page that we answer for has no address, and may otherwise not send to one that is private."""

UPPY_PAGE = """<!doctype html>
<link rel="stylesheet" href="/uppy.min.css"><div id="drop"></div>
<script src="/uppy.min.js"></script>
<script>
  new Uppy.Uppy()
    .use(Uppy.Dashboard, { inline: true, target: "#drop" })
    .use(Uppy.Tus, { endpoint: "/files/" });
</script>"""
"""As its documentation begins; served from the address of tusd, so that no preflight is needed."""


def _await_end(page: Page, selector: str, text: str = "") -> None:
    """Wait until an element has that text; at each frame, where a locator looks twice a second."""
    is_there = """([selector, text]) => [...document.querySelectorAll(selector)].some(
        (element) => !text || element.textContent.trim() === text)"""
    page.wait_for_function(is_there, arg=[selector, text], polling="raf")


def send_by_sluice(page: Page, url: str, file: str) -> float:
    """Ours."""
    page.goto(url)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose files").click()
    began = time.monotonic()
    chooser.value.set_files(file)
    _await_end(page, ".dz-success")
    return began


def send_by_copyparty(page: Page, url: str, file: str, *, at_once: int | None = None) -> float:
    """With as many parallel uploads as it comes with, or clicked to `at_once`."""
    page.goto(f"{url}/?ops=up2k")
    page.locator("#u2etas, #u2etaw").first.wait_for(state="attached")
    page.locator('#ops a[data-dest="up2k"]').click()
    while at_once and int(page.locator("#nthread").input_value()) < at_once:
        page.locator("#nthread_add").click()
    began = time.monotonic()
    page.locator("#file1").set_input_files(file)
    page.locator("#modal-ok").click()
    _await_end(page, '#u2cards a[act="ok"] span', "1")
    return began


def send_by_uppy(page: Page, url: str, file: str) -> float:
    """Its dashboard and its plug-in for tus."""

    def answer(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        if name:
            route.fulfill(path=UPPY / name)
        else:
            route.fulfill(body=UPPY_PAGE, content_type="text/html")

    page.route(lambda address: address.startswith(url) and "/files" not in address, answer)
    page.goto(f"{url}/")
    page.locator(".uppy-Dashboard-input").first.wait_for(state="attached")
    began = time.monotonic()
    page.locator(".uppy-Dashboard-input").first.set_input_files(file)
    page.locator(".uppy-StatusBar-actionBtn--upload").click()
    _await_end(page, ".uppy-StatusBar.is-complete")
    return began


PAGES: dict[str, Callable[[Page, str, str], float]] = {
    "sluice": send_by_sluice,
    "copyparty": send_by_copyparty,
    "copyparty-6": partial(send_by_copyparty, at_once=6),
    "uppy": send_by_uppy,
}
"""Each returns the time, by the monotonic clock, at which the file was chosen."""


def main(name: str, url: str, file: str) -> None:
    """Send it, and print the seconds."""
    with sync_playwright() as playwright:
        flags = [*BROWSER_FLAGS, *([NO_ADDRESS_CHECKS] if name == "uppy" else [])]
        browser = playwright.chromium.launch(executable_path=find_browser(), args=flags)
        page = browser.new_page(ignore_https_errors=True)
        page.set_default_timeout(PATIENCE_MILLISECONDS)
        began = PAGES[name](page, url, str(Path(file)))
        print(time.monotonic() - began)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
