"""A site of another origin, with a page that loads npm packages as modules."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.live_server import ROOT

PACKAGES = ROOT / "node_modules"

ENTRIES = {
    "@transloadit/prettier-bytes": "dist/prettierBytes.js",
    "@uppy/companion-client": "lib/index.js",
    "@uppy/core": "lib/index.js",
    "@uppy/store-default": "lib/index.js",
    "@uppy/tus": "lib/index.js",
    "@uppy/utils": "lib/index.js",
    "is-network-error": "index.js",
    "js-base64": "base64.mjs",
    "mime-match": "index.js",
    "namespace-emitter": "index.js",
    "nanoid/non-secure": "index.js",
    "p-retry": "index.js",
    "preact": "dist/preact.module.js",
    "preact/hooks": "dist/hooks.module.js",
    "preact/jsx-runtime": "dist/jsxRuntime.module.js",
    "querystringify": "index.js",
    "requires-port": "index.js",
    "retry": "index.js",
    "tus-js-client": "lib.esm/browser/index.js",
    "url-parse": "index.js",
    "wildcard": "index.js",
}
"""Entry points that a bundler would read from the packages' descriptions."""

TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".json": "application/json"}

_EXPORTS = re.compile(r"\b(module\.exports|exports\.\w+)\s*=")
_REQUIRED = re.compile(r"""\brequire\(['"]([^'"]+)['"]\)""")


def page() -> str:
    """The page, with a place to pick a file and the names of the packages."""
    imports = {name: f"/packages/{name}/{entry}" for name, entry in ENTRIES.items()}
    imports["lodash/"] = "/packages/lodash/"
    return (
        '<!doctype html><title>another site</title><link rel="icon" href="data:,">'
        f'<script type="importmap">{json.dumps({"imports": imports})}</script>'
        '<input id="pick" type="file">'
    )


def as_module(text: str) -> str:
    """A script as a module: a CommonJS one exports what `require` would return."""
    if not _EXPORTS.search(text):
        return text
    names = sorted(set(_REQUIRED.findall(text)))
    imports = "".join(
        f"import required{index} from {json.dumps(_with_ending(name))};\n"
        for index, name in enumerate(names)
    )
    table = ", ".join(f"{json.dumps(name)}: required{index}" for index, name in enumerate(names))
    return (
        f"{imports}const module = {{ exports: {{}} }};\nconst exports = module.exports;\n"
        f"const require = (name) => ({{ {table} }})[name];\nconst global = globalThis;\n"
        f"(function () {{\n{text}\n}}).call(exports);\nexport default module.exports;\n"
    )


def _with_ending(name: str) -> str:
    is_complete = not name.startswith(".") or name.endswith(".js")
    return name if is_complete else f"{name}.js"


class Handler(BaseHTTPRequestHandler):
    """Serves the page and the packages."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/":
            self._answer(200, "text/html; charset=utf-8", page())
            return
        file = (PACKAGES / path.removeprefix("/packages/")).resolve()
        if not file.is_relative_to(PACKAGES.resolve()) or not file.is_file():
            self._answer(404, "text/plain", "there is no such file")
            return
        text = file.read_text()
        is_script = file.suffix in {".js", ".mjs"}
        self._answer(200, TYPES[file.suffix], as_module(text) if is_script else text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def module_site() -> Iterator[int]:
    """The site's port, on which it answers as 127.0.0.1 and as localhost: two origins."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
