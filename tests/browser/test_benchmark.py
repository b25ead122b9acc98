"""The benchmark of the page measures what it claims: chunks in forms and raw chunks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Request

from bench.cases.browser import WAYS, open_page, running_browser, upload_file
from bench.lib.harness import NotRunnable
from tests.browser.films import Films, sha256_of
from tests.browser.stored import digests_of
from tests.live_server import Server

pytestmark = [pytest.mark.browser, pytest.mark.long]


@pytest.mark.parametrize("way", WAYS)
def test_the_page_sends_chunks_the_way_the_benchmark_measures(
    site: Server, new_context: Callable[..., BrowserContext], films: Films, way: str
) -> None:
    requests: list[Request] = []
    page = open_page(new_context(), site.url, way)
    page.on("request", lambda request: requests.append(request))  # noqa: PLW0108 - no built-in
    assert upload_file(page, films.small) > 0
    (chunk,) = [one for one in requests if one.url.startswith(f"{site.url}/upload")]
    is_form = chunk.headers.get("content-type", "").startswith("multipart/form-data")
    assert (is_form, "?dzuuid=" in chunk.url) == (way == "form", way == "raw")
    assert digests_of(site) == {films.small.name: sha256_of(films.small)}


def test_without_a_browser_the_benchmark_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotRunnable, match="chromium"), running_browser():
        pass
