"""Renews the README's picture of the page: `python -m tests.browser.make_picture [FILE]`.

A real server and real uploads in all the states that the page shows together.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.films import encode, repeat
from tests.browser.tools import BROWSER_FLAGS, find_browser, find_program
from tests.browser.upload_page import MIB, UploadPage
from tests.live_server import ROOT, Server, running_server

PICTURE = ROOT / "docs" / "images" / "page.png"

VIDEOS = {
    "Harbour at dawn, drone, take 2.mp4": 3,
    "Lecture 07 - Graph algorithms.mp4": 14,
    "Wedding Ana and Jonas, ceremony.mov": 22,
    "Workshop interview, camera B.mp4": 9,
}
"""Oldest first; how many times the film of 26 MB."""

UPLOADS = {"Concert 14 November, full set.mp4": 30, "Rough cut v3.mp4": 18}

INTERRUPTED = ("Alpine crossing, day 2.mp4", 412 * MIB, 255 * MIB)
"""Name, bytes, and how many of them have arrived."""


def make_picture(target: Path) -> None:
    """Takes about half a minute."""
    executable = find_browser()
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as playwright,
        running_server(Path(folder), SLUICE_CHUNK_BYTES=str(4 * MIB)) as server,
    ):
        base = Path(folder) / "base.mp4"
        encode(base, size="640x360", seconds=8, bits_per_second="24M")
        fill_library(server, base)
        leave_interrupted(server)
        flags = list(BROWSER_FLAGS)
        browser = playwright.chromium.launch(executable_path=executable, args=flags)
        page = page_with_uploads(browser, server, base)
        take(page, target)
        browser.close()


def film(base: Path, name: str, times: int) -> Path:
    """A film of that name and so many times the length."""
    path = base.parent / name
    repeat(base, path.with_suffix(".mp4"), times - 1)
    return path.with_suffix(".mp4").rename(path)


def fill_library(server: Server, base: Path) -> None:
    """Finished videos, each removed from the disk once it is stored."""
    for number, (name, times) in enumerate(VIDEOS.items()):
        path = film(base, name, times)
        size = path.stat().st_size
        with path.open("rb") as file:
            send_first_chunk(server, file, key=f"film-{number}", name=name, size=size, total=size)
        path.unlink()


def leave_interrupted(server: Server) -> None:
    """An upload of which a part has arrived, from a browser that is gone."""
    name, total, arrived = INTERRUPTED
    key = server.post("/api/uploads", json={"name": name, "size": total}).json()["id"]
    with Path("/dev/zero").open("rb") as zeros:
        pieces = (zeros.read(MIB) for _ in range(arrived // MIB))
        send_first_chunk(server, pieces, key=key, name=name, size=arrived, total=total)


def send_first_chunk(
    server: Server, body: Iterable[bytes], *, key: str, name: str, size: int, total: int
) -> None:
    """The first `size` of `total` bytes, raw, under Dropzone's names."""
    fields = {
        "filename": name,
        "dzuuid": key,
        "dzchunkindex": 0,
        "dztotalfilesize": total,
        "dzchunksize": size,
        "dztotalchunkcount": -(-total // size),
        "dzchunkbyteoffset": 0,
    }
    server.post("/upload", params=fields, data=body).raise_for_status()


def page_with_uploads(browser: Browser, server: Server, base: Path) -> Page:
    """Two uploads under way, far enough apart to be told apart."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 1180}, device_scale_factor=1.5, locale="en"
    )
    page = UploadPage(context, server)
    paths = [film(base, name, times) for name, times in UPLOADS.items()]
    page.throttle(60 * MIB)
    page.choose(*paths)
    page.wait_for_progress(page.row(paths[0]), 41)
    page.throttle(24 * MIB)
    page.page.wait_for_timeout(6000)
    return page.page


def take(page: Page, target: Path) -> None:
    """The whole page, without a focus ring, in 256 colours."""
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(2, 2)
    target.parent.mkdir(parents=True, exist_ok=True)
    picture = page.screenshot(full_page=True)
    palette = "split[a][b];[a]palettegen=reserve_transparent=0[p];[b][p]paletteuse=dither=none"
    png = ["-pix_fmt", "pal8", "-pred", "none", "-compression_level", "100"]
    command = [find_program("ffmpeg"), "-v", "error", "-y", "-i", "-", "-vf", palette, *png]
    subprocess.run([*command, str(target)], input=picture, check=True)


if __name__ == "__main__":
    make_picture(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
