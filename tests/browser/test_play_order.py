"""A film with its index at the end is sent so that it can be played while it arrives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from playwright.sync_api import Route

from tests.browser.films import Films, index_last, sha256_of
from tests.browser.stored import digests_of, open_uploads_of
from tests.browser.test_errors import CHUNKS
from tests.browser.upload_page import UploadPage
from tests.live_server import Server

pytestmark = pytest.mark.browser

OpenPage = Callable[..., UploadPage]

CHUNKS_AT_ONCE = 5

BEGUN_FIRST = CHUNKS_AT_ONCE + 1
"""Of those that begin together, the one leaves first whose checksum is known first."""


@pytest.fixture(scope="module")
def camera_film(films: Films, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The film of 9 MB as a camera would have written it."""
    path = tmp_path_factory.mktemp("camera") / "camera.mp4"
    index_last(films.middle, path)
    return path


def test_the_first_ranges_that_the_server_has_are_the_head_and_the_index(
    site: Server, open_page: OpenPage, camera_film: Path
) -> None:
    size = camera_film.stat().st_size
    page, held, goes_on = open_page(site), list[Route](), Event()

    def hold_after_the_first(route: Route) -> None:
        if goes_on.is_set() or len(page.chunks) <= BEGUN_FIRST:
            route.continue_()
        else:
            held.append(route)

    page.page.route(CHUNKS, hold_after_the_first)
    page.choose(camera_film)
    page.wait_until(lambda: has_head_and_end(site, size), "the head and the index have arrived")
    goes_on.set()
    for route in held:
        route.continue_()
    page.wait_for_success(camera_film)
    assert page.chunk_bytes == size
    starts = [start for start, _ in page.chunks]
    assert {0, max(starts)} <= set(starts[:BEGUN_FIRST])
    rest = [start for start in starts if start not in {0, max(starts)}]
    moved = [abs(sorted(rest).index(start) - place) for place, start in enumerate(rest)]
    assert max(moved) <= CHUNKS_AT_ONCE
    assert digests_of(site) == {"camera.mp4": sha256_of(camera_film)}


def has_head_and_end(server: Server, size: int) -> bool:
    received = [u["received"] for u in open_uploads_of(server)]
    return any(ranges and ranges[0][0] == 0 and ranges[-1][1] == size for ranges in received)
