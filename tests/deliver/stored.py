"""A stored file on a server, and requests for parts of it."""

from __future__ import annotations

from dataclasses import dataclass

import requests

from tests.deliver.parts import ReceivedPart, parts_of
from tests.dropzone_client import form_body, form_headers
from tests.live_server import Server

TYPE = "multipart/byteranges; boundary="


@dataclass
class Stored:
    """A file on a server."""

    server: Server
    id: str

    @property
    def path(self) -> str:
        """The path it is served at."""
        return f"/media/{self.id}"

    @property
    def url(self) -> str:
        """The URL it is served at."""
        return self.server.url + self.path

    def ask(self, ranges: str, **headers: str) -> requests.Response:
        """The answer to a Range header, with others such as `If_Range`."""
        others = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.server.get(self.path, headers={"Range": ranges, **others})


def store(server: Server, name: str, content: bytes) -> Stored:
    """Upload a whole file."""
    body = form_body({}, [(name, content)])
    return Stored(server, server.post("/upload", data=body, headers=form_headers()).json()["id"])


def received_parts(response: requests.Response) -> list[ReceivedPart]:
    """The parts of a multipart answer."""
    content_type = response.headers["Content-Type"]
    assert content_type.startswith(TYPE)
    return parts_of(response.content, content_type.removeprefix(TYPE))
