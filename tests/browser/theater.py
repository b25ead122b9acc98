"""Plays a film of `tests.video.films` in a browser, on a bare page, and tells what it shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page

from tests.live_server import Server

SCRIPT = Path(__file__).with_name("theater.js")
HLS_JS = "/static/vendor/hls.js/hls.min.mjs"
PAGE = '<!doctype html><title>theater</title><link rel="icon" href="data:,"><body>'


@dataclass(frozen=True)
class Loaded:
    """What the browser knows of a film before it plays: seconds, and pixels as shown."""

    duration: float
    width: int
    height: int


@dataclass(frozen=True)
class Played:
    """What happened until the film ended; `shown` has time and number of frames, and when seen."""

    shown: list[tuple[float, int, float]]
    events: list[tuple[str, float]]
    ranges: list[tuple[float, float]]
    end: float


class Theater:
    """A bare page of the server's origin with one `<video>`; `quarter_turns` is its rotation."""

    def __init__(self, page: Page, server: Server, *, quarter_turns: int = 0) -> None:
        self._page = page
        self._turns = quarter_turns
        page.route(f"{server.url}/theater", lambda route: route.fulfill(body=PAGE))
        page.goto(f"{server.url}/theater")
        page.add_script_tag(content=SCRIPT.read_text(), type="module")

    def load(self, path: str, *, with_hls_js: bool = False) -> Loaded:
        """Load a film until it can be played through."""
        module = HLS_JS if with_hls_js else None
        return Loaded(**self._call("load(...argument)", [path, module]))

    def play_to_end(self, *, rate: float = 4) -> Played:
        """Play from the start at a speed."""
        argument = {"rate": rate, "quarterTurns": self._turns}
        return Played(**self._call("playToEnd(argument)", argument))

    def seek(self, time: float) -> int:
        """The number of the frame that is shown at a time in seconds."""
        argument = {"time": time, "quarterTurns": self._turns}
        number: int = self._call("seek(argument)", argument)["number"]
        return number

    def subtitles(self) -> list[list[Any]]:
        """Text, start and end of the first subtitles that hls.js has found in the playlist."""
        cues: list[list[Any]] = self._call("subtitles(argument)", None)
        return cues

    def _call(self, expression: str, argument: Any) -> Any:
        return self._page.evaluate(f"(argument) => theater.{expression}", argument)


class Audience:
    """Watches the film of a page of ours, from its beginning to its end."""

    def __init__(self, video: Locator, *, rate: float) -> None:
        self._page = video.page
        self._page.evaluate(f"async () => {{ {SCRIPT.read_text()} }}")
        video.evaluate("(video, rate) => theater.attend(video, rate)", rate)

    def at_the_end(self) -> Played:
        """What was shown, once the film has ended."""
        return Played(**self._page.evaluate("attended"))
