"""Watching a film: on its page, and in the dialog over the library."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, Route, expect

from tests.browser.films import Films
from tests.browser.library_tools import put
from tests.dropzone_client import ChunkedFile, send_chunk
from tests.live_server import Server
from tests.video.films import FilmStore
from tests.waiting import wait_until

pytestmark = pytest.mark.browser

FILM = "h264.mp4"
FILM_SECONDS = 12

SHOWN = "[...video.textTracks].find(({ mode }) => mode === 'showing')?.activeCues[0]?.text"
"""The subtitle on the picture."""


@pytest.fixture
def site(default_site: Server) -> Server:
    """A server that examines films."""
    return default_site


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


def play_through(video: Locator) -> None:
    """To its end, in a quarter of its time."""
    video.evaluate("(video) => { video.playbackRate = 4; }")
    wait_for(video, "video.ended")


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


def test_a_film_is_controlled_with_the_keyboard(site: Server, page: Page, film: FilmStore) -> None:
    page.goto(f"{site.url}/watch/{put(site, 'film.mp4', film(FILM))}")
    video = video_of(page)
    page.get_by_role("button", name="play", exact=True).focus()
    page.keyboard.press("Space")
    wait_for(video, "!video.paused && video.currentTime > 0")
    page.keyboard.press("k")
    wait_for(video, "video.paused")
    seek(video, 1)  # A busy machine may have come to the end meanwhile.
    page.keyboard.press("ArrowRight")
    wait_for(video, "video.currentTime >= 10")
    page.keyboard.press("ArrowLeft")
    wait_for(video, "video.currentTime < 10")
    page.keyboard.press("m")
    wait_for(video, "video.muted")
    page.keyboard.press(">")
    wait_for(video, "video.playbackRate === 1.25")


def test_a_film_goes_on_where_it_was_left_and_starts_again_once_seen(
    site: Server, page: Page, film: FilmStore
) -> None:
    address = f"{site.url}/watch/{put(site, 'film.mp4', film(FILM))}"
    page.goto(address)
    seek(video_of(page), 6)
    page.reload()
    video = video_of(page)
    wait_for(video, "video.currentTime === 6 && video.readyState >= 2")
    seek(video, FILM_SECONDS - 1)
    page.reload()
    video = video_of(page)
    wait_for(video, "video.readyState >= 1")
    assert value_of(video, "video.currentTime") == 0


def seek(video: Locator, seconds: float) -> None:
    """Seek and wait for the picture; `seeked` never comes if the page changes its source."""
    wait_for(video, "video.readyState >= 1")
    video.evaluate("(video, seconds) => { video.currentTime = seconds; }", seconds)
    is_there = f"!video.seeking && video.currentTime >= {seconds - 0.1}"
    wait_for(video, f"{is_there} && video.readyState >= 2")


class HeldRequests:
    """Requests for `url` that get no answer until `release`."""

    def __init__(self, page: Page, url: str) -> None:
        self._held: list[Route] = []
        self._is_released = False
        page.route(url, self._hold)

    def _hold(self, route: Route) -> None:
        if self._is_released:
            route.continue_()
        else:
            self._held.append(route)

    def release(self) -> None:
        self._is_released = True
        for route in self._held:
            route.continue_()


def test_a_film_keeps_the_position_that_was_sought_before_the_server_described_it(
    site: Server, page: Page, film: FilmStore
) -> None:
    """The page shows the original first, and then the file that is made for playing."""
    descriptions = HeldRequests(page, "**/api/videos/*")
    page.goto(f"{site.url}/watch/{put(site, 'film.mp4', film('open-gop.mp4'))}")
    video = video_of(page)
    wait_for(video, "video.readyState >= 1")
    video.evaluate("(video) => { video.currentTime = 4.02; }")
    descriptions.release()
    wait_for(video, "video.currentSrc.endsWith('play.mp4') && video.readyState >= 2")
    assert value_of(video, "video.currentTime") == pytest.approx(4.02, abs=0.1)


def test_a_film_that_already_plays_is_not_interrupted_when_the_server_describes_it(
    site: Server, page: Page, film: FilmStore
) -> None:
    video_id = put(site, "film.mp4", film(FILM))
    wait_until(
        lambda: site.get(f"/api/videos/{video_id}").json()["playback"]["playable"], "it is indexed"
    )
    descriptions = HeldRequests(page, "**/api/videos/*")
    page.goto(f"{site.url}/watch/{video_id}")
    video = video_of(page)
    video.evaluate("""(video) => {
        video.seeks = 0;
        video.addEventListener("seeking", () => video.seeks++);
        return video.play();
    }""")
    wait_for(video, "video.currentTime > 0.3")
    descriptions.release()
    expect(page.get_by_text("Details", exact=True)).to_be_visible()
    before = value_of(video, "video.currentTime")
    wait_for(video, f"video.currentTime > {before + 0.3}")
    assert value_of(video, "video.seeks") == 0


def test_a_film_with_open_groups_goes_on_wherever_it_is_sought(
    site: Server, page: Page, film: FilmStore
) -> None:
    video_id = put(site, "film.mp4", film("open-gop.mp4"))
    wait_until(
        lambda: site.get(f"/api/videos/{video_id}").json()["playback"]["playable"], "it is indexed"
    )
    page.goto(f"{site.url}/watch/{video_id}")
    video = video_of(page)
    for seconds in (4.02, 1.3, 10.5):
        seek(video, seconds)
        video.evaluate("(video) => video.play()")
        wait_for(video, f"video.currentTime > {seconds + 0.5}")
    play_through(video)
    assert value_of(video, "video.currentSrc").endswith("play.mp4")
    expect(page.get_by_role("status")).to_have_count(0)


def test_a_damaged_film_goes_on_after_the_damage_and_says_where_it_is(
    site: Server, page: Page, film: FilmStore
) -> None:
    page.goto(f"{site.url}/watch/{put(site, 'film.mp4', film('holed.mp4'))}")
    video = video_of(page)
    page.get_by_role("button", name="play", exact=True).click()
    play_through(video)
    assert value_of(video, "video.currentTime") == pytest.approx(FILM_SECONDS, abs=0.2)
    words = re.compile("The video is damaged at 0:0[45]. A part of the video was skipped.")
    expect(page.get_by_role("status")).to_have_text(words)
    expect(video).to_be_visible()
    seek(video, 9)
    assert value_of(video, "video.currentTime") == pytest.approx(9, abs=0.1)
    seek(video, 2)
    assert value_of(video, "video.currentTime") == pytest.approx(2, abs=0.1)


@pytest.mark.long
def test_a_film_that_was_left_at_a_damaged_place_is_not_called_unplayable(
    site: Server, page: Page, film: FilmStore
) -> None:
    page.goto(f"{site.url}/watch/{put(site, 'film.mp4', film('holed.mp4'))}")
    video = video_of(page)
    page.evaluate("""() => localStorage.setItem("sluice.positions",
        JSON.stringify({ [location.pathname.split("/").at(-1)]: 6 }))""")
    page.reload()
    video = video_of(page)
    page.get_by_role("button", name="play", exact=True).click()
    play_through(video)
    expect(page.get_by_text("This browser cannot play")).to_be_hidden()
    expect(video).to_be_visible()


def test_sound_that_the_browser_cannot_decode_is_heard_once_it_is_encoded(
    site: Server, page: Page, film: FilmStore
) -> None:
    """The film may begin without it, from the original."""
    page.goto(f"{site.url}/watch/{put(site, 'film.mp4', film('late-ac3.mp4'))}")
    wait_for(
        video_of(page), "video.play().catch(() => {}) && video.webkitAudioDecodedByteCount > 0"
    )


@pytest.mark.long
def test_another_sound_is_chosen_from_the_menu_where_the_film_goes_on(
    site: Server, page: Page, film: FilmStore
) -> None:
    page.goto(f"{site.url}/watch/{put(site, 'film.mp4', film('two-languages.mp4'))}")
    video = video_of(page)
    seek(video, 3)
    page.get_by_role("button", name="settings").click()
    page.get_by_role("menuitem", name="Sound").click()
    expect(page.get_by_role("menuitemradio", name="English")).to_be_checked()
    page.get_by_role("menuitemradio", name="German").click()
    wait_for(video, "video.currentSrc.startsWith('blob:') && video.readyState >= 2")
    assert value_of(video, "video.currentTime") == pytest.approx(3, abs=0.1)
    page.get_by_role("button", name="play", exact=True).click()
    play_through(video)


def test_subtitles_are_shown_when_asked_for(site: Server, page: Page, film: FilmStore) -> None:
    page.goto(f"{site.url}/watch/{put(site, 'film.mp4', film('subtitles.mp4'))}")
    video = video_of(page)
    expect(page.get_by_role("button", name="closed captions")).to_be_visible()
    page.get_by_role("button", name="play", exact=True).focus()
    page.keyboard.press("c")
    seek(video, 1)
    wait_for(video, f"{SHOWN} === 'Good evening'")


def test_a_film_is_watched_while_it_arrives(site: Server, page: Page, film: FilmStore) -> None:
    content = film(FILM).read_bytes()
    upload = ChunkedFile(content, len(content) * 2 // 3, filename="arriving.mp4")
    upload_id = send_chunk(site, upload, 0).json()["id"]
    page.goto(site.url)
    page.get_by_role("button", name="Watch arriving.mp4").click()
    video = video_of(page)
    wait_for(video, "video.currentTime > 0")
    expect(page.locator("video-player")).to_contain_text("Still being uploaded: 60\u00a0%")
    assert value_of(video, "video.duration") < FILM_SECONDS - 1
    assert send_chunk(site, upload, 1).json()["complete"]
    expect(page.locator(f'video-library [data-id="{upload_id}"]')).to_be_attached()
    play_through(video)
    assert value_of(video, "video.currentTime") == pytest.approx(FILM_SECONDS, abs=0.2)


def test_a_film_that_arrives_leaves_the_library_when_its_upload_is_cancelled_here(
    site: Server, page: Page, film: FilmStore
) -> None:
    content = film(FILM).read_bytes()
    upload = ChunkedFile(content, len(content) * 2 // 3, filename="unwanted.mp4")
    send_chunk(site, upload, 0)
    page.goto(site.url)
    row = page.get_by_role("button", name="Watch unwanted.mp4")
    expect(row).to_be_visible()
    picture = page.get_by_text("Nothing here yet")
    picture.locator("..").evaluate("each => { each.hidden = false; }")
    expect(picture).to_be_hidden()
    page.route("**/api/uploads", lambda _: None)  # The page is told nothing more by the server.
    page.get_by_role("button", name="Discard the upload of unwanted.mp4").click()
    page.get_by_role("button", name="Discard", exact=True).click()
    expect(row).to_be_hidden()
    expect(picture).to_be_visible()


def test_a_film_that_arrives_leaves_the_library_at_once_when_this_page_completes_it(
    site: Server, page: Page, film: FilmStore, tmp_path: Path
) -> None:
    file = tmp_path / "own.mp4"
    file.write_bytes(film(FILM).read_bytes())
    unfinished: list[dict[str, Any]] = []

    def tell_old_news(route: Route) -> None:
        """The list of unfinished uploads as it was while the film arrived."""
        if route.request.method == "GET":
            route.fulfill(json={"uploads": unfinished})
            return
        answer = route.fetch()
        playback = {"poster": None, "playable": {"hls": "/media/own.m3u8"}}
        unfinished.append(answer.json() | {"yours": True, "playback": playback})
        route.fulfill(response=answer)

    chunks: list[Route] = []
    page.route("**/api/uploads*", tell_old_news)
    page.route("**/upload?*", lambda route: chunks.append(route))  # noqa: PLW0108 - Playwright marks it
    page.goto(site.url)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose files", exact=True).click()
    chooser.value.set_files(file)
    row = page.get_by_role("button", name="Watch own.mp4").and_(
        page.locator(".video-row--arriving *")
    )
    expect(row).to_be_visible()
    page.unroute("**/upload?*")
    for chunk in chunks:
        chunk.continue_()
    expect(row).to_be_hidden()
    assert unfinished


@pytest.mark.long
def test_the_page_of_a_film_that_arrives_plays_it_and_offers_the_download_at_its_end(
    site: Server, page: Page, film: FilmStore
) -> None:
    content = film(FILM).read_bytes()
    upload = ChunkedFile(content, len(content) * 2 // 3, filename="shared-early.mp4")
    upload_id = send_chunk(site, upload, 0).json()["id"]
    page.goto(f"{site.url}/watch/{upload_id}")
    video, header = video_of(page), page.locator(".watch__header")
    wait_for(video, "video.readyState >= 2")
    expect(header).to_contain_text("still being uploaded")
    expect(header.get_by_role("link", name="Download")).to_be_hidden()
    assert send_chunk(site, upload, 1).json()["complete"]
    expect(header.get_by_role("link", name="Download")).to_be_visible()
    expect(header).not_to_contain_text("still being uploaded")
    page.get_by_role("button", name="play", exact=True).click()
    play_through(video)
    assert value_of(video, "video.currentTime") == pytest.approx(FILM_SECONDS, abs=0.2)


def test_the_page_of_a_file_that_is_no_video_offers_its_download(
    site: Server, page: Page, tmp_path: Path
) -> None:
    path = tmp_path / "notes.zip"
    path.write_bytes(b"PK" + bytes(200))
    page.goto(f"{site.url}/watch/{put(site, 'notes.zip', path)}")
    expect(page.locator("video-player")).to_contain_text("You can download it.")
    expect(page.locator("video")).to_be_hidden()
    expect(page.get_by_role("link", name="Download")).to_be_visible()
