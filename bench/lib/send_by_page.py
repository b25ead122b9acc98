"""Uploads a file by the page in headless Chromium: `python -m bench.lib.send_by_page URL FILE`.

Prints the seconds from the choice of the file until the page says that it is uploaded.
"""

from __future__ import annotations

import sys
import time

from playwright.sync_api import sync_playwright

from tests.browser.tools import BROWSER_FLAGS, find_browser

PATIENCE_MILLISECONDS = 600_000


def main(url: str, file: str) -> None:
    """Choose the file, and wait."""
    with sync_playwright() as playwright:
        flags = list(BROWSER_FLAGS)
        browser = playwright.chromium.launch(executable_path=find_browser(), args=flags)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MILLISECONDS)
        page.goto(url)
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="Choose files").click()
        began = time.monotonic()
        chooser.value.set_files(file)
        page.locator(".dz-success").wait_for()
        print(time.monotonic() - began)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
