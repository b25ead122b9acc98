"""Failures are explained, stop what is pointless, and can be retried where that helps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.browser.complaints import Complaints
from tests.browser.films import Films, sha256_of
from tests.browser.stored import digests_of, open_uploads_of
from tests.browser.upload_page import MIB, UploadPage
from tests.live_server import Server

pytestmark = pytest.mark.browser

CHUNKS = re.compile(r"/upload\?")
"""The requests that carry chunks."""

OpenPage = Callable[..., UploadPage]


def problem(status: int, code: str, *, retryable: bool) -> Callable[[Route], None]:
    """Answers a request with a problem document."""
    document = {"status": status, "title": code, "code": code, "retryable": retryable}

    def answer(route: Route) -> None:
        content_type = "application/problem+json"
        route.fulfill(status=status, content_type=content_type, body=json.dumps(document))

    return answer


@pytest.mark.long
def test_a_file_that_is_too_large_is_refused_before_anything_is_sent(
    start_server: Callable[..., Server], open_page: OpenPage, films: Films
) -> None:
    page = open_page(start_server(SLUICE_MAX_UPLOAD_BYTES=str(MIB)))
    page.choose(films.middle, films.small)
    row = page.row(films.middle)
    expect(row).to_contain_class("dz-error")
    expect(row).to_contain_text("too large. The limit here is 1 MB.")
    expect(page.button("Try again: middle.mp4")).to_be_hidden()
    page.wait_for_success(films.small)
    sent = [request for request in page.requests if request.startswith("POST")]
    assert sent.count("POST /api/uploads") == 1
    assert set(sent) == {"POST /api/uploads", "POST /upload"}


def test_a_full_disk_is_shown_and_the_upload_can_be_retried(
    site: Server, open_page: OpenPage, films: Films, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    page = open_page(site)
    page.page.route("**/api/uploads", problem(507, "no_room", retryable=False))
    page.choose(films.small)
    row = page.row(films.small)
    expect(row).to_contain_class("dz-error")
    expect(row).to_contain_text("The server does not have enough space for this file.")
    assert page.chunks == []
    page.page.unroute("**/api/uploads")
    # A click is lost if the list moves between its press and its release.
    page.button("Try again: small.mp4").press("Enter")
    page.wait_for_success(films.small)
    expect(row).not_to_contain_class("dz-error")


@pytest.mark.long
def test_a_final_refusal_stops_only_the_chunks_of_its_file(
    site: Server, open_page: OpenPage, films: Films, complaints: Complaints, tmp_path: Path
) -> None:
    complaints.allow_failed_requests()
    other = tmp_path / "other.mp4"
    other.write_bytes(films.middle.read_bytes() + b"x")
    page = open_page(site)
    page.throttle(MIB)
    page.choose(films.middle, other)
    row = page.row(films.middle)
    page.wait_for_progress(row, 10)
    ids = {upload["filename"]: upload["id"] for upload in open_uploads_of(site)}
    site.delete(f"/api/uploads/{ids['middle.mp4']}")
    expect(row).to_contain_class("dz-error")
    expect(row).to_contain_text("expired or was cancelled elsewhere")
    page.throttle(-1)
    page.wait_for_success(other)
    chunks_until_now = len(page.chunks)
    page.page.wait_for_timeout(1000)
    assert len(page.chunks) == chunks_until_now
    assert page.chunk_bytes < 2 * films.middle.stat().st_size
    page.button("Try again: middle.mp4").click()
    page.wait_for_success(films.middle)
    digests = {"middle.mp4": sha256_of(films.middle), "other.mp4": sha256_of(other)}
    assert digests_of(site) == digests


@pytest.mark.long
def test_a_busy_server_is_retried_automatically(
    site: Server, open_page: OpenPage, films: Films, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    page = open_page(site)
    page.page.route(CHUNKS, problem(503, "server_busy", retryable=True))
    page.choose(films.small)
    expect(page.row(films.small)).to_contain_text("The server is busy")
    page.page.unroute(CHUNKS)
    page.wait_for_success(films.small)


def test_a_captive_portal_page_is_not_an_acknowledgement(
    site: Server, open_page: OpenPage, films: Films
) -> None:
    page = open_page(site)
    login = "<!doctype html><title>Log in to the hotel's network</title>"
    page.page.route(
        CHUNKS, lambda route: route.fulfill(content_type="text/html", body=login), times=1
    )
    page.choose(films.small)
    page.wait_for_success(films.small)
    assert digests_of(site) == {"small.mp4": sha256_of(films.small)}


def test_a_file_that_changes_while_it_is_sent_is_reported(
    site: Server, open_page: OpenPage, films: Films, complaints: Complaints, tmp_path: Path
) -> None:
    complaints.allow_failed_requests()
    changing = tmp_path / "changing.mp4"
    changing.write_bytes(films.middle.read_bytes())
    page = open_page(site)
    page.throttle(MIB)
    page.choose(changing)
    page.wait_for_progress(page.row(changing), 10)
    with changing.open("ab") as file:
        file.write(b"more")
    expect(page.row(changing)).to_contain_class("dz-error")
    expect(page.row(changing)).to_contain_text("can no longer be read")
