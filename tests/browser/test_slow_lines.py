"""What the page shows on slow lines, and what a broken connection costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from tests.browser.complaints import Complaints
from tests.browser.films import Films, sha256_of
from tests.browser.stored import digests_of
from tests.browser.upload_page import MIB, UploadPage
from tests.client.bad_line import BadLine, Line, Request, bad_line
from tests.live_server import Server

pytestmark = pytest.mark.browser

FIRST_CHUNK_BYTES = MIB // 2

BYTES_PER_SECOND = MIB // 2
"""Of each of the five connections of a line that breaks."""

SECONDS_AT_STAKE = 3
"""The page makes a chunk so large that it takes this long at the speed of those before it."""

OpenPage = Callable[..., UploadPage]


@pytest.fixture
def line(default_site: Server) -> Iterator[BadLine]:
    """A line to it, which outlives the page: that still asks for its library at the end."""
    with bad_line(default_site.port) as line:
        yield line


@pytest.fixture
def page(default_site: Server, open_page: OpenPage) -> UploadPage:
    return open_page(default_site)


def test_speed_and_sent_bytes_are_shown_before_the_server_has_answered_and_safe_bytes_follow(
    page: UploadPage, films: Films
) -> None:
    page.throttle(30 * 1024)  # The first chunks together take half a minute.
    page.choose(films.middle)
    row = page.row(films.middle)
    expect(row).to_contain_text(re.compile(r"KB of \d+ MB sent · 0 bytes safe · .*KB/s · .* left"))
    assert page.progress(row) == 0
    assert page.sent(row) >= 0
    bar = row.get_by_role("progressbar")
    expect(bar).to_have_attribute(
        "aria-valuetext", re.compile(r"0 bytes of \d+ MB safe on the server, \d+ KB sent")
    )
    expect(page.page.get_by_text("Safe on the server")).to_be_visible()
    expect(page.page.get_by_text("Sent, not yet confirmed")).to_be_visible()
    page.throttle(4 * MIB)
    page.wait_for_progress(row, 10)
    safe = page.progress(row)
    assert page.sent(row) >= safe
    page.throttle(-1)
    page.wait_for_success(films.middle)
    expect(page.page.get_by_text("Sent, not yet confirmed")).to_be_hidden()


def test_chunks_are_small_on_a_slow_line(page: UploadPage, films: Films) -> None:
    page.throttle(MIB)
    page.choose(films.long)
    row = page.row(films.long)
    page.wait_for_progress(row, 2)
    sizes = [end - start for start, end in page.chunks]
    assert sizes[0] <= FIRST_CHUNK_BYTES
    assert max(sizes) <= 4 * MIB
    page.throttle(-1)
    page.wait_for_success(films.long)
    assert page.chunk_bytes == films.long.stat().st_size
    assert digests_of(page.server) == {"long.mp4": sha256_of(films.long)}


@pytest.mark.long
def test_a_broken_connection_costs_only_seconds(
    default_site: Server, line: BadLine, open_page: OpenPage, films: Films, complaints: Complaints
) -> None:
    """What a line has carried of chunks that it then breaks is carried again."""
    complaints.allow_failed_requests()
    page = open_page(replace(default_site, port=line.port))
    line.bytes_per_second = BYTES_PER_SECOND
    half = films.middle.stat().st_size / 2

    def break_after_half(broken: Line, _: Request) -> None:
        if line.sent() > half:
            broken.reset()

    line.on_head = line.on_body = break_after_half
    page.choose(films.middle)
    row = page.row(films.middle)
    expect(row).to_contain_text("Waiting for the connection")
    carried, chunks = line.sent(), len(page.chunks)
    line.heal()
    page.wait_for_success(films.middle)
    carried += line.sent()
    assert 0 < carried - films.middle.stat().st_size <= SECONDS_AT_STAKE * 5 * BYTES_PER_SECOND
    start, end = page.chunks[chunks]
    assert end - start <= FIRST_CHUNK_BYTES
    assert digests_of(default_site) == {"middle.mp4": sha256_of(films.middle)}
