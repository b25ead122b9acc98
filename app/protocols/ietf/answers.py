"""Responses: the upload's state in header fields, 104 interim responses, digests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Response, jsonify

from app.core.lifecycle import UploadState
from app.core.upload import Upload
from app.http.context import current_services
from app.http.digests import (
    ALGORITHMS,
    SHA256,
    known_digest,
    parse_wanted_digests,
    write_repr_digest,
)
from app.http.documents import chunk_document
from app.ingest.gunicorn_socket.connection import send_interim
from app.ingest.source import BodySource, HashingSource
from app.protocols.ietf.headers import write_limits
from app.protocols.ietf.versions import InteropVersion
from app.settings import Settings

INTERIM_STATUS = "104 Upload Resumption Supported"

PROGRESS_SECONDS = 1.0
"""Shortest time between two offsets; the core records them about as often."""


def is_complete(upload: Upload) -> bool:
    """Whether every byte has arrived, so that the client is done."""
    return upload.state is not UploadState.RECEIVING


def state_headers(upload: Upload, version: InteropVersion) -> dict[str, str]:
    """Offset, completeness, length if known, and limits."""
    headers = {
        "Upload-Offset": str(upload.offset),
        **version.write_completeness(is_complete(upload)),
        **limit_headers(version, upload),
        "Cache-Control": "no-store",
    }
    if upload.length is not None:
        headers["Upload-Length"] = str(upload.length)
    return headers


def limit_headers(version: InteropVersion, upload: Upload | None = None) -> dict[str, str]:
    """`Upload-Limit`, if the version has it; without an upload, for one that is created now."""
    if version.lifetime_limit is None:
        return {}
    settings = current_services().settings
    limits = {"max-size": settings.max_upload_bytes}
    if upload is None or not is_complete(upload):
        limits[version.lifetime_limit] = _lifetime(upload, settings)
    return {"Upload-Limit": write_limits(limits)}


def _lifetime(upload: Upload | None, settings: Settings) -> int:
    """Whole seconds until the upload expires, unless more bytes arrive."""
    lifetime = timedelta(seconds=settings.expiry_seconds)
    if upload is not None:
        idle = datetime.now(UTC) - upload.active_at
        lifetime -= max(idle, timedelta(0))  # Negative where the clock was set back just now.
    return max(0, int(lifetime.total_seconds()))


def acknowledgement(
    upload: Upload, version: InteropVersion, status: int, *, is_last: bool
) -> Response:
    """The answer to a request whose bytes were stored, with a document unless the status is 204.

    A client that says more bytes will follow gets "incomplete" back, even if the length shows that
    none are missing: it ends the upload with another request (draft -12, section 4.1.3).
    """
    response = Response(status=status) if status == 204 else jsonify(chunk_document(upload))
    response.status_code = status
    response.headers.update(state_headers(upload, version))
    response.headers.update(version.write_completeness(is_last))
    return response


class Interim:
    """104 (Upload Resumption Supported) interim responses to one request.

    None are sent if `version` is None: the draft forbids them for clients that name no version we
    speak (appendix "Draft Version Identification"), and a proxy may not pass them on.
    """

    def __init__(self, environ: dict[str, Any], version: InteropVersion | None) -> None:
        self._environ = environ
        self._version = version
        self._offset = 0
        self._told_at = time.monotonic()

    def announce(self, headers: Mapping[str, str]) -> None:
        """Send the URL of the upload resource, and its limits."""
        self._send(headers)

    def progress(self, offset: int) -> None:
        """Say that the bytes before `offset` are safe, unless that was done just now."""
        is_due = time.monotonic() - self._told_at >= PROGRESS_SECONDS
        if is_due and offset > self._offset and self._version and self._version.has_progress:
            self._offset, self._told_at = offset, time.monotonic()
            self._send({"Upload-Offset": str(offset)})

    def _send(self, headers: Mapping[str, str]) -> None:
        if self._version is not None:
            number = str(self._version.number)
            lines = {"Upload-Draft-Interop-Version": number, **headers}
            send_interim(self._environ, INTERIM_STATUS, lines)


class WantedDigest:
    """The file's digest for clients that want it (RFC 9530, section 4).

    It is computed for a file that arrives in one request; for others it is what is on record.
    """

    def __init__(self, header: str) -> None:
        self._names = parse_wanted_digests(header)
        self._hashed: HashingSource | None = None

    def watch(self, source: BodySource) -> BodySource:
        """`source`, which must be the whole file, hashed as it passes if a digest is wanted."""
        if not self._names:
            return source
        self._hashed = HashingSource(source, ALGORITHMS[self._names[0]])
        return self._hashed

    def headers(self, upload: Upload) -> dict[str, str]:
        """`Repr-Digest`, if it is wanted and known; otherwise a SHA-256 will be."""
        if self._hashed is not None:
            digest = bytes.fromhex(self._hashed.hexdigest())
            return {"Repr-Digest": write_repr_digest(self._names[0], digest)}
        for name in self._names:
            if (known := known_digest(name, upload)) is not None:
                return {"Repr-Digest": write_repr_digest(name, known)}
        if SHA256 in self._names:
            current_services().library.want_sha256(upload)
        return {}
