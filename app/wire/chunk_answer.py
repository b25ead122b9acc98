"""What the sender of a chunk is told of its upload."""

from __future__ import annotations

from typing import Any

from app.domain.lifecycle import UploadState
from app.domain.upload import Upload


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
