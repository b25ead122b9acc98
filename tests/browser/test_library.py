"""What can be done with finished videos."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.complaints import Complaints
from tests.browser.films import Films, sha256_of
from tests.browser.library_tools import VIDEOS, fill_library, put
from tests.browser.stored import videos_of
from tests.browser.test_many_files import FROZEN_SECONDS, WATCH_FRAMES
from tests.browser.upload_page import UploadPage
from tests.live_server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.browser

OpenPage = Callable[..., UploadPage]
NewContext = Callable[..., BrowserContext]


def test_the_newest_video_comes_first(site: Server, open_page: OpenPage, films: Films) -> None:
    put(site, "first.mp4", films.small)
    page = open_page(site)
    page.choose(films.small)
    page.wait_for_success(films.small)
    expect(page.videos).to_have_count(2)
    assert page.videos.locator(".video-row__name").all_inner_texts() == ["small.mp4", "first.mp4"]
    page.reload()
    assert page.videos.locator(".video-row__name").all_inner_texts() == ["small.mp4", "first.mp4"]


def test_deleting_asks_for_confirmation_and_then_deletes_for_good(
    site: Server, open_page: OpenPage, films: Films, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()  # A poster that is asked for as its film goes.
    put(site, "kept.mp4", films.small)
    gone = put(site, "gone.mp4", films.small)
    page = open_page(site)
    page.button("Delete gone.mp4").click()
    expect(page.page.get_by_role("dialog")).to_contain_text("will be deleted from the server")
    page.confirm("Keep")
    expect(page.videos).to_have_count(2)
    page.button("Delete gone.mp4").click()
    page.confirm("Delete")
    expect(page.videos).to_have_count(1)
    assert [video["filename"] for video in videos_of(site)] == ["kept.mp4"]
    assert site.get(f"/media/{gone}").status_code in {404, 410}
    page.button("Delete kept.mp4").click()
    page.confirm("Delete")
    expect(page.page.get_by_text("Nothing here yet")).to_be_visible()


def test_a_download_has_the_name_and_the_bytes_of_the_file(
    site: Server, open_page: OpenPage, films: Films, tmp_path: Path
) -> None:
    put(site, "Ärger im \U0001f3a5 Büro.mp4", films.small)
    page = open_page(site)
    with page.page.expect_download() as download:
        page.page.get_by_role("link", name="Download Ärger").click()
    assert download.value.suggested_filename == "Ärger im \U0001f3a5 Büro.mp4"
    download.value.save_as(tmp_path / "downloaded.mp4")
    assert sha256_of(tmp_path / "downloaded.mp4") == sha256_of(films.small)


def test_the_watch_page_plays_and_links_back(
    site: Server, new_context: NewContext, films: Films
) -> None:
    upload_id = put(site, "film.mp4", films.small)
    page = new_context().new_page()
    page.goto(f"{site.url}/watch/{upload_id}")
    expect(page).to_have_title("film.mp4 · Sluice")
    video = page.locator("video")
    video.evaluate("(video) => { video.muted = true; video.play(); }")
    wait_until(lambda: video.evaluate("(video) => video.currentTime > 0.3"), "it plays")
    page.get_by_role("link", name="Back to the library").click()
    expect(page.get_by_role("heading", name="Library")).to_be_visible()


def test_a_video_opened_by_its_media_url_plays(
    site: Server, new_context: NewContext, films: Films
) -> None:
    page = new_context().new_page()
    page.goto(f"{site.url}/media/{put(site, 'film.mp4', films.small)}")
    video = page.locator("video")
    wait_until(lambda: video.evaluate("(video) => video.videoWidth == 320"), "it is shown")


@pytest.mark.long
def test_closing_the_player_stops_the_video_while_uploads_continue(
    site: Server, open_page: OpenPage, films: Films
) -> None:
    put(site, "film.mp4", films.small)
    page = open_page(site)
    page.throttle(3_000_000)
    page.choose(films.middle)
    page.wait_for_progress(page.row(films.middle), 5)
    page.page.get_by_role("link", name="film.mp4", exact=True).click()
    expect(page.page.locator("player-dialog video")).to_be_visible()
    page.wait_for_progress(page.row(films.middle), 30)
    page.page.keyboard.press("Escape")
    expect(page.page.locator("player-dialog video")).to_have_count(0)
    page.wait_for_success(films.middle)


def test_a_library_of_many_pages_loads_more_as_one_scrolls(
    site: Server, open_page: OpenPage
) -> None:
    fill_library(site, 60, batch=1)
    page = open_page(site)
    page.page.mouse.move(640, 500)
    page.wait_until(lambda: scroll(page) and page.videos.count() == 60, "all are loaded")
    names = page.videos.locator(".video-row__name").all_inner_texts()
    assert names == [f"film {number}.mp4" for number in range(60, 0, -1)]


@pytest.mark.long
def test_a_library_of_ten_thousand_videos_stays_small_on_the_page(
    large_library: Server, open_page: OpenPage
) -> None:
    page = open_page(large_library)
    page.page.mouse.move(640, 500)
    page.page.evaluate(WATCH_FRAMES)
    page.wait_until(lambda: scroll(page) and page.videos.count() >= 1_500, "it is scrolled through")
    assert page.page.evaluate("frames_.longestGap") < FROZEN_SECONDS
    elements = page.page.locator("*").count()
    assert elements < page.videos.count() + 3_000, "one for each, and those of the rows in sight"
    page.page.mouse.wheel(0, -50_000)
    numbers = page.videos.evaluate_all("(rows) => rows.map((row) => Number(row.dataset.id))")
    assert numbers == list(range(VIDEOS, VIDEOS - len(numbers), -1))
    first = page.videos.first
    first.scroll_into_view_if_needed()
    first.get_by_role("button", name="Delete").click()
    page.confirm("Delete")
    expect(page.videos.first).to_contain_text(f"film {VIDEOS - 1}.mp4")


def scroll(page: UploadPage) -> bool:
    page.page.mouse.wheel(0, 2000)
    return True
