"""Uploads to a server: in chunks as ours and those of tus take them, whole, many, in batches."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

from bench.lib.client import FORM_TYPE, Connection, FileSlice, RequestFailed, form_around
from bench.lib.parallel import in_threads

CHUNK_BYTES = 20 * 1024 * 1024
"""What the page sends on a fast line: the default of SLUICE_CHUNK_BYTES."""

TUS_VERSION = {"Tus-Resumable": "1.0.0"}


class Upload(Protocol):
    """A way to upload the first `length` bytes of a file to a port."""

    def __call__(
        self, port: int, source: Path, length: int, *, chunk_bytes: int = CHUNK_BYTES
    ) -> str:
        """The id of the file, or the path to fetch it from."""
        ...


def chunks(source: Path, length: int, chunk_bytes: int) -> Iterator[FileSlice]:
    """The first `length` bytes of a file in slices of at most `chunk_bytes`."""
    for start in range(0, length, chunk_bytes):
        yield FileSlice(source, start, min(chunk_bytes, length - start))


def upload_raw(port: int, source: Path, length: int, *, chunk_bytes: int = CHUNK_BYTES) -> str:
    """Upload the first `length` bytes of a file as raw chunks; the id."""
    return _upload_chunks(port, chunks(source, length, chunk_bytes), _post_raw)


def upload_in_turn(
    port: int, source: Path, order: Iterable[int], *, chunk_bytes: int
) -> Iterator[tuple[str, int]]:
    """Upload a file's raw chunks in this order of their indexes; after each its id and length."""
    key, slices = str(uuid.uuid4()), list(chunks(source, source.stat().st_size, chunk_bytes))
    with Connection(port) as connection:
        for index in order:
            document = _post_raw(connection, _fields(key, index, slices), slices[index])
            yield document["id"], slices[index].length


def upload_form(port: int, source: Path, length: int, *, chunk_bytes: int = CHUNK_BYTES) -> str:
    """Upload the first `length` bytes of a file as Dropzone's forms; the id."""
    return _upload_chunks(port, chunks(source, length, chunk_bytes), _post_form)


def upload_tus(
    port: int, source: Path, length: int, *, base: str, chunk_bytes: int = CHUNK_BYTES
) -> str:
    """Create below the path `base`, then PATCH a chunk at a time; the path the server gave it.

    For any server of tus 1.0.0.
    """
    with Connection(port) as connection:
        # The metadata is "filename film.mp4": rustus wants some, ours keeps the name.
        headers = {"Upload-Length": str(length), "Upload-Metadata": "filename ZmlsbS5tcDQ="}
        created = connection.request(f"POST {base}", {**TUS_VERSION, **headers})
        path = urlsplit(created.headers["Location"]).path
        for body in chunks(source, length, chunk_bytes):
            patch(connection, path, body)
    return path


def patch(connection: Connection, path: str, body: FileSlice) -> None:
    """Send bytes of a file to the same place of an upload of tus."""
    headers = {
        **TUS_VERSION,
        "Upload-Offset": str(body.start),
        "Content-Type": "application/offset+octet-stream",
    }
    answer = connection.request(f"PATCH {path}", headers, body)
    if answer.headers["Upload-Offset"] != str(body.start + body.length):
        raise RequestFailed(f"the offset is {answer.headers['Upload-Offset']} after {body}")


def upload_whole(connection: Connection, source: Path) -> str:
    """Upload a file as a plain HTML form does; the id."""
    body = FileSlice(source, 0, source.stat().st_size)
    document = connection.post("/upload", FORM_TYPE, body, around=form_around({}, source.name))
    return _complete(document)


def in_order(paths: Iterable[Path], *, parallel: int, port: int) -> None:
    """Upload whole files, each connection taking the next one that is left."""
    waiting = list(paths)[::-1]

    def work(_: int) -> None:
        with Connection(port) as connection:
            while waiting:
                try:
                    path = waiting.pop()
                except IndexError:
                    return
                upload_whole(connection, path)

    in_threads(parallel, work)


def in_batches(paths: Sequence[Path], *, parallel: int, port: int) -> None:
    """Upload whole files in one request a connection, which takes its share of them."""

    def work(number: int) -> None:
        share = paths[number::parallel]
        with Connection(port) as connection:
            files = [FileSlice(path, 0, path.stat().st_size) for path in share]
            connection.post_files("/batch", files)

    in_threads(min(parallel, len(paths)), work)


_Post = Callable[[Connection, dict[str, str], FileSlice], dict[str, Any]]


def _upload_chunks(port: int, bodies: Iterable[FileSlice], post: _Post) -> str:
    key, slices = str(uuid.uuid4()), list(bodies)
    with Connection(port) as connection:
        for index, body in enumerate(slices):
            document = post(connection, _fields(key, index, slices), body)
    return _complete(document)


def _complete(document: dict[str, Any]) -> str:
    if not document["complete"]:
        raise RequestFailed(f"the upload is not complete: {document}")
    upload_id: str = document["id"]
    return upload_id


def _fields(key: str, index: int, slices: Sequence[FileSlice]) -> dict[str, str]:
    return {
        "dzuuid": key,
        "dzchunkindex": str(index),
        "dztotalfilesize": str(slices[-1].start + slices[-1].length),
        "dzchunksize": str(slices[0].length),
        "dztotalchunkcount": str(len(slices)),
        "dzchunkbyteoffset": str(slices[index].start),
    }


def _post_raw(connection: Connection, fields: dict[str, str], body: FileSlice) -> dict[str, Any]:
    query = urlencode({**fields, "filename": "film.mp4"})
    return connection.post(f"/upload?{query}", "application/octet-stream", body, around=(b"", b""))


def _post_form(connection: Connection, fields: dict[str, str], body: FileSlice) -> dict[str, Any]:
    return connection.post("/upload", FORM_TYPE, body, around=form_around(fields, "film.mp4"))
