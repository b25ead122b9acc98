"""Chunks as other libraries send them to /upload; each is recorded from its release in Chromium."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote

import requests

from tests.dropzone_client import form_body, form_headers
from tests.live_server import Server

Sent = tuple[dict[str, str], dict[str, str], str]
"""Fields, headers, and the name of the file part."""


@dataclass(frozen=True)
class LibraryFile:
    """A file in chunks of `chunk_bytes`, and the library that sends it."""

    library: str
    content: bytes
    chunk_bytes: int
    filename: str
    more: tuple[tuple[str, str], ...] = ()
    """Fields or headers that the page adds."""
    browser: str = "a browser"

    @property
    def sha256(self) -> str:
        return sha256(self.content).hexdigest()

    @property
    def count(self) -> int:
        return -(-len(self.content) // self.chunk_bytes)

    def chunk(self, index: int) -> bytes:
        return self.content[index * self.chunk_bytes : (index + 1) * self.chunk_bytes]

    def send(self, server: Server, index: int) -> requests.Response:
        fields, headers, name = LIBRARIES[self.library](self, index)
        body = form_body(fields, [(name, self.chunk(index))])
        headers = {**form_headers(), **headers, "User-Agent": self.browser}
        return server.post("/upload", data=body, headers=headers)

    def send_all(self, server: Server) -> requests.Response:
        responses = [self.send(server, index) for index in range(self.count)]
        assert {response.status_code for response in responses} == {200}, responses[-1].text
        return responses[-1]


def blueimp(file: LibraryFile, index: int) -> Sent:
    disposition = f'attachment; filename="{quote(file.filename)}"'
    headers = {"Content-Range": content_range(file, index), "Content-Disposition": disposition}
    return dict(file.more), headers, file.filename


def uploady(file: LibraryFile, index: int) -> Sent:
    return dict(file.more), {"Content-Range": content_range(file, index)}, file.filename


def content_range(file: LibraryFile, index: int) -> str:
    start = index * file.chunk_bytes
    return f"bytes {start}-{start + len(file.chunk(index)) - 1}/{len(file.content)}"


def plupload(file: LibraryFile, index: int) -> Sent:
    fields = {"name": file.filename, "chunk": str(index), "chunks": str(file.count)}
    return {**fields, **dict(file.more)}, {}, "blob"


def plupload_by_offset(file: LibraryFile, index: int) -> Sent:
    offset, total = index * file.chunk_bytes, len(file.content)
    fields = {"name": file.filename, "offset": str(offset), "total": str(total)}
    return {**fields, **dict(file.more)}, {}, "blob"


def webuploader(file: LibraryFile, index: int) -> Sent:
    fields = {
        "id": "WU_FILE_0",
        "name": file.filename,
        "type": "video/mp4",
        "lastModifiedDate": "Sun Nov 22 2026 03:00:00 GMT+0000 (Coordinated Universal Time)",
        "size": str(len(file.content)),
        "chunks": str(file.count),
        "chunk": str(index),
    }
    return {**dict(file.more), **fields}, {}, file.filename


def huge_uploader(file: LibraryFile, index: int) -> Sent:
    headers = {
        "uploader-file-id": str(
            int(sha256(file.filename.encode() + file.content).hexdigest()[:12], 16)
        ),
        "uploader-chunks-total": str(file.count),
        "uploader-chunk-number": str(index),
    }
    return {}, {**headers, **dict(file.more)}, "blob"


def simple_uploader(file: LibraryFile, index: int) -> Sent:
    fields = {
        "chunkNumber": str(index + 1),
        "chunkSize": str(file.chunk_bytes),
        "currentChunkSize": str(len(file.chunk(index))),
        "totalSize": str(len(file.content)),
        "identifier": f"{len(file.content)}-{file.filename.replace('.', '')}",
        "filename": file.filename,
        "relativePath": file.filename,
        "totalChunks": str(file.count),
    }
    return fields, {}, file.filename


LIBRARIES: dict[str, Callable[[LibraryFile, int], Sent]] = {
    "blueimp": blueimp,
    "uploady": uploady,
    "plupload": plupload,
    "plupload_by_offset": plupload_by_offset,
    "webuploader": webuploader,
    "huge_uploader": huge_uploader,
    "simple_uploader": simple_uploader,
}
