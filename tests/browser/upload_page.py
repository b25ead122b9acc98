"""The start page in a browser, and what people and networks do to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

from playwright.sync_api import BrowserContext, Locator, Request, expect

from tests.live_server import Server

PATIENCE_SECONDS = 120
"""Far longer than any step takes, so that only a step that never happens fails."""

MIB = 1024 * 1024

TRICKLE = 40_000
"""Bytes per second of a line on which nothing ends soon. Chromium passes bodies on in large blocks:
at a lower rate the server would wait too long for the next one."""

SIZES = ("dzchunkbyteoffset", "dzchunksize", "dztotalfilesize")
"""A chunk's offset and length in its request, in bytes."""


class UploadPage:
    """`chunks` lists the bytes [start, end) of each sent chunk; `requests` every request's path.

    Without `lanes`, all chunks are sent by requests: what DevTools do to the line, they do not do
    to WebSockets.
    """

    def __init__(self, context: BrowserContext, server: Server, *, lanes: bool = False) -> None:
        self.chunks: list[tuple[int, int]] = []
        self.requests: list[str] = []
        self.context = context
        self.server = server
        if not lanes:
            context.add_init_script("delete globalThis.WebSocket")
        self.page = context.new_page()
        self.page.on("request", self._note_request)
        self.page.on("dialog", lambda dialog: dialog.accept())
        # Playwright starts to catch choosers with the first listener; a key press may be faster.
        self.page.on("filechooser", lambda _: None)
        self._devtools = context.new_cdp_session(self.page)
        self._devtools.send("Network.enable")
        self._upload_rate = -1
        self.page.goto(server.url)

    def _note_request(self, request: Request) -> None:
        path, _, query = request.url.removeprefix(self.server.url).partition("?")
        self.requests.append(f"{request.method} {path}")
        fields = {name: int(value) for name, (value,) in parse_qs(query).items() if name in SIZES}
        if fields:
            start = fields["dzchunkbyteoffset"]
            end = min(start + fields["dzchunksize"], fields["dztotalfilesize"])
            self.chunks.append((start, end))

    # ---- people --------------------------------------------------------------------------------

    def choose(self, *paths: Path) -> None:
        """Choose files with the button."""
        with self.page.expect_file_chooser() as chooser:
            self.button("Choose files").click()
        chooser.value.set_files(list(paths))

    def drop(self, *paths: Path, x: int = 60, y: int = 30) -> None:
        """Drag files from the desktop and drop them at a point of the window."""
        self.hold_over(*paths, x=x, y=y)
        self._drag("drop", paths, x, y)

    def hold_over(self, *paths: Path, x: int = 60, y: int = 30) -> None:
        """Drag files from the desktop without dropping them yet."""
        for kind in ("dragEnter", "dragOver"):
            self._drag(kind, paths, x, y)

    def _drag(self, kind: str, paths: tuple[Path, ...], x: int, y: int) -> None:
        files = [str(path) for path in paths]
        payload = {"items": [], "files": files, "dragOperationsMask": 1}
        event = {"type": kind, "x": x, "y": y, "data": payload}
        self._devtools.send("Input.dispatchDragEvent", event)

    def confirm(self, answer: str) -> None:
        """Confirm the dialog."""
        self.page.get_by_role("dialog").get_by_role("button", name=answer, exact=True).click()

    def reload(self) -> None:
        """Reload the page."""
        self.page.reload()

    # ---- the network ---------------------------------------------------------------------------

    def throttle(self, bytes_per_second: int) -> None:
        """Limit the upload to this many bytes per second; -1 removes the limit."""
        self._upload_rate = bytes_per_second
        self._set_line(is_offline=False)

    def slow_down(self) -> None:
        """Let hardly anything through: however busy the machine is, uploads do not end now."""
        self.throttle(TRICKLE)

    def go_offline(self) -> None:
        """Take the network away."""
        self._set_line(is_offline=True)

    def go_online(self) -> None:
        """Bring the network back."""
        self._set_line(is_offline=False)

    def lose_probes(self) -> None:
        """Make the browser report the network as gone, and the server not answer probes."""
        self.page.route("**/healthz", lambda route: route.abort())
        self.page.evaluate("dispatchEvent(new Event('offline'))")

    def _set_line(self, *, is_offline: bool) -> None:
        conditions = {
            "offline": is_offline,
            "latency": 0,
            "downloadThroughput": -1,
            "uploadThroughput": self._upload_rate,
        }
        self._devtools.send("Network.emulateNetworkConditions", conditions)

    # ---- what is shown -------------------------------------------------------------------------

    def button(self, name: str) -> Locator:
        """A button, by its accessible name."""
        return self.page.get_by_role("button", name=name, exact=True)

    @property
    def rows(self) -> Locator:
        """The uploads of this page."""
        return self.page.locator("upload-row")

    def row(self, path: Path) -> Locator:
        """The row of a file's upload."""
        return self.rows.filter(has_text=path.name)

    @property
    def totals(self) -> Locator:
        """The summary of all uploads."""
        return self.page.locator(".totals__text")

    @property
    def waiting_rows(self) -> Locator:
        """The uploads that wait for their file."""
        return self.page.locator("interrupted-panel [role=listitem]")

    @property
    def videos(self) -> Locator:
        """The rows of the library, without films that are still on their way."""
        return self.page.locator("video-library .video-row:not(.video-row--arriving)")

    @property
    def notice(self) -> Locator:
        """The notice about the connection."""
        return self.page.locator("connection-notice")

    @property
    def orders(self) -> list[str]:
        """The requests that ask for more than a look."""
        return [request for request in self.requests if not request.startswith("GET")]

    @property
    def chunk_bytes(self) -> int:
        """Bytes of all sent chunks, including lost ones."""
        return sum(end - start for start, end in self.chunks)

    def progress(self, row: Locator) -> float:
        """How much is safe on the server, in percent."""
        value: float = row.locator("progress").evaluate("(bar) => bar.value")
        return value

    def sent(self, row: Locator) -> float:
        """How much has left the browser, in percent."""
        read = "(meter) => parseFloat(meter.style.getPropertyValue('--sent'))"
        value: float = row.locator(".meter").evaluate(read)
        return value

    # ---- waiting -------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Poll while the browser's events arrive."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"never happened: {what}"
            self.page.wait_for_timeout(50)

    def wait_for_progress(self, row: Locator, percent: float) -> None:
        """Until the server has acknowledged so much."""
        self.wait_until(lambda: self.progress(row) >= percent, f"{percent} % have arrived")

    def wait_for_success(self, *paths: Path) -> None:
        """Until the uploads of these files are marked as Dropzone marks them."""
        for path in paths:
            expect(self.row(path)).to_contain_class("dz-success", timeout=PATIENCE_SECONDS * 1000)
