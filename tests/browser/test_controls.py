"""Pause, resume and cancel, for one upload and for all."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.films import Films, sha256_of
from tests.browser.stored import digests_of, open_uploads_of
from tests.browser.upload_page import MIB, UploadPage
from tests.live_server import Server

pytestmark = pytest.mark.browser

LINE = MIB
"""Bytes per second: the film of 9 MB takes 9 seconds."""


@pytest.fixture
def page(site: Server, open_page: Callable[..., UploadPage]) -> UploadPage:
    """The page, over a slow line."""
    page = open_page(site)
    page.throttle(LINE)
    return page


def test_a_paused_upload_sends_nothing_until_it_is_resumed(page: UploadPage, films: Films) -> None:
    page.choose(films.middle)
    row = page.row(films.middle)
    page.wait_for_progress(row, 20)
    page.slow_down()
    page.button("Pause middle.mp4").click()
    expect(row).to_contain_text("paused")
    orders_until_now, progress = page.orders, page.progress(row)
    page.page.wait_for_timeout(1500)
    assert page.orders == orders_until_now
    assert page.progress(row) == progress
    page.chunks.clear()
    page.throttle(-1)
    page.button("Resume middle.mp4").click()
    page.wait_for_success(films.middle)
    assert page.chunk_bytes <= films.middle.stat().st_size * (1 - progress / 100) + MIB
    assert digests_of(page.server) == {"middle.mp4": sha256_of(films.middle)}


def test_cancelling_asks_first_and_then_leaves_nothing_on_the_server(
    page: UploadPage, films: Films
) -> None:
    staged_before = staged(page.server)
    page.choose(films.middle)
    page.wait_for_progress(page.row(films.middle), 20)
    page.slow_down()
    assert staged(page.server) != staged_before
    page.button("Cancel middle.mp4").click()
    page.confirm("Keep it")
    expect(page.row(films.middle)).to_have_attribute("data-state", "sending")
    page.button("Cancel middle.mp4").click()
    page.confirm("Cancel the upload")
    expect(page.rows).to_have_count(0)
    page.wait_until(lambda: open_uploads_of(page.server) == [], "the server forgets it")
    page.wait_until(lambda: staged(page.server) == staged_before, "its bytes are removed")
    page.page.wait_for_timeout(500)
    assert page.orders[-1].startswith("DELETE /api/uploads/")
    page.reload()
    expect(page.button("Choose files")).to_be_visible()
    expect(page.waiting_rows).to_have_count(0)


def staged(server: Server) -> list[str]:
    """The files in the staging folder."""
    return sorted(path.name for path in server.staging.iterdir())


@pytest.mark.long
def test_a_speed_limit_holds_for_all_uploads_and_is_remembered(
    site: Server, open_page: Callable[..., UploadPage], films: Films
) -> None:
    page = open_page(site)
    page.choose(films.small)
    page.wait_for_success(films.small)
    page.page.get_by_label("Speed limit").select_option("5 MB/s")
    chosen_at = time.monotonic()
    page.choose(films.middle)
    page.wait_for_success(films.middle)
    # The last chunk leaves when those before it would have passed.
    assert time.monotonic() - chosen_at >= (films.middle.stat().st_size - MIB) / 5_000_000
    page.reload()
    page.choose(films.small)
    expect(page.page.get_by_label("Speed limit").locator(":checked")).to_have_text("5 MB/s")


def test_all_uploads_are_paused_resumed_and_cancelled_together(
    page: UploadPage, films: Films, tmp_path: Path
) -> None:
    paths = [tmp_path / f"part {number}.mp4" for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(films.middle.read_bytes() + bytes(number))
    page.choose(*paths)
    page.wait_for_progress(page.row(paths[0]), 5)
    page.button("Pause all").click()
    for path in paths:
        expect(page.row(path)).to_have_attribute("data-state", "paused")
    orders_until_now = page.orders
    page.page.wait_for_timeout(1000)
    assert page.orders == orders_until_now
    page.button("Resume all").click()
    expect(page.button("Resume all")).to_be_hidden()
    page.wait_for_progress(page.row(paths[0]), page.progress(page.row(paths[0])) + 5)
    page.button("Cancel all").click()
    page.confirm("Cancel all")
    expect(page.rows).to_have_count(0)
    page.wait_until(lambda: open_uploads_of(page.server) == [], "the server forgets them")


def test_an_interrupted_upload_is_discarded_after_confirmation(
    page: UploadPage, films: Films
) -> None:
    page.choose(films.middle)
    page.wait_for_progress(page.row(films.middle), 10)
    page.slow_down()
    page.reload()
    page.button("Discard the upload of middle.mp4").click()
    page.confirm("Discard")
    expect(page.waiting_rows).to_have_count(0)
    assert open_uploads_of(page.server) == []
