"""A server with one film whose rendition takes some looks to make, and may fail or be refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.dropzone_client import random_bytes

FILM = "f" * 32
RENDITION = random_bytes(300_000, 7)


@dataclass
class FilmServer:
    """`states` are those of the rendition, one for each look after it was asked for."""

    states: list[dict[str, Any]] = field(default_factory=list)
    playback: dict[str, Any] = field(default_factory=dict)
    refusal: dict[str, Any] | None = None
    requests: list[str] = field(default_factory=list)
    has_rendition: bool = False
    url: str = ""

    def video(self) -> dict[str, Any]:
        """The document of the film."""
        state: dict[str, Any] = {"state": "on_demand", "progress": None}
        if self.has_rendition:
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        renditions = [{"height": 720, **state}]
        return {"id": FILM, "playback": {**self.playback, "renditions": renditions}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, film: FilmServer, *arguments: Any) -> None:
        self._film = film
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self._film.requests.append(f"GET {self.path}")
        if self.path == f"/api/videos/{FILM}":
            self._answer(HTTPStatus.OK, self._film.video())
        else:
            self._send_rendition()

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self._film.requests.append(f"POST {self.path}")
        if self._film.refusal is not None:
            self._answer(HTTPStatus(self._film.refusal["status"]), self._film.refusal)
            return
        self._film.has_rendition = True
        self._answer(HTTPStatus.ACCEPTED, self._film.video())

    def _answer(self, status: HTTPStatus, document: dict[str, Any]) -> None:
        self._send(status, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _send_rendition(self) -> None:
        headers = {"ETag": '"one"', "Content-Type": "video/mp4"}
        wanted = self.headers.get("Range")
        if wanted is None:
            self._send(HTTPStatus.OK, RENDITION, headers)
            return
        start, end = map(int, wanted.removeprefix("bytes=").split("-"))
        headers["Content-Range"] = f"bytes {start}-{end}/{len(RENDITION)}"
        self._send(HTTPStatus.PARTIAL_CONTENT, RENDITION[start : end + 1], headers)

    def _send(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextmanager
def film_server() -> Iterator[FilmServer]:
    """It listens on a port of its own."""
    film = FilmServer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, film))
    film.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield film
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
