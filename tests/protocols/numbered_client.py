"""Sends chunks as Resumable.js and Flow.js do: numbered from 1, with a longer last one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import requests

from tests.dropzone_client import form_body, form_headers
from tests.live_server import Server

RAW_HEADERS = {"Content-Type": "application/octet-stream", "Accept": "*/*"}


@dataclass
class NumberedFile:
    """A file to send; `prefix` is that of the fields, `path` the dialect's URL."""

    content: bytes
    chunk_bytes: int
    prefix: str
    path: str
    filename: str = "film.mp4"
    identifier: str | None = None

    @cached_property
    def sha256(self) -> str:
        """Of the whole file."""
        return sha256(self.content).hexdigest()

    @property
    def count(self) -> int:
        """Number of chunks; a remainder is added to the last one."""
        return max(1, len(self.content) // self.chunk_bytes)

    def chunk(self, number: int) -> bytes:
        """The bytes of one chunk."""
        start = (number - 1) * self.chunk_bytes
        end = None if number == self.count else start + self.chunk_bytes
        return self.content[start:end]

    def fields(self, number: int) -> dict[str, str]:
        """The fields of a chunk."""
        kept = "".join(c for c in self.filename if c.isascii() and (c.isalnum() or c in "_-"))
        values = {
            "ChunkNumber": number,
            "ChunkSize": self.chunk_bytes,
            "CurrentChunkSize": len(self.chunk(number)),
            "TotalSize": len(self.content),
            "Identifier": self.identifier or f"{len(self.content)}-{kept}",
            "Filename": self.filename,
            "RelativePath": self.filename,
            "TotalChunks": self.count,
        }
        return {self.prefix + name: str(value) for name, value in values.items()}

    def probe(self, server: Server, number: int) -> int:
        """The status of the test request for a chunk."""
        return server.get(self.path, params=self.fields(number)).status_code

    def send(self, server: Server, number: int, **changed: str) -> requests.Response:
        """POST one chunk as a form, with some fields changed."""
        fields = {**self.fields(number), **{self.prefix + k: v for k, v in changed.items()}}
        body = form_body(fields, [("blob", self.chunk(number))])
        return server.post(self.path, data=body, headers=form_headers())

    def send_raw(self, server: Server, number: int) -> requests.Response:
        """POST one raw chunk, with the fields in the query string."""
        return server.post(
            self.path, params=self.fields(number), data=self.chunk(number), headers=RAW_HEADERS
        )

    def send_all(self, server: Server) -> dict[str, Any]:
        """POST every chunk in order; the last answer."""
        for number in range(1, self.count + 1):
            response = self.send(server, number)
            assert response.status_code == 200, response.text
        document: dict[str, Any] = response.json()
        return document
