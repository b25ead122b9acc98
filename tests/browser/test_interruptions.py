"""The server disappears; the browser disappears."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.complaints import Complaints
from tests.browser.films import Films, sha256_of
from tests.browser.stored import digests_of
from tests.browser.upload_page import MIB, UploadPage
from tests.live_server import Server

pytestmark = pytest.mark.browser

LINE = MIB
"""Bytes per second: 9 seconds for the film. A busy browser may be a few seconds late."""

OpenPage = Callable[..., UploadPage]


def test_an_upload_resumes_by_itself_after_the_server_was_killed(
    site: Server, open_page: OpenPage, films: Films, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    page = open_page(site)
    page.throttle(LINE)
    page.choose(films.middle)
    row = page.row(films.middle)
    page.wait_for_progress(row, 30)
    page.slow_down()
    site.stop(signal.SIGKILL)
    expect(page.notice).to_contain_text("The server cannot be reached")
    expect(row).to_contain_text("Waiting for the connection")
    site.start()
    page.throttle(-1)
    page.wait_for_success(films.middle)
    expect(page.notice).to_be_hidden()
    assert digests_of(site) == {"middle.mp4": sha256_of(films.middle)}


@pytest.mark.long
def test_a_silent_connection_shows_no_remaining_time(
    site: Server, open_page: OpenPage, films: Films, complaints: Complaints
) -> None:
    """A line reported as lost that still brings answers shows it."""
    complaints.allow_failed_requests()
    page = open_page(site)
    page.throttle(LINE)
    page.choose(films.middle, films.small)
    row = page.row(films.middle)
    expect(row).to_contain_text("left")
    page.lose_probes()
    expect(page.notice).to_contain_text("The server cannot be reached")
    page.wait_for_progress(row, 20)
    expect(row).to_contain_text("left")
    page.throttle(1)
    for place in (row, page.totals):
        expect(place).to_contain_text("waiting for the connection")
        expect(place).not_to_contain_text("left")
    page.throttle(-1)
    page.wait_for_success(films.middle)


def test_another_browser_resumes_the_same_file(
    site: Server, open_page: OpenPage, films: Films
) -> None:
    first = open_page(site)
    first.throttle(LINE)
    first.choose(films.middle)
    first.wait_for_progress(first.row(films.middle), 40)
    first.slow_down()
    first.context.close()
    second = open_page(site)
    expect(second.waiting_rows).to_contain_text("middle.mp4")
    second.drop(films.middle)
    second.wait_for_success(films.middle)
    expect(second.waiting_rows).to_have_count(0)
    assert min(second.chunks)[0] > 0
    assert second.chunk_bytes <= 0.65 * films.middle.stat().st_size
    assert digests_of(site) == {"middle.mp4": sha256_of(films.middle)}


def test_another_file_is_not_mistaken_for_the_interrupted_one(
    site: Server, open_page: OpenPage, films: Films, tmp_path: Path
) -> None:
    site.post("/api/uploads", json={"name": "middle.mp4", "size": 9_000_000})
    page = open_page(site)
    with page.page.expect_file_chooser() as chooser:
        page.button("Choose the file for middle.mp4").click()
    chooser.value.set_files(films.small)
    expect(page.waiting_rows.get_by_role("alert")).to_contain_text("That is a different file")
    expect(page.rows).to_have_count(0)
    assert page.chunks == []


@pytest.mark.long
def test_a_second_tab_does_not_show_the_first_tabs_uploads_as_interrupted(
    site: Server, open_page: OpenPage, films: Films
) -> None:
    page = open_page(site)
    page.throttle(LINE)
    page.choose(films.middle)
    page.wait_for_progress(page.row(films.middle), 5)
    page.slow_down()
    other = page.context.new_page()
    with other.expect_response("**/api/uploads"):
        other.goto(site.url)
    other.wait_for_timeout(1000)
    waiting = other.locator("interrupted-panel [role=listitem]")

    def is_empty_after_a_look() -> bool:
        """A busy first tab may answer too late for one look."""
        other.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        other.wait_for_timeout(500)
        return waiting.count() == 0

    page.wait_until(is_empty_after_a_look, "the first tab tells that it sends the file")
    page.page.close()
    other.reload()
    expect(waiting).to_contain_text("middle.mp4")


def test_leaving_during_an_upload_asks_for_confirmation(
    site: Server, open_page: OpenPage, films: Films
) -> None:
    page = open_page(site)
    questions: list[str] = []
    page.page.on("dialog", lambda dialog: questions.append(dialog.type))
    page.reload()
    assert questions == []
    page.throttle(LINE)
    page.choose(films.middle)
    page.wait_for_progress(page.row(films.middle), 5)
    page.slow_down()
    page.reload()
    assert questions == ["beforeunload"]
