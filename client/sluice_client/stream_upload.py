"""Uploads a stream of unknown length, such as standard input, by tus (creation-defer-length).

A chunk stays in memory until the server has it, so that a broken connection costs a chunk and no
more. A stream cannot be read twice: a command that ends cannot be continued, and its upload is
cancelled.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from contextlib import suppress
from typing import BinaryIO

from sluice_client.errors import ContentMismatch, FileProblem, Refused, SluiceError
from sluice_client.hashing import Checksums, FileHash
from sluice_client.progress import Meter, Phase, ProgressListener
from sluice_client.transport import Transport
from sluice_client.uploader import Uploaded, await_checksum

CHUNK_BYTES = 20 * 1024 * 1024
"""Held in memory."""

VERSION = {"Tus-Resumable": "1.0.0"}

CHECKSUM_MISMATCH = 460
"""A chunk was damaged on its way; defined by tus (section Checksum)."""

MOST_MISMATCHES = 5
"""How often a chunk is sent again that is damaged, or in the wrong place, each time."""


def upload_stream(
    transport: Transport, stream: BinaryIO, name: str, listener: ProgressListener | None = None
) -> Uploaded:
    """The bytes up to the stream's end as a file on the server, complete and verified.

    Raises any `SluiceError`; the upload is then cancelled, and a file with wrong bytes deleted.
    """
    meter = Meter(name, None, listener)
    upload_id = _create(transport, name)
    try:
        length, checksums = _send(transport, f"/tus/{upload_id}", stream, meter)
        meter.report(Phase.VERIFYING)
        document = await_checksum(transport, upload_id, length)
        is_verified = checksums.compare(document, name)
    except BaseException as error:
        with suppress(SluiceError):
            transport.request("DELETE", f"/api/uploads/{upload_id}")
        if isinstance(error, ContentMismatch):
            with suppress(SluiceError):  # The upload may be complete.
                transport.request("DELETE", f"/api/videos/{upload_id}")
        raise
    meter.report(Phase.DONE)
    media = str(document["media"])
    return Uploaded(
        path="-",
        name=name,
        id=upload_id,
        length=length,
        sha256=checksums.sha256,
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


def _send(transport: Transport, path: str, stream: BinaryIO, meter: Meter) -> tuple[int, Checksums]:
    """Send all of the stream; its length in bytes, and its checksums."""
    running = FileHash()
    start = 0
    is_last = False
    while not is_last:
        try:
            chunk = stream.read(CHUNK_BYTES)
        except OSError as error:
            raise FileProblem(f"Standard input cannot be read: {error.strerror}") from error
        is_last = len(chunk) < CHUNK_BYTES
        running.update(chunk)
        end = start + len(chunk)
        _send_chunk(transport, path, chunk, start, meter, length=end if is_last else None)
        start = end
    return start, running.checksums()


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
    digest = b64encode(hashlib.sha256(rest).digest()).decode()
    headers = {
        **VERSION,
        "Content-Type": "application/offset+octet-stream",
        "Upload-Offset": str(offset),
        "Upload-Checksum": f"sha256 {digest}",
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
