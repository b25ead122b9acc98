"""Hundreds and thousands of files at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.films import sha256_of
from tests.browser.stored import digests_of
from tests.browser.upload_page import UploadPage
from tests.live_server import Server
from tests.long_tests import long

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

COUNTS = [100, *long([300, 2000])]
"""The largest is as many as a camera's card may hold; they take 20 s on two cores."""

ELEMENTS_PER_FILE = 12
"""A row of either list has about twenty elements, but only rows near the visible part exist."""

PATIENCE_MILLISECONDS = 200_000

FROZEN_SECONDS = 3
"""A page that draws nothing for this long is frozen on any machine."""

TIMES_IDLE = 30
"""A gap is also fine up to this multiple of the longest one on the idle page."""

WATCH_FRAMES = """() => {
  const frames = (window.frames_ = { longestGap: 0 });
  let last = performance.now();
  const tick = (now) => {
    frames.longestGap = Math.max(frames.longestGap, (now - last) / 1000);
    last = now;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}"""


@pytest.mark.parametrize("count", COUNTS)
def test_many_files_arrive_while_the_page_stays_responsive(
    start_server: Callable[..., Server],
    open_page: Callable[..., UploadPage],
    tmp_path: Path,
    count: int,
) -> None:
    paths = list(make_files(tmp_path / "many", count))
    server = start_server()
    page = open_page(server)
    page.page.evaluate(WATCH_FRAMES)
    page.page.wait_for_timeout(2000)
    idle_gap = page.page.evaluate("frames_.longestGap")
    page.choose(*paths)
    done = f"{count:,} files uploaded"
    expect(page.totals).to_contain_text(done, timeout=PATIENCE_MILLISECONDS)
    longest_gap = page.page.evaluate("frames_.longestGap")
    assert longest_gap < max(FROZEN_SECONDS, TIMES_IDLE * idle_gap)
    expect(page.page.locator("upload-row.dz-success")).to_have_count(count)
    assert page.requests.count("POST /batch") <= count / 10
    assert page.page.locator("*").count() < ELEMENTS_PER_FILE * count + 3000
    assert digests_of(server) == {path.name: sha256_of(path) for path in paths}
    page.button("Clear finished").click()
    expect(page.rows).to_have_count(0)


def make_files(folder: Path, count: int) -> Iterator[Path]:
    """Make files of a kilobyte, all different."""
    folder.mkdir()
    for number in range(count):
        path = folder / f"clip {number:04}.mp4"
        path.write_bytes(f"{number:08}".encode() * 128)
        yield path
