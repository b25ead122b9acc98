"""The live status page."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests
from playwright.sync_api import BrowserContext, Locator, Page, expect

from app.core.jobs import Lane
from app.core.playback import PlaybackProblem
from app.core.upload import UploadId
from app.db.jobs import JobRecords
from app.run.build import build_services
from app.settings import from_env
from tests.browser.complaints import Complaints
from tests.live_server import Server
from tests.long_tests import long

MIB = 1024 * 1024
TUS = {"Tus-Resumable": "1.0.0"}
PATCH = {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}


class RunningUpload:
    """An upload that sends 16 KiB twenty times a second until released."""

    def __init__(self, server: Server) -> None:
        new = {"name": "Holiday, uncut.mov", "size": 200 * MIB}
        self.id = server.post("/api/uploads", json=new).json()["id"]
        self._stop = threading.Event()
        self._url = f"{server.url}/tus/{self.id}"
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        with pytest.raises(requests.ConnectionError):
            requests.patch(self._url, data=self._body(), headers=PATCH, timeout=60)

    def _body(self) -> Iterator[bytes]:
        while not self._stop.wait(0.05):
            yield bytes(16 * 1024)
        raise requests.ConnectionError("the client goes away")

    def end(self) -> None:
        """End it like a client that leaves."""
        self._stop.set()
        self._thread.join()


@pytest.fixture
def running_upload(site: Server) -> Iterator[RunningUpload]:
    upload = RunningUpload(site)
    yield upload
    upload.end()


@pytest.fixture
def status(site: Server, new_context: Callable[..., BrowserContext]) -> Callable[..., Page]:
    def open_status(**options: Any) -> Page:
        page: Page = new_context(**options).new_page()
        page.goto(f"{site.url}/status")
        return page

    return open_status


def figure(page: Page, path: str) -> Locator:
    return page.locator(f'[data-value="{path}"]')


def test_a_running_upload_is_shown(
    status: Callable[..., Page], running_upload: RunningUpload
) -> None:
    page = status()
    expect(page.get_by_role("status")).to_have_text("Live, every second.")
    expect(figure(page, "uploads.under_way")).to_have_text("1")
    expect(figure(page, "requests.now")).to_have_text("1")
    expect(figure(page, "rates.received")).to_have_text(re.compile(r"^[1-9].* KB/s$"))
    row = page.get_by_role("listitem").filter(has_text="Holiday, uncut.mov")
    expect(row).to_contain_text(" of 210 MB")
    share = row.locator(".status-upload__share")
    before = share.inner_text()
    expect(share).not_to_have_text(before)
    expect(row.get_by_role("progressbar")).to_have_accessible_name("Progress of Holiday, uncut.mov")


def test_a_finished_upload_leaves_the_list(site: Server, status: Callable[..., Page]) -> None:
    new = {"name": "film.mp4", "size": 10}
    upload_id = site.post("/api/uploads", json=new).json()["id"]
    page = status()
    expect(page.get_by_text("film.mp4")).to_be_visible()
    site.delete(f"/api/uploads/{upload_id}")
    expect(page.get_by_text("film.mp4")).to_have_count(0)
    expect(page.get_by_text("None at the moment.")).to_be_visible()
    expect(figure(page, "uploads.under_way")).to_have_text("0")


def test_media_jobs_are_shown_and_so_is_why_one_failed(
    site: Server, status: Callable[..., Page]
) -> None:
    """Steps that no worker knows stay in the queue."""
    answer = site.post("/upload", files={"file": ("<b>été</b>.mp4", b"film")})
    video = UploadId(answer.json()["id"])
    now = datetime.now(UTC)
    with closing(build_services(from_env(site.environment)).database) as database:
        jobs = JobRecords(database)
        for argument in ("360", "720", "1080"):
            jobs.enqueue(video, "of_a_test", argument, lane=Lane.QUICK, priority=0, now=now)
        first, second = (
            jobs.claim(Lane.QUICK, "a", now, timedelta(hours=1), {"of_a_test"}) for _ in range(2)
        )
        assert first is not None
        assert second is not None
        jobs.fail(second, PlaybackProblem("bad", "It cannot be decoded."), now, retry_after=None)
        page = status()
        row = page.get_by_role("list", name="Media jobs").get_by_role("listitem")
        expect(row.filter(has_text="of_a_test 1080")).to_contain_text("<b>été</b>.mp4")
        expect(row.filter(has_text="of_a_test 360 0 %")).to_be_visible()
        failed = page.get_by_role("list", name="Failed last").get_by_role("listitem")
        expect(failed).to_contain_text("It cannot be decoded.")
        expect(figure(page, "jobs.failed")).to_have_text("1")
        assert jobs.heartbeat(first, 0.4, now, timedelta(hours=1))
        expect(row.filter(has_text="of_a_test 360 40 %")).to_be_visible()
    site.delete(f"/api/videos/{video}").raise_for_status()
    expect(row.filter(has_text="of_a_test")).to_have_count(0)


def test_updates_can_be_paused(site: Server, status: Callable[..., Page]) -> None:
    page = status()
    pause = page.get_by_role("button", name="Pause updates")
    pause.click()
    expect(page.get_by_role("status")).to_have_text("Paused.")
    expect(pause).to_have_attribute("aria-pressed", "true")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)
    assert asked == []
    pause.click()
    expect(page.get_by_role("status")).to_have_text("Live, every second.")
    assert asked


def test_a_silent_server_is_reported_and_so_is_its_return(
    status: Callable[..., Page], complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    page = status()
    page.context.set_offline(True)
    expect(page.get_by_role("status")).to_contain_text("does not answer")
    page.context.set_offline(False)
    expect(page.get_by_role("status")).to_have_text("Live, every second.")


@pytest.mark.parametrize("width", [320, *long([390, 1200])])
def test_nothing_on_the_page_is_wider_than_the_window(
    status: Callable[..., Page], width: int
) -> None:
    page = status(viewport={"width": width, "height": 800})
    expect(page.get_by_role("status")).to_have_text("Live, every second.")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
