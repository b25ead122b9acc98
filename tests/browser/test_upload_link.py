"""The page of an upload link, on a phone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.complaints import Complaints
from tests.browser.films import Films, sha256_of
from tests.browser.stored import digests_of
from tests.browser.upload_page import MIB, UploadPage
from tests.live_server import Server

pytestmark = pytest.mark.browser

OpenPage = Callable[..., UploadPage]

PHONE = {
    "viewport": {"width": 390, "height": 844},
    "is_mobile": True,
    "has_touch": True,
    "device_scale_factor": 2,
}


def open_link(open_page: OpenPage, site: Server, **terms: object) -> UploadPage:
    link: dict[str, Any] = site.post("/api/upload-links", json=terms).json()
    page = open_page(site, **PHONE)
    page.page.goto(link["url"])
    return page


def expect_receipt(page: UploadPage) -> None:
    receipt = page.page.get_by_role("region", name="What you have sent")
    for words in ("All 2 files have arrived", "middle.mp4", "small.mp4"):
        expect(receipt).to_contain_text(words)


def test_a_stranger_goes_on_after_a_reload_and_has_a_receipt(
    site: Server, open_page: OpenPage, new_context: Callable[..., BrowserContext], films: Films
) -> None:
    page = open_link(open_page, site, name="Wedding films", asks_name=True, max_files=5)
    page.page.get_by_label("Your name").fill("Ada")
    page.button("Continue").click()
    expect(page.page.get_by_role("heading", name="Wedding films")).to_be_visible()
    page.throttle(MIB)
    page.choose(films.middle)
    page.wait_for_progress(page.row(films.middle), 20)
    page.slow_down()
    page.reload()
    expect(page.waiting_rows).to_contain_text("middle.mp4")
    member = new_context().new_page()
    member.goto(site.url)
    expect(member.get_by_text("Ada is sending middle.mp4")).to_be_visible()
    expect(member.get_by_role("button", name="Choose the file for middle.mp4")).to_have_count(0)
    page.throttle(-1)
    page.chunks.clear()
    page.choose(films.middle)
    page.wait_for_success(films.middle)
    expect(page.row(films.middle)).to_contain_text("arrived safely")
    assert min(page.chunks)[0] > 0
    assert digests_of(site) == {"middle.mp4": sha256_of(films.middle)}
    expect(page.page.get_by_text("Your file has arrived")).to_be_visible()
    expect(page.page.get_by_text("4 more files")).to_be_visible()
    page.choose(films.small)
    expect(page.page.get_by_text("3 more files")).to_be_visible()
    page.reload()
    expect_receipt(page)
    expect(member.get_by_text("from Ada via Wedding films").first).to_be_visible()
    width = page.page.evaluate("document.documentElement.scrollWidth")
    assert width == 390


def test_a_file_that_the_link_does_not_take_says_why(
    site: Server, open_page: OpenPage, films: Films, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    page = open_link(open_page, site, max_bytes=1000)
    page.choose(films.small)
    expect(page.row(films.small)).to_contain_text("does not have enough space left")
