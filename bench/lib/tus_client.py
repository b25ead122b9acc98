"""Uploads with tus 1.0.0: create, then a PATCH a chunk. For any server of the protocol."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from bench.lib.client import Connection, FileSlice, RequestFailed, chunks

VERSION = {"Tus-Resumable": "1.0.0"}


def upload_tus(port: int, source: Path, length: int, *, base: str) -> str:
    """Upload the start of a file below the path `base`; the path the server gave it."""
    with Connection(port) as connection:
        # The metadata is "filename film.mp4": rustus wants some, ours keeps the name.
        headers = {"Upload-Length": str(length), "Upload-Metadata": "filename ZmlsbS5tcDQ="}
        created = connection.request(f"POST {base}", {**VERSION, **headers})
        path = urlsplit(created.headers["Location"]).path
        for body in chunks(source, length):
            _patch(connection, path, body)
    return path


def _patch(connection: Connection, path: str, body: FileSlice) -> None:
    headers = {
        **VERSION,
        "Upload-Offset": str(body.start),
        "Content-Type": "application/offset+octet-stream",
    }
    answer = connection.request(f"PATCH {path}", headers, body)
    if answer.headers["Upload-Offset"] != str(body.start + body.length):
        raise RequestFailed(f"the offset is {answer.headers['Upload-Offset']} after {body}")
