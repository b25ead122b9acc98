"""What tests of the library's tools do on the page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import requests
from playwright.sync_api import Locator, expect

from app.core.access import FIRST_PROJECT
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange, RangeSet
from app.core.upload import Upload, UploadId
from app.db.engine import Database
from app.records.uploads import UploadRecords
from tests.browser.upload_page import UploadPage
from tests.live_server import Server

NAMES = ["Clip 10.mp4", "été.mp4", "clip 2.mp4", "film.webm", "clip 1.mov"]
"""Of the videos of the fixture `clips`."""

VIDEOS = 10_000
"""In the fixture `large_library`: film 1.mp4 to film 10000.mp4, the newest last."""

LARGEST_BATCH = 1_000_000
"""Videos that `fill_library` adds at once."""


def put(server: Server, name: str, path: Path) -> str:
    """Store a file under a name without the browser; its id."""
    with path.open("rb") as file:
        files = {"file": (name, file)}
        answer = requests.post(f"{server.url}/upload", files=files, timeout=60)
    upload_id: str = answer.json()["id"]
    return upload_id


def fill_library(server: Server, count: int, *, batch: int = 0) -> None:
    """Add records of `count` videos, film 1.mp4 the oldest, without their bytes.

    A server takes each batch once: it remembers those that were deleted.
    """
    database = Database(f"sqlite:///{server.library.parent}/sluice.db", synced=False)
    UploadRecords(database).add_all([video_record(number, batch) for number in range(1, count + 1)])
    database.close()


def video_record(number: int, batch: int) -> Upload:
    moment = datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    return Upload(
        id=UploadId(f"{batch * LARGEST_BATCH + number:032}"),
        owner=FIRST_PROJECT,
        filename=f"film {number}.mp4",
        length=number,
        client_key=f"film-{batch}-{number}",
        fingerprint=None,
        created_at=moment,
        active_at=moment,
        state=UploadState.COMPLETE,
        received=RangeSet.of([ByteRange(0, number)]),
        sha256="0" * 64,
        published_at=moment,
    )


def expect_names(page: UploadPage, *names: str) -> None:
    expect(page.videos.locator(".video-row__name")).to_have_text(list(names))


def search_field(page: UploadPage) -> Locator:
    return page.page.get_by_role("searchbox", name="Search names")


def hold(page: UploadPage, method: str) -> None:
    """Make the library's requests with this method wait until `release` is called.

    The page looks by itself for films that arrive or are being prepared: those requests pass.
    """
    page.page.evaluate(
        """(method) => {
            const { fetch } = window;
            const released = new Promise((resolve) => (window.release = resolve));
            window.held = 0;
            window.fetch = async (path, options) => {
                const asked = method === "GET" ? "/api/videos?" : "/api/videos";
                if (options.method === method && path.startsWith(asked)) {
                    window.held += 1;
                    await released;
                }
                return fetch(path, options);
            };
        }""",
        method,
    )


def release(page: UploadPage) -> None:
    page.page.evaluate("release()")


def box(page: UploadPage, name: str) -> Locator:
    return page.page.get_by_role("checkbox", name=name, exact=True)
