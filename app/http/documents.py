"""The JSON shapes of uploads and videos; each is made here and nowhere else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from app.domain.lifecycle import UploadState
from app.domain.ranges import RangeSet
from app.domain.upload import Upload


def upload_document(upload: Upload, expiry_seconds: float) -> dict[str, Any]:
    """An upload with all that is needed to resume it; ranges are half-open."""
    expires = upload.active_at + timedelta(seconds=expiry_seconds)
    return {
        "id": upload.id,
        "filename": upload.filename,
        "length": upload.length,
        "offset": upload.offset,
        "received": _pairs(upload.received),
        "missing": _pairs(upload.missing),
        "state": upload.state.value,
        "expires": None if upload.state is UploadState.COMPLETE else _instant(expires),
        "created": _instant(upload.created_at),
        "fingerprint": upload.fingerprint,
        **_result(upload),
    }


def chunk_document(upload: Upload) -> dict[str, Any]:
    """How far the upload is; `media` once it is complete, `sha256` once that is known."""
    document: dict[str, Any] = {
        "id": upload.id,
        "filename": upload.filename,
        "received": upload.received.total,
        "length": upload.length,
        "complete": upload.state is UploadState.COMPLETE,
        "state": upload.state.value,
    }
    if upload.state is UploadState.COMPLETE:
        document["media"] = f"/media/{upload.id}"
    if upload.sha256:
        document["sha256"] = upload.sha256
    return document


def video_document(video: Upload) -> dict[str, Any]:
    """A published file; `inline` says whether a browser may play it in place."""
    return {
        "id": video.id,
        "filename": video.filename,
        "length": video.length,
        "content_type": video.content_type,
        "inline": video.is_playable,
        "published": _instant(video.published_at or video.active_at),
        "media": f"/media/{video.id}",
        "sha256": video.sha256,
    }


def _result(upload: Upload) -> dict[str, Any]:
    if upload.state is not UploadState.COMPLETE:
        return {}
    return {"media": f"/media/{upload.id}", "sha256": upload.sha256}


def _pairs(ranges: RangeSet) -> list[list[int]]:
    return [[item.start, item.end] for item in ranges]


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
