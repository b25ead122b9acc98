"""A page with one upload library from npm, on the origin of a line that may break."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, Route

from tests.live_server import ROOT

PACKAGES = ROOT / "node_modules"

MODULES = {
    "@rpldy/abort": "@rpldy/abort/lib/esm/index.js",
    "@rpldy/chunked-sender": "@rpldy/chunked-sender/lib/esm/index.js",
    "@rpldy/life-events": "@rpldy/life-events/lib/esm/index.js",
    "@rpldy/raw-uploader": "@rpldy/raw-uploader/lib/esm/index.js",
    "@rpldy/sender": "@rpldy/sender/lib/esm/index.js",
    "@rpldy/shared": "@rpldy/shared/lib/esm/index.js",
    "@rpldy/simple-state": "@rpldy/simple-state/lib/esm/index.js",
    "@rpldy/uploader": "@rpldy/uploader/lib/esm/index.js",
    "huge-uploader": "huge-uploader/src/index.js",
    "just-throttle": "just-throttle/index.mjs",
}
"""Entry points that a bundler would read from the packages' descriptions."""

_IMPORTED = re.compile(r'(?<=from ")(\.[^"]+)(?=")')

PATIENCE_MILLISECONDS = 60_000


class LibraryPage:
    """A page at `url`, with the scripts of a library and a place to pick a file."""

    def __init__(self, context: BrowserContext, url: str, scripts: tuple[str, ...]) -> None:
        self._scripts = scripts
        context.route("**/library/**", self._serve)
        self.page: Page = context.new_page()
        self.page.goto(f"{url}/library/page.html")

    def upload(self, start: str, path: Path) -> None:
        """Set the library up, and choose a file."""
        self.page.evaluate(start)
        self.page.set_input_files("#pick", path)

    def outcome(self) -> str:
        """The outcome that the library reports."""
        self.page.wait_for_function("outcome !== null", timeout=PATIENCE_MILLISECONDS)
        return str(self.page.evaluate("outcome"))

    def _serve(self, route: Route) -> None:
        path = route.request.url.partition("/library/")[2]
        if path == "page.html":
            route.fulfill(body=self._html(), content_type="text/html")
        else:
            file = PACKAGES / path
            text = _IMPORTED.sub(lambda name: _as_a_bundler(file, name[1]), file.read_text())
            if "@rpldy" in path:  # Two of its modules are CommonJS.
                text = text.replace("module.exports =", "export default")
            route.fulfill(body=text, content_type="text/javascript")

    def _html(self) -> str:
        imports = {name: f"/library/{path}" for name, path in MODULES.items()}
        imports["invariant"] = "data:text/javascript,export default () => {}"
        return "".join(
            [
                '<!doctype html><title>library</title><link rel="icon" href="data:,">',
                f'<script type="importmap">{json.dumps({"imports": imports})}</script>',
                "<script>window.outcome = null; window.process = { env: {} };</script>",
                *(f'<script src="/library/{script}"></script>' for script in self._scripts),
                '<input id="pick" type="file"><button id="button">Pick</button>',
            ]
        )


def _as_a_bundler(file: Path, name: str) -> str:
    """A module's name with the file extension that browsers need and packages leave out."""
    if (file.parent / name).is_dir():
        return f"{name}/index.js"
    return name if name.endswith(".js") else f"{name}.js"
