"""A small tus 1.0.0 client that lets a test get every detail wrong."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urljoin

from tests.conformance.wire import Connection, Reply, exchange

VERSION = "1.0.0"
CHUNK_TYPE = "application/offset+octet-stream"
GONE = {403, 404, 410}
"""Statuses for an unknown upload (core protocol, HEAD)."""

SETTLE_SECONDS = 15
"""A server may take this long to notice that a client is gone."""


def base64_of(value: bytes | str) -> str:
    """Base64, the way metadata and checksums are written."""
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


@dataclass(frozen=True)
class Tus:
    """A tus server, by the URL at which uploads are created."""

    url: str

    @cached_property
    def options(self) -> Reply:
        """The server's answer to OPTIONS."""
        return exchange("OPTIONS", self.url)

    @property
    def extensions(self) -> list[str]:
        """Names of the announced extensions."""
        return self.options.items("Tus-Extension")

    @property
    def algorithms(self) -> list[str]:
        """Names of the announced checksum algorithms."""
        return self.options.items("Tus-Checksum-Algorithm")

    def request(
        self, method: str, url: str, body: bytes = b"", /, **fields: str | int | None
    ) -> Reply:
        """The answer to a request; `Upload_Offset=0` is a header, None leaves one out."""
        return exchange(method, url, headers_of(**fields), body)

    def post(self, body: bytes = b"", /, **fields: str | int | None) -> Reply:
        """The answer to a request for a new upload."""
        return self.request("POST", self.url, body, **fields)

    def create(self, length: int | None = None, /, **fields: str | int | None) -> str:
        """The URL of a new upload; without a length it is deferred."""
        kind: dict[str, str | int | None] = {"Upload_Length": length}
        if length is None:
            kind = {"Upload_Defer_Length": 1}
        return self.location(self.post(**{**kind, **fields}))

    def create_with(self, content: bytes, /, **fields: str | int | None) -> str:
        """The URL of a new upload that has all of its bytes."""
        url = self.create(len(content), **fields)
        if content:
            assert self.patch(url, 0, content).status == 204
        return url

    def concatenate(self, *parts: str, **fields: str | int | None) -> Reply:
        """The answer to a request for a final upload of these URLs."""
        return self.post(Upload_Concat="final;" + " ".join(parts), **fields)

    def location(self, reply: Reply) -> str:
        """The URL of the created upload, which may be relative to the request's."""
        assert reply.status == 201, reply
        return urljoin(self.url, reply["Location"])

    def head(self, url: str, /, **fields: str | int | None) -> Reply:
        """The answer to a HEAD request."""
        return self.request("HEAD", url, **fields)

    def patch(
        self, url: str, offset: int | str | None, body: bytes = b"", /, **fields: str | int | None
    ) -> Reply:
        """The answer to a PATCH request."""
        defaults: dict[str, str | int | None] = {
            "Upload_Offset": offset,
            "Content_Type": CHUNK_TYPE,
        }
        return self.request("PATCH", url, body, **{**defaults, **fields})

    def delete(self, url: str, /, **fields: str | int | None) -> Reply:
        """The answer to a DELETE request."""
        return self.request("DELETE", url, **fields)

    def offset(self, url: str) -> int:
        """How many bytes an upload has."""
        return int(self.head(url)["Upload-Offset"])

    def settled_offset(self, url: str, wanted: int) -> int:
        """The offset once it is `wanted`, or whatever it is after a while."""
        return settled(lambda: int(self.head(url).get("Upload-Offset") or -1), wanted)

    def half_sent(self, url: str, offset: int, length: int, body: bytes) -> Connection:
        """A PATCH of `length` bytes of which only `body` was sent."""
        connection = Connection(url)
        head = headers_of(Upload_Offset=offset, Content_Type=CHUNK_TYPE, Content_Length=length)
        connection.begin("PATCH", url, head)
        connection.send_and_stall(body)
        return connection


def settled(ask: Callable[[], int], wanted: int) -> int:
    """The result of `ask` once it is `wanted`, or whatever it is after a while."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while (value := ask()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return value


def headers_of(**fields: str | int | None) -> dict[str, str]:
    """Header fields, given with `_` for `-`; `Tus-Resumable` is added unless it is None."""
    defaults: dict[str, str | int | None] = {"Tus_Resumable": VERSION}
    return {
        name.replace("_", "-"): str(value)
        for name, value in {**defaults, **fields}.items()
        if value is not None
    }
