"""Answers: the state of an upload in header fields."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from flask import Response, jsonify

from app.domain.lifecycle import UploadState
from app.domain.upload import Upload
from app.http.context import current_services
from app.http.documents import chunk_document
from app.protocols.ietf.headers import write_limits
from app.protocols.ietf.versions import InteropVersion
from app.settings import Settings


def is_complete(upload: Upload) -> bool:
    """Whether every byte has arrived and the client has nothing more to do."""
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
    """`Upload-Limit`, where the version has it; without an upload those of one just made."""
    if version.lifetime_limit is None:
        return {}
    settings = current_services().settings
    limits = {"max-size": settings.max_upload_bytes}
    if upload is None or not is_complete(upload):
        limits[version.lifetime_limit] = _lifetime(upload, settings)
    return {"Upload-Limit": write_limits(limits)}


def _lifetime(upload: Upload | None, settings: Settings) -> int:
    """Whole seconds from now until the upload expires, if nothing more is heard of it."""
    lifetime = timedelta(seconds=settings.expiry_seconds)
    if upload is not None:
        idle = datetime.now(UTC) - upload.active_at
        lifetime -= max(idle, timedelta(0))  # Negative where the clock was set back just now.
    return max(0, int(lifetime.total_seconds()))


def acknowledgement(
    upload: Upload, version: InteropVersion, status: int, *, is_last: bool
) -> Response:
    """The answer to a request whose bytes were taken, with a document unless the status is 204.

    A client that says there is more to come is told so too, even where the length shows that
    there is not: it ends the upload with a request of its own (draft -12, section 4.1.3).
    """
    response = Response(status=status) if status == 204 else jsonify(chunk_document(upload))
    response.status_code = status
    response.headers.update(state_headers(upload, version))
    response.headers.update(version.write_completeness(is_last))
    return response
