"""Uploads a stream of unknown length, such as standard input, by tus (creation-defer-length).

A chunk stays in memory until the server has it, so that a broken connection costs a chunk and no
more. A stream cannot be read twice: a command that ends cannot be continued, and its upload is
cancelled.
"""

from __future__ import annotations

import io
import select
import threading
from base64 import b64encode
from contextlib import suppress
from typing import Any, BinaryIO

from sluice_client.errors import ContentMismatch, FileProblem, Interrupted, Refused, SluiceError
from sluice_client.hashing import FileHash, compare, in_transit
from sluice_client.progress import Meter, Phase, ProgressListener
from sluice_client.transport import Transport
from sluice_client.uploader import Uploaded, await_checksum

CHUNK_BYTES = 20 * 1024 * 1024
"""Held in memory."""

PIECE_BYTES = 1024 * 1024
"""Read from a pipe at once; Linux lets it hold no more."""

LOOK_SECONDS = 0.1
"""How often to look whether to stop, while a pipe has nothing to read."""

LATE_STOP_SECONDS = 0.2
"""Ctrl-C ends the program that writes to a pipe as well as this one, which may see the pipe's end
before the signal."""

VERSION = {"Tus-Resumable": "1.0.0"}

CHECKSUM_MISMATCH = 460
"""A chunk was damaged on its way; defined by tus (section Checksum)."""

MOST_MISMATCHES = 5
"""How often a chunk is sent again that is damaged, or in the wrong place, each time."""


def upload_stream(
    transport: Transport, stream: BinaryIO, name: str, listener: ProgressListener | None = None
) -> Uploaded:
    """The bytes up to the stream's end as a file on the server, complete and verified.

    Raises any `SluiceError`; the upload is then cancelled, or the file deleted.
    """
    meter = Meter(name, None, listener)
    upload_id = _create(transport, name)
    try:
        running = FileHash(in_transit())
        length = _send(transport, f"/tus/{upload_id}", stream, meter, running)
        meter.report(Phase.VERIFYING)
        document = await_checksum(transport, upload_id, length, running.kind)
        is_verified = document.get(running.kind) is not None
        if is_verified:
            compare(running.kind, running.result(), document, name)
    except BaseException:
        for path in (f"/api/uploads/{upload_id}", f"/api/videos/{upload_id}"):
            with suppress(SluiceError):  # It may be complete already.
                transport.request("DELETE", path)
        raise
    meter.report(Phase.DONE)
    media = str(document["media"])
    return Uploaded(
        path="-",
        name=name,
        id=upload_id,
        length=length,
        sha256=document.get("sha256"),
        crc32c=document.get("crc32c"),
        media=media,
        url=f"{transport.base_url}{media}",
        sent=length,
        is_verified=is_verified,
    )


def _create(transport: Transport, name: str) -> str:
    metadata = f"filename {b64encode(name.encode()).decode()}"
    headers = {**VERSION, "Upload-Defer-Length": "1", "Upload-Metadata": metadata}
    made = transport.patiently(lambda: transport.request("POST", "/tus/", headers=headers))
    return made.headers.get("Location", "").rstrip("/").rpartition("/")[2]


def _send(
    transport: Transport, path: str, stream: BinaryIO, meter: Meter, running: FileHash
) -> int:
    """Send all of the stream, and add it to the checksum; its length in bytes."""
    chunks = _Chunks(stream, transport.stop)
    start = 0
    is_last = False
    while not is_last:
        chunk = chunks.read()
        is_last = len(chunk) < CHUNK_BYTES
        running.update(chunk)
        end = start + len(chunk)
        _send_chunk(transport, path, chunk, start, meter, length=end if is_last else None)
        start = end
    return start


class _Chunks:
    """Reads a stream; raises `Interrupted` once `stop` is set, even while a pipe has nothing."""

    def __init__(self, stream: BinaryIO, stop: threading.Event) -> None:
        self._stream: Any = stream
        self._stop = stop
        raw = getattr(stream, "raw", stream)
        # A file says when it can be read. A socket may not: TLS keeps bytes to itself.
        self._file = raw if isinstance(raw, io.FileIO) else None

    def read(self) -> bytes:
        """The next `CHUNK_BYTES`, or what is left up to the stream's end."""
        chunk = io.BytesIO()
        while (left := CHUNK_BYTES - chunk.tell()) and (piece := self._piece(left)):
            chunk.write(piece)
        return chunk.getvalue()

    def _piece(self, most: int) -> bytes:
        """What there is, at most so many bytes; nothing at the stream's end only."""
        while True:
            self._wait_until_readable()
            try:
                piece: bytes | None = self._read(min(most, PIECE_BYTES))
            except OSError as error:
                raise FileProblem(f"Standard input cannot be read: {error.strerror}") from error
            is_end_of_file = self._file is not None and piece == b""
            self._wait_for_stop(LATE_STOP_SECONDS if is_end_of_file else 0)
            if piece is not None:
                return piece
            self._wait_for_stop(LOOK_SECONDS)  # It does not wait by itself, and has nothing yet.

    def _read(self, most: int) -> Any:
        if self._file is None:
            return self._stream.read(most)
        if self._file is self._stream:
            return self._file.read(most)
        # A buffer that is empty returns nothing both at the end and before the next bytes come.
        return self._stream.read1(most) or self._file.read(most)

    def _wait_until_readable(self) -> None:
        if self._file is None:
            return
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        while not poll.poll(LOOK_SECONDS * 1000):
            self._wait_for_stop(0)

    def _wait_for_stop(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Interrupted("Stopped.")


def _send_chunk(
    transport: Transport,
    path: str,
    chunk: bytes,
    start: int,
    meter: Meter,
    *,
    length: int | None,
) -> None:
    """Send a chunk, after a failure what the server does not have of it.

    `length` is that of the whole stream, once it is known.
    """
    patience = transport.patience()
    patience.on_wait = meter.waiting
    offset, end, failures = start, start + len(chunk), 0
    while True:
        try:
            _patch(transport, path, chunk[offset - start :], offset, length)
        except SluiceError as error:
            failures += 1
            if not _is_mismatch(error) or failures > MOST_MISMATCHES:
                patience.wait_after(error, failures)
            found, has_length = _progress(transport, path)
            if not start <= found <= end:
                raise ContentMismatch("Another program has written to this upload.") from error
        else:
            found, has_length = end, True
        meter.moved(found - offset)
        offset = found
        if offset == end and (length is None or has_length):
            return


def _patch(transport: Transport, path: str, rest: bytes, offset: int, length: int | None) -> None:
    checksum = FileHash(in_transit())
    checksum.update(rest)
    headers = {
        **VERSION,
        "Content-Type": "application/offset+octet-stream",
        "Upload-Offset": str(offset),
        "Upload-Checksum": f"{checksum.kind} {checksum.base64()}",
    }
    if length is not None:
        headers["Upload-Length"] = str(length)
    transport.request("PATCH", path, data=rest, headers=headers)


def _is_mismatch(error: SluiceError) -> bool:
    return isinstance(error, Refused) and error.status in {409, CHECKSUM_MISMATCH}


def _progress(transport: Transport, path: str) -> tuple[int, bool]:
    """How many bytes the server has, and whether it knows how many there will be."""
    answer = transport.patiently(lambda: transport.request("HEAD", path, headers=VERSION))
    return int(answer.headers.get("Upload-Offset", "0")), "Upload-Length" in answer.headers
