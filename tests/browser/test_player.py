"""Watching a film: on its page, and in the dialog over the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.films import Films, encode
from tests.browser.library_tools import put
from tests.live_server import Server

pytestmark = pytest.mark.browser

FILM_SECONDS = 30
"""Long enough for a position to be remembered."""


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small film."""
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    encode(path, size="160x90", seconds=FILM_SECONDS, bits_per_second="100k")
    return path


@pytest.fixture
def page(new_context: Callable[..., BrowserContext]) -> Page:
    """A page of a browser that has not been here before."""
    page: Page = new_context().new_page()
    return page


def video_of(page: Page) -> Locator:
    """The film, once its controls are there."""
    video = page.locator("media-controller > video")
    expect(video).to_be_attached()
    return video


def wait_for(video: Locator, condition: str) -> None:
    """Until the film is as `condition` says; a player that never is fails by Playwright's limit."""
    handle = video.element_handle()
    video.page.wait_for_function(f"(video) => {condition}", arg=handle)


def value_of(video: Locator, expression: str) -> Any:
    return video.evaluate(f"(video) => {expression}")


def test_a_film_of_the_library_plays_to_its_end_over_the_page(
    site: Server, page: Page, films: Films
) -> None:
    put(site, "short.mp4", films.small)
    page.goto(site.url)
    page.get_by_role("link", name="short.mp4", exact=True).click()
    video = video_of(page)
    wait_for(video, "video.ended")
    assert value_of(video, "video.muted") is False
    expect(page.get_by_role("button", name="play", exact=True)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("video")).to_have_count(0)


def test_a_film_is_controlled_with_the_keyboard(site: Server, page: Page, film: Path) -> None:
    page.goto(f"{site.url}/watch/{put(site, 'film.mp4', film)}")
    video = video_of(page)
    page.get_by_role("button", name="play", exact=True).focus()
    page.keyboard.press("Space")
    wait_for(video, "!video.paused && video.currentTime > 0")
    page.keyboard.press("k")
    wait_for(video, "video.paused")
    before = value_of(video, "video.currentTime")
    page.keyboard.press("ArrowRight")
    wait_for(video, f"video.currentTime >= {before + 10}")
    page.keyboard.press("ArrowLeft")
    wait_for(video, f"video.currentTime < {before + 10}")
    page.keyboard.press("m")
    wait_for(video, "video.muted")
    page.keyboard.press(">")
    wait_for(video, "video.playbackRate === 1.25")


def test_a_film_goes_on_where_it_was_left_and_starts_again_once_seen(
    site: Server, page: Page, film: Path
) -> None:
    address = f"{site.url}/watch/{put(site, 'film.mp4', film)}"
    page.goto(address)
    seek(video_of(page), 12)
    page.reload()
    video = video_of(page)
    wait_for(video, "video.currentTime === 12 && video.readyState >= 2")
    seek(video, FILM_SECONDS - 1)
    page.reload()
    video = video_of(page)
    wait_for(video, "video.readyState >= 1")
    assert value_of(video, "video.currentTime") == 0


def seek(video: Locator, seconds: float) -> None:
    wait_for(video, "video.readyState >= 1")
    video.evaluate(
        "(video, seconds) => new Promise((done) => {"
        " video.addEventListener('seeked', done, { once: true }); video.currentTime = seconds; })",
        seconds,
    )


def test_the_page_of_a_file_that_is_no_video_offers_its_download(
    site: Server, page: Page, tmp_path: Path
) -> None:
    path = tmp_path / "notes.zip"
    path.write_bytes(b"PK" + bytes(200))
    page.goto(f"{site.url}/watch/{put(site, 'notes.zip', path)}")
    expect(page.locator("video-player")).to_contain_text("You can download it.")
    expect(page.locator("video")).to_be_hidden()
    expect(page.get_by_role("link", name="Download")).to_be_visible()
