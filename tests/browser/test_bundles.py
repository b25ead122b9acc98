"""Many small files are sent in few requests, and each succeeds or fails by itself."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.complaints import Complaints
from tests.browser.films import sha256_of
from tests.browser.stored import digests_of, videos_of
from tests.browser.upload_page import PATIENCE_SECONDS, UploadPage
from tests.live_server import Server

pytestmark = pytest.mark.browser

OpenPage = Callable[..., UploadPage]


def make_folder(folder: Path, count: int, *, length: int = 50_000) -> dict[str, str]:
    """Make a folder with a subfolder; the names its files get on the server, and digests."""
    made = {}
    for number in range(count):
        path = folder / f"day {number % 2}" / f"clip {number:02}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{number:08}".encode() * (length // 8))
        made[f"{folder.name}/day {number % 2}/{path.name}"] = sha256_of(path)
    return made


def expect_all_stored(page: UploadPage, count: int) -> None:
    done = page.page.locator("upload-row.dz-success")
    expect(done).to_have_count(count, timeout=PATIENCE_SECONDS * 1000)


def batches(page: UploadPage) -> int:
    return page.requests.count("POST /batch")


def test_a_dropped_folder_is_sent_in_few_requests(
    site: Server, open_page: OpenPage, tmp_path: Path
) -> None:
    files = make_folder(tmp_path / "trip", 40)
    page = open_page(site)
    page.drop(tmp_path / "trip")
    expect_all_stored(page, 40)
    assert digests_of(site) == files
    assert 1 <= batches(page) <= 10
    assert page.chunks == []
    expect(page.rows.first).to_contain_text("in the library")
    expect(page.rows.first.get_by_role("link", name="Open")).to_be_visible()


def test_a_folder_dropped_again_is_recognised(
    site: Server, open_page: OpenPage, tmp_path: Path
) -> None:
    files = make_folder(tmp_path / "trip", 8)
    page = open_page(site)
    page.drop(tmp_path / "trip")
    expect_all_stored(page, 8)
    page.reload()
    page.drop(tmp_path / "trip")
    expect_all_stored(page, 8)
    expect(page.rows.first).to_contain_text("already in the library")
    assert sorted(video["filename"] for video in videos_of(site)) == sorted(files)


@pytest.mark.long
def test_refused_files_say_why_and_the_others_arrive(
    start_server: Callable[..., Server],
    open_page: OpenPage,
    tmp_path: Path,
    complaints: Complaints,
) -> None:
    complaints.allow_failed_requests()  # A file sent by itself is refused with 415.
    files = make_folder(tmp_path / "mixed", 12)
    (tmp_path / "mixed" / "notes.txt").write_text("not a video")
    server = start_server(SLUICE_ALLOWED_EXTENSIONS="mp4")
    page = open_page(server)
    page.drop(tmp_path / "mixed")
    expect_all_stored(page, 12)
    refused = page.row(tmp_path / "mixed" / "notes.txt")
    expect(refused).to_contain_class("dz-error")
    expect(refused).to_contain_text("Files of this type are not accepted")
    expect(page.totals).to_contain_text("1 file failed")
    assert digests_of(server) == files


def test_a_broken_connection_loses_nothing_and_stores_nothing_twice(
    site: Server, open_page: OpenPage, tmp_path: Path, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    files = make_folder(tmp_path / "cut", 30, length=100_000)
    page = open_page(site)
    page.slow_down()
    page.drop(tmp_path / "cut")
    page.wait_until(lambda: page.sent(page.rows.first) > 0, "something is on its way")
    page.go_offline()
    expect(page.notice).to_be_visible()
    page.throttle(-1)
    expect_all_stored(page, 30)
    assert digests_of(site) == files
    assert len(videos_of(site)) == 30


def test_a_server_killed_midway_stores_each_file_once(
    site: Server, open_page: OpenPage, tmp_path: Path, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    files = make_folder(tmp_path / "killed", 30, length=100_000)
    page = open_page(site)
    page.throttle(1_000_000)
    page.drop(tmp_path / "killed")
    page.wait_until(lambda: videos_of(site), "some are stored")
    site.restart(signal.SIGKILL)
    page.throttle(-1)
    expect_all_stored(page, 30)
    assert digests_of(site) == files
    assert len(videos_of(site)) == 30


def test_a_file_cancelled_while_it_is_sent_is_not_stored(
    site: Server, open_page: OpenPage, tmp_path: Path, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()  # The page may look at the cancelled one until it is gone.
    files = make_folder(tmp_path / "some", 12, length=400_000)
    page = open_page(site)
    page.slow_down()
    page.drop(tmp_path / "some")
    page.wait_until(lambda: page.sent(page.rows.first) > 0, "the first is on its way")
    name = page.rows.first.locator("[data-part=name]").inner_text()
    page.button(f"Cancel {name}").click()
    expect(page.rows).to_have_count(11)
    page.throttle(-1)
    expect_all_stored(page, 11)
    expected = {path: digest for path, digest in files.items() if not path.endswith(name)}
    page.wait_until(lambda: len(videos_of(site)) == 11, "the cancelled one is gone")
    assert digests_of(site) == expected


@pytest.mark.long
def test_paused_bundles_wait_and_resume(site: Server, open_page: OpenPage, tmp_path: Path) -> None:
    files = make_folder(tmp_path / "rest", 30, length=100_000)
    page = open_page(site)
    page.slow_down()
    page.drop(tmp_path / "rest")
    page.wait_until(lambda: page.sent(page.rows.first) > 0, "the first is on its way")
    page.button("Pause all").click()
    expect(page.button("Pause all")).to_be_hidden()
    expect(page.rows.last).to_contain_text("paused")
    before = batches(page)
    page.throttle(-1)
    page.page.wait_for_timeout(500)
    assert batches(page) == before
    page.button("Resume all").click()
    expect_all_stored(page, 30)
    assert digests_of(site) == files


@pytest.mark.long
def test_a_file_changed_on_disk_fails_without_the_others(
    site: Server, open_page: OpenPage, tmp_path: Path, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    files = make_folder(tmp_path / "odd", 40, length=200_000)
    page = open_page(site)
    page.slow_down()
    page.drop(tmp_path / "odd")
    page.wait_until(lambda: batches(page) > 0, "a bundle is on its way")
    changed = tmp_path / "odd" / "day 1" / "clip 11.mp4"
    changed.write_bytes(b"other bytes")
    page.throttle(-1)
    expect(page.row(changed)).to_contain_class("dz-error", timeout=PATIENCE_SECONDS * 1000)
    expect(page.row(changed)).to_contain_text("can no longer be read")
    expect_all_stored(page, 39)
    del files["odd/day 1/clip 11.mp4"]
    assert digests_of(site) == files
