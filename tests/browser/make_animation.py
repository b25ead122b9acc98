"""Makes the README's animation: `python -m tests.browser.make_animation [FOLDER]`.

A real server, a real browser, and an upload that loses its connection. Every frame is a screenshot.
How long each is shown is decided here, so a slow machine makes the same film as a fast one. Takes
about two minutes: once for readers of light pages, once for dark ones.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Locator, expect, sync_playwright

from tests.browser.landscape import make_landscape
from tests.browser.tools import BROWSER_FLAGS, find_browser, find_program
from tests.browser.upload_page import MIB, PATIENCE_SECONDS, UploadPage
from tests.live_server import ROOT, Server, running_server

IMAGES = ROOT / "docs" / "images"

WIDTH, HEIGHT, CAPTION_HEIGHT = 860, 740, 56
"""Of the page and of the line below it, in CSS pixels; a pixel of these is two of the picture."""

SCALE = 2
STEP_PERCENT = 2
MOVING_SECONDS = 0.12
"""How far an upload has to move for the next frame, and how long each is shown."""

Scheme = Literal["light", "dark"]
CAPTION_COLOURS: dict[Scheme, tuple[str, str]] = {
    "light": ("#f6f7f4", "#14211f"),
    "dark": ("#dff0ec", "#0b5f5a"),
}
"""Of the text and of what is behind it."""

OLDER_VIDEOS = {"Harbour at dawn, drone.mp4": 77, "Graph algorithms, lecture 7.mp4": 358}
"""Names and lengths in MiB."""

FILM = ("Alpine crossing, day 2.mp4", 240)
BYTES_PER_SECOND = 10 * MIB


@dataclass
class Recording:
    """Frames of one page, each with what is said below it and how long it is shown."""

    page: UploadPage
    folder: Path
    caption: str = ""
    frames: list[tuple[Path, str, float]] = field(default_factory=list)

    def take(self, seconds: float) -> None:
        """Add what the page shows now."""
        path = self.folder / f"{len(self.frames):04}.png"
        self.page.page.screenshot(path=path)
        self.frames.append((path, self.caption, seconds))

    def follow(self, row: Locator, percent: float) -> None:
        """Add a frame for every step, until so much has been sent."""
        wanted = 0.0
        while wanted < percent and not is_complete(row):
            self.page.wait_until(partial(self._has_reached, row, wanted), f"{wanted} % sent")
            self.take(MOVING_SECONDS)
            wanted = self.page.sent(row) + STEP_PERCENT

    def _has_reached(self, row: Locator, percent: float) -> bool:
        return is_complete(row) or self.page.sent(row) >= percent


def is_complete(row: Locator) -> bool:
    """Whether Dropzone has marked it so."""
    return "dz-success" in (row.get_attribute("class") or "")


def make_animations(target: Path) -> None:
    """Writes page-light.webp and page-dark.webp."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        films = [folder / name for name in (*OLDER_VIDEOS, FILM[0])]
        for film, size in zip(films, (*OLDER_VIDEOS.values(), FILM[1]), strict=True):
            make_landscape(film, seconds=8, length=size * MIB)
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=list(BROWSER_FLAGS)
        )
        for scheme in CAPTION_COLOURS:
            frames = folder / scheme
            frames.mkdir()
            with running_server(frames, SLUICE_CHUNK_BYTES=str(16 * MIB)) as server:
                fill_library(server, films[:-1])
                recording = record(browser, server, frames, films[-1], scheme)
            assemble(
                recording, captions(browser, recording, scheme), target / f"page-{scheme}.webp"
            )
        browser.close()


def fill_library(server: Server, films: list[Path]) -> None:
    """Videos of earlier days."""
    for film in films:
        with film.open("rb") as file:
            server.post("/upload", files={"file": (film.name, file)}).raise_for_status()


def record(browser: Browser, server: Server, folder: Path, film: Path, scheme: Scheme) -> Recording:
    """The whole story."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT},
        device_scale_factor=SCALE,
        locale="en",
        color_scheme=scheme,
    )
    recording = Recording(UploadPage(context, server), folder)
    drop(recording, film)
    lose_the_line(recording, recording.page.row(film))
    go_on(recording, recording.page.row(film))
    play(recording, film)
    context.close()
    return recording


def drop(recording: Recording, film: Path) -> None:
    """Drag the film onto the page, and see the first half arrive."""
    page = recording.page
    page.page.mouse.move(2, 2)
    recording.caption = "Drop a video of any size"
    recording.take(1.2)
    page.throttle(BYTES_PER_SECOND)
    page.hold_over(film)
    page.page.wait_for_timeout(400)
    recording.take(0.8)
    page.drop(film)
    expect(page.row(film)).to_be_visible()
    recording.caption = "You see what is sent, and what is safe on the server"
    recording.follow(page.row(film), 45)


def lose_the_line(recording: Recording, row: Locator) -> None:
    """The network goes away, and the upload waits for it."""
    page = recording.page
    page.go_offline()
    recording.caption = "The network is gone: the upload waits"
    expect(page.notice).to_be_visible(timeout=PATIENCE_SECONDS * 1000)
    expect(row).to_have_attribute("data-state", "waiting", timeout=PATIENCE_SECONDS * 1000)
    recording.take(2.4)


def go_on(recording: Recording, row: Locator) -> None:
    """The network is back, and the rest is sent."""
    page = recording.page
    page.go_online()
    expect(page.notice).to_be_hidden(timeout=PATIENCE_SECONDS * 1000)
    recording.caption = "It is back: only the rest is sent"
    recording.follow(row, 100)
    expect(row).to_contain_class("dz-success", timeout=PATIENCE_SECONDS * 1000)
    recording.caption = "Verified, and in the library"
    page.page.wait_for_timeout(1000)
    recording.take(1.4)


def play(recording: Recording, film: Path) -> None:
    """The film plays from the server, and in another quality once somebody chooses that."""
    page = recording.page
    page.videos.filter(has_text=film.name).locator("[data-part=play]").click()
    dialog = page.page.locator("dialog[open]")
    video = dialog.locator("media-controller > video")
    video.evaluate("(video) => video.pause()")
    recording.caption = "Ready to watch, a second after its last byte"
    show(recording, video, range(10))
    recording.caption = "Other qualities are made when they are watched"
    dialog.locator("media-settings-menu-button").click()
    dialog.get_by_role("menuitem", name="Quality").click()
    smaller = dialog.get_by_role("menuitemradio", name="360p")
    expect(smaller).to_be_visible()
    page.page.wait_for_timeout(500)
    recording.take(1.4)
    smaller.click()
    page.page.keyboard.press("Escape")
    show(recording, video, range(10, 22))


def show(recording: Recording, video: Locator, steps: range) -> None:
    """Some moments of the film, a quarter of a second apart."""
    for step in steps:
        video.evaluate(
            "(video, time) => new Promise((done) => {"
            " video.onseeked = done; video.currentTime = time; })",
            step * 0.25 + 0.01,
        )
        recording.take(0.16)


def captions(browser: Browser, recording: Recording, scheme: Scheme) -> dict[str, Path]:
    """A picture of each line of text."""
    colour, ground = CAPTION_COLOURS[scheme]
    page = browser.new_page(
        viewport={"width": WIDTH, "height": CAPTION_HEIGHT}, device_scale_factor=SCALE
    )
    pictures: dict[str, Path] = {}
    for _, text, _ in recording.frames:
        if text not in pictures:
            pictures[text] = recording.folder / f"caption-{len(pictures)}.png"
            page.set_content(
                f'<body style="margin:0;display:grid;place-items:center;height:100vh;'
                f'background:{ground};color:{colour};font:600 21px system-ui,sans-serif">{text}'
            )
            page.screenshot(path=pictures[text])
    page.close()
    return pictures


def assemble(recording: Recording, captions: dict[str, Path], target: Path) -> None:
    """One animated picture, captions below the page."""
    screens = write_list(
        recording.folder / "screens", [(path, time) for path, _, time in recording.frames]
    )
    lines = write_list(
        recording.folder / "captions",
        [(captions[text], time) for _, text, time in recording.frames],
    )
    command = [find_program("ffmpeg"), "-v", "error", "-y"]
    for path in (screens, lines):
        command += ["-f", "concat", "-safe", "0", "-i", str(path)]
    command += ["-filter_complex", "[0][1]vstack", "-fps_mode", "vfr", "-loop", "0"]
    command += ["-c:v", "libwebp_anim", "-lossless", "0", "-quality", "80"]
    subprocess.run([*command, str(target)], check=True)


def write_list(path: Path, entries: list[tuple[Path, float]]) -> Path:
    """For ffmpeg's concat demuxer; it ignores the last duration unless the file is named again."""
    lines = [f"file '{picture}'\nduration {seconds}" for picture, seconds in entries]
    path.write_text("\n".join([*lines, f"file '{entries[-1][0]}'"]) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    make_animations(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
