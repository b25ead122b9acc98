"""Where every connection is slow by itself, the page opens more of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.browser.films import Films, sha256_of
from tests.browser.narrow_lanes import narrow_lanes
from tests.browser.stored import digests_of
from tests.browser.upload_page import UploadPage
from tests.live_server import Server

pytestmark = pytest.mark.browser

NARROW = 100_000
"""Bytes per second of a connection: with five of them, a film of 9 MB takes 18 s."""

ENOUGH = 8

OpenPage = Callable[..., UploadPage]


def test_lanes_are_opened_where_connections_are_slow(
    default_site: Server, open_page: OpenPage, films: Films
) -> None:
    with narrow_lanes(default_site.port, NARROW) as line:
        page = open_page(replace(default_site, port=line.port), lanes=True)
        page.choose(films.middle)
        page.wait_for_success(films.middle)
        assert line.lanes >= ENOUGH
    assert digests_of(default_site) == {films.middle.name: sha256_of(films.middle)}
