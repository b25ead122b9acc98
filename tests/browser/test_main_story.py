"""One large video through everything that goes wrong, until it plays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Response, expect

from tests.browser.complaints import Complaints
from tests.browser.films import Films, sha256_of
from tests.browser.stored import digests_of, open_uploads_of
from tests.browser.upload_page import MIB, UploadPage
from tests.live_server import Server
from tests.long_tests import long

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

SECONDS = 26
"""How long the line takes for the whole film. Six are in flight at once in chunks of two seconds
each, and a busy browser may be several seconds late when it interrupts it."""


@pytest.mark.parametrize("size", ["long", *long(["huge"])])
def test_a_large_video_survives_an_outage_and_a_reload_and_plays(
    default_site: Server,
    open_page: Callable[..., UploadPage],
    films: Films,
    complaints: Complaints,
    size: str,
) -> None:
    complaints.allow_failed_requests()
    film: Path = getattr(films, size)
    page = open_page(default_site)
    page.throttle(film.stat().st_size // SECONDS)
    page.drop(film)
    lose_and_regain_the_line(page, page.row(film))
    reload_in_the_middle(page, film)
    only_what_is_missing_is_sent(page, film)
    upload_id = library_id(page)
    assert digests_of(page.server) == {film.name: sha256_of(film)}
    the_video_plays_and_seeks(page, upload_id, film)


def lose_and_regain_the_line(page: UploadPage, row: Locator) -> None:
    page.wait_for_progress(row, 15)
    page.go_offline()
    expect(page.notice).to_contain_text("You are offline")
    expect(row).to_contain_text("Waiting for the connection")
    before = page.progress(row)
    page.go_online()
    page.wait_for_progress(row, before + 15)
    page.slow_down()
    expect(page.notice).to_be_hidden()


def reload_in_the_middle(page: UploadPage, film: Path) -> None:
    page.reload()
    expect(page.waiting_rows).to_have_count(1)
    expect(page.waiting_rows).to_contain_text(film.name)
    expect(page.page.get_by_role("heading", name="Interrupted uploads")).to_be_visible()
    expect(page.rows).to_have_count(0)


def only_what_is_missing_is_sent(page: UploadPage, film: Path) -> None:
    missing = missing_ranges(page)
    assert 0 < length_of(missing) < film.stat().st_size
    page.chunks.clear()
    page.throttle(-1)
    with page.page.expect_file_chooser() as chooser:
        page.button(f"Choose the file for {film.name}").click()
    chooser.value.set_files(film)
    page.wait_for_success(film)
    expect(page.waiting_rows).to_have_count(0)
    assert length_of(missing) <= page.chunk_bytes <= length_of(missing) + MIB * len(missing)


def length_of(ranges: list[list[int]]) -> int:
    """In bytes."""
    return sum(end - start for start, end in ranges)


def missing_ranges(page: UploadPage) -> list[list[int]]:
    """The missing ranges, once everything that was sent has arrived."""
    page.wait_until(lambda: not running_requests(page), "the server takes in nothing more")
    (upload,) = open_uploads_of(page.server)
    missing: list[list[int]] = upload["missing"]
    return missing


def running_requests(page: UploadPage) -> int:
    """Requests that the server has not answered yet."""
    now: int = page.server.get("/api/status").json()["requests"]["now"]
    return now


def library_id(page: UploadPage) -> str:
    expect(page.videos).to_have_count(1)
    upload_id = page.videos.get_attribute("data-id")
    assert upload_id is not None
    return upload_id


def the_video_plays_and_seeks(page: UploadPage, upload_id: str, film: Path) -> None:
    starts: list[int] = []

    def note(answer: Response) -> None:
        if answer.status == 206 and f"/media/{upload_id}" in answer.url:
            starts.append(first_byte(answer))

    page.page.on("response", note)
    page.videos.get_by_role("link", name=film.name, exact=True).click()
    video = page.page.locator("player-dialog video")
    page.wait_until(lambda: video.evaluate("(video) => video.currentTime > 0.3"), "it plays")
    assert video.evaluate("(video) => video.videoWidth") == 320
    target = video.evaluate("(video) => video.duration - 4")
    seek = "(video, time) => { video.addEventListener('seeked', () => { video.sought = true; });"
    video.evaluate(f"{seek} video.currentTime = time; }}", target)
    page.wait_until(lambda: video.evaluate("(video) => video.sought === true"), "it seeks")
    onwards = f"(video) => video.currentTime > {target} + 0.3 || video.ended"
    page.wait_until(lambda: video.evaluate(onwards), "it plays on from there")
    assert video.evaluate("(video) => video.error") is None
    assert max(starts) > film.stat().st_size / 2


def first_byte(answer: Response) -> int:
    """The first byte of the requested range."""
    return int(answer.request.headers["range"].removeprefix("bytes=").split("-")[0])
