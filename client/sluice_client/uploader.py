"""Uploads one file: finds or creates the upload, sends what is missing, compares checksums."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sluice_client.chunk_sender import ChunkSender, OpenedFile
from sluice_client.chunk_sums import ChunkSums
from sluice_client.direct_cells import DirectCells
from sluice_client.errors import (
    ContentMismatch,
    FileChanged,
    Interrupted,
    KeyRefused,
    Refused,
    ServerUnreachable,
    SluiceError,
)
from sluice_client.hashing import BackgroundHash, FileHash, Kind, compare, hash_of, in_transit
from sluice_client.local_file import LocalFile
from sluice_client.pace import FIRST_BYTES, SharedPace
from sluice_client.progress import Meter, Phase, ProgressListener
from sluice_client.resume_store import ResumeStore, UploadRecord
from sluice_client.spans import Spans
from sluice_client.transport import Transport

ROUNDS = 5
"""How often to resend chunks that were acknowledged but are missing: the server lost power and is
set not to wait for its disk."""

WANT_SHA256 = {"Want-Repr-Digest": "sha-256=1"}

IDS_AT_ONCE = 100
"""Most uploads that the server is asked about in one request."""

DIGEST_GRACE_SECONDS = 60.0
DIGEST_BYTES_PER_SECOND = 20_000_000
"""How long to wait for the server's own checksum: a minute, and what a slow disk needs."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A file that is on the server.

    A checksum is None until the server knows it. `sent` is the number of bytes this run sent, 0 if
    the server had the file already; `is_verified` is False if the server had no checksum yet.
    """

    path: str
    name: str
    id: str
    length: int
    sha256: str | None
    crc32c: str | None
    media: str
    url: str
    sent: int
    is_verified: bool


@dataclass(frozen=True, slots=True)
class UploadContext:
    """Shared by the uploads of a run: connections, records of earlier runs, pace, bucket."""

    transport: Transport
    store: ResumeStore
    pace: SharedPace
    direct: DirectCells


def upload_file(
    context: UploadContext, file: LocalFile, listener: ProgressListener | None = None
) -> Uploaded:
    """The file on the server, complete and verified; raises any `SluiceError`."""
    meter = Meter(file.name, file.size, listener)
    with file.open() as descriptor:
        stop = context.transport.stop
        background = BackgroundHash(descriptor, file.size, in_transit(), stop)
        try:
            opened = OpenedFile(file, descriptor, background, ChunkSums())
            return _FileUpload(context, opened, meter).run()
        finally:
            background.close()


def await_checksum(
    transport: Transport,
    upload_id: str,
    length: int,
    kind: Kind,
    document: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The upload once the server has that checksum, or else SHA-256, which it computes when asked.

    Without either if that takes long. `document` is the upload as it was last seen.
    """
    path = f"/api/uploads/{upload_id}"
    if document is None:
        document = transport.json("GET", path)
    deadline = time.monotonic() + _digest_seconds(length)
    seconds = 0.0
    while not (document.get(kind) or document.get(Kind.SHA256)) and time.monotonic() < deadline:
        _pause(transport, seconds)
        seconds = min(2.0, 0.1 + seconds * 1.5)
        document = transport.json("GET", path, headers=WANT_SHA256)
    return document


def await_sha256(transport: Transport, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By id, those of the uploads that are complete and have a SHA-256, computed for this.

    Without those that have none a minute after the last one that got it.
    """
    known: dict[str, dict[str, Any]] = {}
    for start in range(0, len(ids), IDS_AT_ONCE):
        try:
            known |= _page_with_sha256(transport, ids[start : start + IDS_AT_ONCE])
        except KeyRefused:
            raise
        except Refused:  # As good as unknown.
            continue
    return known


def _page_with_sha256(transport: Transport, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    known: dict[str, dict[str, Any]] = {}
    headers, seconds = WANT_SHA256, 0.1
    deadline = time.monotonic() + DIGEST_GRACE_SECONDS
    while True:
        page = transport.json("GET", "/api/uploads", params={"id": ids}, headers=headers)
        found = {str(each["id"]): each for each in page["uploads"] if each["state"] == "complete"}
        ids = [each for each in found if not found[each].get(Kind.SHA256)]
        if len(ids) < len(found):
            known |= {each: found[each] for each in found.keys() - ids}
            deadline = time.monotonic() + DIGEST_GRACE_SECONDS
        if not ids or time.monotonic() > deadline:
            return known
        _pause(transport, seconds)
        headers, seconds = {}, min(2.0, seconds * 1.5)


def _digest_seconds(length: int) -> float:
    return DIGEST_GRACE_SECONDS + length / DIGEST_BYTES_PER_SECOND


def _pause(transport: Transport, seconds: float) -> None:
    if transport.stop.wait(seconds):
        raise Interrupted("Stopped while the server was verifying.")


class _FileUpload:
    def __init__(self, context: UploadContext, opened: OpenedFile, meter: Meter) -> None:
        self._context = context
        self._transport = context.transport
        self._opened = opened
        self._file = opened.file
        self._meter = meter
        self._fingerprint = opened.file.fingerprint(opened.descriptor)

    def run(self) -> Uploaded:
        document = self._find_or_create()
        if document["state"] == "complete":
            known = self._known(document)
            if known is not None:
                return known
            # Another file may look alike; the full checksum tells them apart.
            self._fingerprint = f"client1-{self._file.size}-{self._checksum(Kind.SHA256)}"
            document = self._find_or_create()
        try:
            return self._send(document)
        except Refused as error:
            if not error.is_missing:
                raise
            self._context.store.forget(self._transport.base_url, self._fingerprint)
            return self._send(self._find_or_create())

    def _find_or_create(self) -> dict[str, Any]:
        server = self._transport.base_url
        self._context.pace.ask_ahead()
        self._transport.open_ahead(
            min(self._transport.first_connections, -(-self._file.size // FIRST_BYTES))
        )
        record = self._context.store.load(server, self._fingerprint).get(self._fingerprint)
        if record is not None:
            with suppress(Refused):
                return self._transport.json("GET", f"/api/uploads/{record.id}")
        wish = {
            "name": self._file.name,
            "size": self._file.size,
            "fingerprint": self._fingerprint,
        }
        document = self._transport.json("POST", "/api/uploads", json=wish)
        self._context.store.save(
            UploadRecord(
                server=server,
                fingerprint=self._fingerprint,
                id=str(document["id"]),
                path=str(self._file.path.absolute()),
                length=self._file.size,
            )
        )
        return document

    def _send(self, document: dict[str, Any]) -> Uploaded:
        upload_id = str(document["id"])
        arrived = self._file.size - Spans(document["missing"]).total
        self._meter.start_at(arrived)
        if arrived:
            self._transport.has_kept_bytes = True
        try:
            document = self._send_rounds(document)
            # CRC32C is enough for what this run has sent; anybody could have sent the rest.
            kind = Kind.SHA256 if arrived else self._opened.hash.kind
            is_verified = self._is_verified(document, kind)
            sent = self._file.size - arrived
            return self._uploaded(document, sent=sent, is_verified=is_verified)
        except ContentMismatch:
            self._remove(upload_id)
            raise

    def _send_rounds(self, document: dict[str, Any]) -> dict[str, Any]:
        upload_id = str(document["id"])
        for _ in range(ROUNDS):
            if document["state"] == "receiving":
                sender = ChunkSender(
                    self._transport,
                    self._opened,
                    upload_id,
                    pace=self._context.pace.get(),
                    meter=self._meter,
                    direct=self._context.direct,
                )
                direct = document.get("direct") or {}
                sender.send(Spans(document["missing"]), cell_bytes=direct.get("cell_bytes"))
                document = sender.completed or self._settled(upload_id)
            else:
                document = self._settled(upload_id)
            if document["state"] == "complete":
                return document
        raise ServerUnreachable(
            "The server lost chunks it had acknowledged; run the command again."
        )

    def _settled(self, upload_id: str) -> dict[str, Any]:
        """The upload once the server is done with it; publishing may take a while."""
        self._meter.report(Phase.VERIFYING)
        deadline = time.monotonic() + _digest_seconds(self._file.size)
        while True:
            document = self._transport.json("GET", f"/api/uploads/{upload_id}")
            if document["state"] != "verifying" or time.monotonic() > deadline:
                return document
            _pause(self._transport, 1.0)

    def _known(self, document: dict[str, Any]) -> Uploaded | None:
        """The outcome for a file the server has; None if its bytes differ.

        None too if there is no SHA-256 to compare: other files may have the same fingerprint.
        """
        try:
            is_known = self._is_verified(document, Kind.SHA256)
        except FileChanged:
            raise
        except ContentMismatch:
            return None
        return self._uploaded(document, sent=0, is_verified=True) if is_known else None

    def _is_verified(self, document: dict[str, Any], kind: Kind) -> bool:
        """Whether the server has a checksum, of that kind if it can; `ContentMismatch` if another.

        The file is read again for a SHA-256 that has not been computed on the way.
        """
        self._meter.report(Phase.VERIFYING)
        document.update(
            await_checksum(self._transport, str(document["id"]), self._file.size, kind, document)
        )
        found = next((each for each in (kind, Kind.SHA256) if document.get(each)), None)
        if found is None:
            return False
        here = self._checksum(found)
        self._file.check_unchanged()
        compare(found, here, document, str(self._file.path))
        return True

    def _checksum(self, kind: Kind) -> str:
        opened = self._opened
        joined = opened.sums.whole(self._file.size) if kind is Kind.CRC32C else None
        if joined is not None:
            return FileHash(kind, crc32c=joined).result()
        if kind is opened.hash.kind:
            return opened.hash.result().result()
        stop = self._transport.stop
        return hash_of(opened.descriptor, 0, self._file.size, kind, stop=stop).result()

    def _uploaded(self, document: dict[str, Any], *, sent: int, is_verified: bool) -> Uploaded:
        self._context.store.forget(self._transport.base_url, self._fingerprint)
        self._meter.start_at(self._file.size)
        self._meter.report(Phase.DONE)
        return Uploaded(
            path=str(self._file.path),
            name=self._file.name,
            id=str(document["id"]),
            length=self._file.size,
            sha256=document.get("sha256"),
            crc32c=document.get("crc32c"),
            media=str(document["media"]),
            url=f"{self._transport.base_url}{document['media']}",
            sent=sent,
            is_verified=is_verified,
        )

    def _remove(self, upload_id: str) -> None:
        """Delete wrong bytes from the server, or the next run would find them."""
        self._context.store.forget(self._transport.base_url, self._fingerprint)
        for path in (f"/api/uploads/{upload_id}", f"/api/videos/{upload_id}"):
            with suppress(SluiceError):
                self._transport.request("DELETE", path)
