"""Other qualities of a film, on its page: watched while they are made, and downloaded."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PATIENCE_MILLISECONDS
from tests.browser.theater import Audience
from tests.long_tests import long
from tests.video.films import FilmStore
from tests.video.frames import watch
from tests.video.shelf import Shelf, Shelved

pytestmark = [pytest.mark.browser, pytest.mark.e2e]

FILM = "av1.mp4"
"""Browsers play it as it is; as not all do, it is offered in H.264, too."""

QUALITY = "360p"
FRAMES_LOST = 12
"""Pictures, half a second."""
FRAMES_PER_SECOND = 25
RATE = 0.5
"""How fast the film is played."""

PLAY_AND_NOTE = """async (video) => {
    await video.play();
    const note = () => (globalThis.beganAt = video.currentTime);
    video.addEventListener("loadedmetadata", note, { once: true });
}"""
"""Once the menu is open: a slow machine opens it while half of the film goes by."""


def open_page(page: Page, shelf: Shelf, film: Shelved) -> None:
    page.set_default_timeout(PATIENCE_MILLISECONDS)
    page.goto(shelf.server.url + film.path.replace("/media/", "/watch/"))
    expect(page.locator("media-controller > video")).to_be_attached()


@pytest.mark.long
def test_the_film_goes_on_where_it_is_in_another_quality(shelf: Shelf, any_page: Page) -> None:
    film = shelf.with_qualities(FILM)
    open_page(any_page, shelf, film)
    video = any_page.locator("video")
    audience = Audience(video, rate=RATE)
    any_page.get_by_role("button", name="settings").click()
    any_page.get_by_role("menuitem", name="Quality").click()
    video.evaluate(PLAY_AND_NOTE)
    any_page.wait_for_function("() => document.querySelector('video').currentTime > 0.1")
    reached = video.evaluate("(video) => video.currentTime")
    any_page.get_by_role("menuitemradio", name=QUALITY).click()
    any_page.wait_for_function(
        "() => document.querySelector('video').currentSrc.startsWith('blob:')"
    )
    changed_at = video.evaluate("(video) => video.currentTime")
    played = audience.at_the_end()
    began_at = any_page.evaluate("beganAt")
    assert began_at >= reached, "a slow browser shows where its source begins"
    assert changed_at < film.playback["duration"] - 0.5
    # Pictures run ahead of `currentTime` in Chromium, which moves only as sound is rendered: on a
    # busy machine some are shown again, but none from before the time that the film goes on at.
    # Chromium may also show the first picture of a new source for a moment: it counts nowhere.
    steps = [*pairwise(picture for picture in played.shown if picture[1] > 0)]
    repeated = [after for (_, before, _), (_, after, _) in steps if after < before]
    assert all(number >= began_at * FRAMES_PER_SECOND - 1 for number in repeated)
    assert max(skipped(before, after) for before, after in steps) <= FRAMES_LOST
    assert played.end == pytest.approx(film.playback["duration"], abs=0.1)


def skipped(before: tuple[float, int, float], after: tuple[float, int, float]) -> float:
    """Pictures between two that were seen, without those that the time between them explains."""
    seconds = after[2] - before[2]
    return after[1] - before[1] - seconds * RATE * FRAMES_PER_SECOND


def test_a_quality_is_made_downloaded_and_deleted(
    shelf: Shelf, film: FilmStore, browser: Browser, tmp_path: Path
) -> None:
    page = browser.new_page()
    open_page(page, shelf, shelf.with_qualities(FILM))
    page.get_by_text("Download in another quality").click()
    page.get_by_role("button", name=f"Make {QUALITY}").press("Enter")
    with page.expect_download() as download:
        page.get_by_role("link", name=f"Download {QUALITY}").click()
    assert download.value.suggested_filename == f"av1 {QUALITY}.mp4"
    download.value.save_as(tmp_path / "made.mp4")
    made, original = watch(tmp_path / "made.mp4"), watch(film(FILM))
    assert [frame.number for frame in made.frames] == [frame.number for frame in original.frames]
    page.get_by_role("button", name=f"Delete {QUALITY}").press("Enter")
    expect(page.get_by_role("button", name=f"Make {QUALITY}")).to_be_focused()
    page.close()


@pytest.mark.parametrize("name", ["hevc.mp4", *long(["prores.mov"])])
def test_a_film_that_the_browser_cannot_decode_plays_in_another_quality(
    shelf: Shelf, browser: Browser, name: str
) -> None:
    film = shelf.with_qualities(name)
    page = browser.new_page()
    open_page(page, shelf, film)
    page.get_by_role("button", name="play", exact=True).click()
    video = page.locator("video")
    page.wait_for_function("() => document.querySelector('video').ended")
    assert video.evaluate("(video) => [video.videoWidth, video.videoHeight]") == [160, 96]
    end = video.evaluate("(video) => video.currentTime")
    assert end == pytest.approx(film.playback["duration"], abs=0.1)
    page.close()


def test_where_a_quality_cannot_be_made_the_film_goes_on_as_it_was_uploaded(
    shelf: Shelf, browser: Browser
) -> None:
    film = shelf.with_qualities(FILM)
    page = browser.new_page()
    refuse(page, "2.m4s")
    open_page(page, shelf, film)
    page.get_by_role("button", name="settings").click()
    page.get_by_role("menuitem", name="Quality").click()
    page.get_by_role("menuitemradio", name=QUALITY).click()
    page.wait_for_function("() => document.querySelector('video').currentSrc.startsWith('blob:')")
    # The player may load the original at this moment, which rejects the promise of play().
    page.locator("video").evaluate("(video) => void video.play().catch(() => {})")
    page.wait_for_function("() => document.querySelector('video').ended")
    expect(page.get_by_role("status")).to_have_text(
        "360p cannot be played here. From here on, the video is shown as it was uploaded."
    )
    assert page.locator("video").evaluate("(video) => video.currentSrc").endswith("play.mp4")
    page.close()


def test_a_part_that_cannot_be_made_is_skipped_where_there_is_nothing_else(
    shelf: Shelf, browser: Browser
) -> None:
    film = shelf.with_qualities("hevc.mp4")
    page = browser.new_page()
    refuse(page, "1.m4s")
    open_page(page, shelf, film)
    page.get_by_role("button", name="play", exact=True).click()
    page.wait_for_function("() => document.querySelector('video').ended")
    expect(page.get_by_role("status")).to_contain_text("A part of the video was skipped.")
    page.close()


def refuse(page: Page, segment: str) -> None:
    """Let the server be unable to make a segment."""
    problem = {"code": "rendition_failed", "detail": "The picture is damaged."}
    page.route(
        f"**/hls/360/{segment}",
        lambda route: route.fulfill(
            status=422, json=problem, content_type="application/problem+json"
        ),
    )
