"""Where every connection is slow by itself, the page opens more of them."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.films import Films, sha256_of
from tests.browser.narrow_lanes import NarrowLanes, narrow_lanes
from tests.browser.stored import digests_of
from tests.live_server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.browser

NARROW = 20_000
"""Bytes per second of a connection: with five of them, a film of 9 MB takes a minute and a half."""

WIDE = 1_000_000

ENOUGH = 8
PATIENCE_MILLISECONDS = 120_000


def test_lanes_are_opened_where_connections_are_slow(
    default_site: Server, any_page: Page, films: Films
) -> None:
    with narrow_lanes(default_site.port, NARROW) as line:
        send(any_page, line, "/", films)
    assert digests_of(default_site) == {films.middle.name: sha256_of(films.middle)}


@pytest.mark.long
def test_visitors_of_an_upload_link_have_lanes_too(
    default_site: Server, any_page: Page, films: Films
) -> None:
    link = default_site.post("/api/upload-links", json={"name": "Wedding films"}).json()
    path = urlsplit(link["url"]).path
    with narrow_lanes(default_site.port, NARROW) as line:
        send(any_page, line, path, films)
    assert digests_of(default_site) == {films.middle.name: sha256_of(films.middle)}


def send(page: Page, line: NarrowLanes, path: str, films: Films) -> None:
    page.goto(f"http://127.0.0.1:{line.port}{path}")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose files").click()
    chooser.value.set_files(films.middle)
    lanes = f"{path.rstrip('/')}/lanes"
    wait_until(lambda: line.opened(lanes) >= ENOUGH, f"{ENOUGH} lanes are open")
    line.bytes_per_second = WIDE
    row = page.locator("upload-row").filter(has_text=films.middle.name)
    expect(row).to_contain_class("dz-success", timeout=PATIENCE_MILLISECONDS)
