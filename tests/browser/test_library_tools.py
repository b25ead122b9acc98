"""Finding videos, and doing something with several at once."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.complaints import Complaints
from tests.browser.films import Films
from tests.browser.library_tools import (
    NAMES,
    VIDEOS,
    box,
    expect_names,
    fill_library,
    hold,
    release,
    search_field,
)
from tests.browser.stored import videos_of
from tests.browser.test_library import OpenPage, scroll
from tests.live_server import Server
from tests.long_tests import long

pytestmark = pytest.mark.browser


def test_the_list_follows_what_is_typed(clips: Server, open_page: OpenPage) -> None:
    page = open_page(clips)
    search_field(page).press_sequentially("CLIP mp4")
    expect_names(page, "clip 2.mp4", "Clip 10.mp4")
    expect(page.page.get_by_text("2 videos found", exact=True).first).to_be_visible()
    expect(page.page).to_have_url(re.compile(r"\?q=CLIP\+mp4$"))
    page.reload()
    expect(search_field(page)).to_have_value("CLIP mp4")
    expect_names(page, "clip 2.mp4", "Clip 10.mp4")
    search_field(page).fill("ETE")
    expect_names(page, "été.mp4")
    search_field(page).fill("<b>nothing</b>")
    expect(page.page.get_by_text("Nothing found for “\u2068<b>nothing</b>\u2069”")).to_be_visible()
    page.page.get_by_role("link", name="Show all videos").click()
    expect(search_field(page)).to_be_focused()
    expect_names(page, *reversed(NAMES))
    assert page.page.url == f"{clips.url}/"


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("Name, A to Z", ["clip 1.mov", "clip 2.mp4", "Clip 10.mp4", "été.mp4", "film.webm"]),
        *long([("Oldest first", NAMES), ("Largest first", NAMES[::-1])]),
    ],
)
def test_the_list_is_sorted_and_stays_so(
    clips: Server, open_page: OpenPage, order: str, names: list[str]
) -> None:
    page = open_page(clips)
    page.page.get_by_label("Sort").select_option(order)
    expect_names(page, *names)
    page.reload()
    expect_names(page, *names)


@pytest.mark.long
def test_a_long_search_loads_more_as_one_scrolls(
    large_library: Server, open_page: OpenPage
) -> None:
    page = open_page(large_library)
    search_field(page).fill("film 1")
    page.page.get_by_label("Sort").select_option("Smallest first")
    expect(page.videos.first).to_contain_text("film 1.mp4")
    page.page.mouse.move(640, 500)
    page.wait_until(lambda: scroll(page) and page.videos.count() >= 150, "more are loaded")
    ids = page.videos.evaluate_all("(rows) => rows.map((row) => Number(row.dataset.id))")
    matching = [number for number in range(1, VIDEOS) if "1" in str(number)]
    assert ids == matching[: len(ids)]


@pytest.mark.long
def test_new_videos_join_a_search_only_if_they_match(
    clips: Server, open_page: OpenPage, films: Films, tmp_path: Path
) -> None:
    page = open_page(clips)
    search_field(page).fill("clip")
    expect(page.videos).to_have_count(3)
    other, match = films.small, tmp_path / "a clip of mine.mp4"
    match.write_bytes(films.middle.read_bytes())
    page.choose(other, match)
    page.wait_for_success(other, match)
    expect_names(page, "a clip of mine.mp4", "clip 1.mov", "clip 2.mp4", "Clip 10.mp4")


@pytest.mark.long
def test_a_new_video_comes_to_its_place_in_the_order(
    clips: Server, open_page: OpenPage, films: Films
) -> None:
    page = open_page(clips)
    page.page.get_by_label("Sort").select_option("Name, A to Z")
    expect(page.videos.first).to_contain_text("clip 1.mov")
    page.choose(films.small)
    page.wait_for_success(films.small)
    in_order = ["clip 1.mov", "clip 2.mp4", "Clip 10.mp4", "été.mp4", "film.webm", "small.mp4"]
    expect_names(page, *in_order)


@pytest.mark.long
def test_a_search_that_is_entered_twice_is_made_once(clips: Server, open_page: OpenPage) -> None:
    page = open_page(clips)
    hold(page, "GET")
    search_field(page).fill("film")
    page.wait_until(lambda: page.page.evaluate("held") == 1, "it has been typed")
    search_field(page).press("Enter")
    release(page)
    expect_names(page, "film.webm")
    assert page.page.url.endswith("?q=film")
    assert page.page.evaluate("held") == 1


@pytest.mark.long
def test_a_failure_is_in_sight_until_something_else_is_done(
    site: Server, open_page: OpenPage, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    fill_library(site, 60, batch=2)
    page = open_page(site)
    problem = page.page.locator("video-library").get_by_role("alert")
    page.page.route("**/api/videos?*", lambda route: route.abort())
    search_field(page).fill("film 1")
    expect(problem).to_contain_text("Could not search the library")
    expect(problem).to_be_in_viewport(ratio=1)
    page.page.unroute("**/api/videos?*")
    search_field(page).press("Enter")
    expect(page.videos).to_have_count(15)
    expect(problem).to_have_count(0)
    search_field(page).fill("")
    expect(page.videos).to_have_count(50)
    page.page.route("**/api/videos/*", lambda route: route.abort())
    page.videos.nth(30).get_by_role("button", name="Delete").click()
    page.confirm("Delete")
    expect(problem).to_contain_text("Could not delete the video")
    expect(problem).to_be_in_viewport(ratio=1)
    page.videos.nth(30).get_by_role("button", name="Rename").click()
    expect(problem).to_have_count(0)


FOCUS_IS_COVERED = """() => {
    const focused = document.activeElement;
    if (focused.closest("selection-bar")) return false;
    const bar = document.querySelector("selection-bar").getBoundingClientRect();
    return focused.getBoundingClientRect().bottom > bar.top;
}"""


@pytest.mark.long
@pytest.mark.parametrize("width", [320, 1280])
def test_the_selection_bar_does_not_cover_what_has_the_focus(
    large_library: Server, open_page: OpenPage, width: int
) -> None:
    page = open_page(large_library, viewport={"width": width, "height": 640})
    page.videos.first.get_by_role("checkbox").check()
    for _ in range(100):
        page.page.keyboard.press("Tab")
        assert not page.page.evaluate(FOCUS_IS_COVERED)
    row = page.videos.nth(35)
    row.locator(".video-row__name").press("F2")
    row.get_by_role("textbox").fill("")
    row.get_by_role("textbox").press("Enter")
    bar = page.page.locator("selection-bar").bounding_box()
    message = row.get_by_role("alert").bounding_box()
    assert bar is not None
    assert message is not None
    assert message["y"] + message["height"] <= bar["y"]


@pytest.mark.long
def test_the_bar_says_why_so_many_videos_cannot_be_downloaded(
    large_library: Server, open_page: OpenPage
) -> None:
    page = open_page(large_library)
    page.page.mouse.move(640, 500)
    page.wait_until(lambda: scroll(page) and page.videos.count() > 1_000, "as many are loaded")
    box(page, "Select all shown").check()
    bar = page.page.get_by_role("group", name="Selected videos")
    expect(bar).to_contain_text("One download can have 1,000 videos at most.")
    expect(bar.get_by_role("button", name="Download")).to_be_disabled()


def test_several_videos_are_selected_and_deleted(
    clips: Server, open_page: OpenPage, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()  # The page may just look at one that was deleted.
    page = open_page(clips)
    bar = page.page.get_by_role("group", name="Selected videos")
    expect(bar).to_be_hidden()
    box(page, "Select clip 1.mov").check()
    expect(bar).to_contain_text("1 video selected, 5 bytes")
    box(page, "Select clip 2.mp4").click(modifiers=["Shift"])
    expect(bar).to_contain_text("3 videos selected, 12 bytes")
    expect(box(page, "Select film.webm")).to_be_checked()
    expect(box(page, "Select all shown")).to_have_js_property("indeterminate", True)
    box(page, "Select all shown").check()
    expect(bar).to_contain_text("5 videos selected, 15 bytes")
    box(page, "Select été.mp4").uncheck()
    bar.get_by_role("button", name="Delete").click()
    expect(page.page.get_by_role("dialog")).to_contain_text("Delete 4 videos?")
    page.confirm("Keep")
    expect(page.videos).to_have_count(5)
    bar.get_by_role("button", name="Delete").click()
    page.confirm("Delete 4 videos")
    expect_names(page, "été.mp4")
    expect(bar).to_be_hidden()
    expect(page.page.get_by_role("heading", name="Library")).to_be_focused()
    assert [video["filename"] for video in videos_of(clips)] == ["été.mp4"]


def test_what_is_selected_is_always_in_the_list(clips: Server, open_page: OpenPage) -> None:
    page = open_page(clips)
    bar = page.page.get_by_role("group", name="Selected videos")
    box(page, "Select all shown").check()
    search_field(page).fill("film")
    expect(page.videos).to_have_count(1)
    expect(bar).to_be_hidden()
    box(page, "Select film.webm").press("Space")
    expect(bar).to_contain_text("1 video selected")
    bar.get_by_role("button", name="Clear").press("Enter")
    expect(box(page, "Select film.webm")).not_to_be_checked()


def test_several_videos_are_downloaded_as_one_file_while_uploads_go_on(
    clips: Server, open_page: OpenPage, films: Films
) -> None:
    page = open_page(clips)
    page.throttle(2_000_000)
    page.choose(films.middle)
    page.wait_for_progress(page.row(films.middle), 5)
    for name in ("été.mp4", "film.webm"):
        box(page, f"Select {name}").check()
    with page.page.expect_download() as download:
        page.button("Download").click()
    assert download.value.suggested_filename == "2 videos.zip"
    with zipfile.ZipFile(io.BytesIO(download.value.path().read_bytes())) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            "film.webm": b"xxxx",
            "été.mp4": b"xx",
        }
    page.throttle(-1)
    page.wait_for_success(films.middle)


def test_everything_fits_a_phone(clips: Server, open_page: OpenPage) -> None:
    page = open_page(clips, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    box(page, "Select film.webm").check()
    page.button("Rename été.mp4").tap()
    for part in ("library-search", "selection-bar", ".video-row", ".rename"):
        for found in page.page.locator(part).all():
            place = found.bounding_box()
            assert place is not None
            assert place["x"] >= 0
            assert place["x"] + place["width"] <= 390, part
    assert page.page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_browser_without_scripts_searches_sorts_and_downloads(
    clips: Server, new_context: Callable[..., BrowserContext]
) -> None:
    page = new_context(java_script_enabled=False).new_page()
    page.goto(clips.url)
    page.get_by_role("searchbox").fill("CLIP")
    page.get_by_label("Sort").select_option("Name, A to Z")
    page.get_by_role("button", name="Show").click()
    names = page.locator(".video-row__name")
    expect(names).to_have_text(["clip 1.mov", "clip 2.mp4", "Clip 10.mp4"])
    expect(page.get_by_role("searchbox")).to_have_value("CLIP")
    for name in ("clip 1.mov", "Clip 10.mp4"):
        page.get_by_role("checkbox", name=f"Select {name}", exact=True).check()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the selected videos").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        assert archive.namelist() == ["clip 1.mov", "Clip 10.mp4"]
