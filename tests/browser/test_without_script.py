"""The page in a browser without scripts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.films import Films, sha256_of
from tests.browser.stored import digests_of
from tests.live_server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.browser


def test_a_plain_form_uploads_files_that_can_be_watched(
    site: Server, new_context: Callable[..., BrowserContext], films: Films
) -> None:
    page = new_context(java_script_enabled=False).new_page()
    page.goto(site.url)
    expect(page.get_by_role("button", name="Choose files")).to_be_hidden()
    page.get_by_label("Files to upload").set_input_files([films.small, films.middle])
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_text("2 files have been uploaded")).to_be_visible()
    assert digests_of(site) == {
        "small.mp4": sha256_of(films.small),
        "middle.mp4": sha256_of(films.middle),
    }
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    page.get_by_role("link", name="middle.mp4", exact=True).click()
    expect(page.get_by_role("heading", name="middle.mp4")).to_be_visible()
    plays_when_asked_with_the_keyboard(page, page.locator("video"))


def plays_when_asked_with_the_keyboard(page: Page, video: Locator) -> None:
    video.focus()
    page.keyboard.press("Space")
    wait_until(lambda: video.evaluate("(video) => video.currentTime") > 0.3, "it plays")
    assert video.evaluate("(video) => video.videoWidth") == 320
