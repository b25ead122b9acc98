"""POST /batch: many whole files in one multipart request, each with a receipt of its own.

The files are stored one after the other as they come in. One that is refused (its name, its
type, its size) is passed over, and says why in its receipt. Where the body itself breaks, what
was stored before stays stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response, jsonify

from app.domain.errors import BodyStalled, BodyTruncated, MalformedBody, TooLarge, UploadError
from app.domain.lifecycle import UploadState
from app.ingest.form import FilePart
from app.wire.context import current_owner, current_services
from app.wire.problems import Problem
from app.wire.request_body import open_form

blueprint = Blueprint("batch", __name__)

MAX_FILES = 20_000
"""Files in one request; the receipts of all of them are held until its end."""

BROKEN_BODY = (BodyStalled, BodyTruncated, MalformedBody)


@blueprint.post("/batch")
def batch() -> Response:
    """Store every file of the form; receipts in the order of the parts."""
    receipts = list(_receipts())
    stored = sum("id" in receipt for receipt in receipts)
    return jsonify({"stored": stored, "refused": len(receipts) - stored, "files": receipts})


def _receipts() -> Iterator[dict[str, Any]]:
    files = (part for part in open_form().parts() if isinstance(part, FilePart) and part.filename)
    for number, part in enumerate(files):
        if number == MAX_FILES:
            raise TooLarge(f"A batch has at most {MAX_FILES} files; this many are stored.")
        try:
            yield {"name": part.filename, **_store(part)}
        except BROKEN_BODY:
            raise
        except UploadError as error:
            yield {"name": part.filename, "error": Problem.of(error).to_json()}


def _store(part: FilePart) -> dict[str, Any]:
    whole_files = current_services().whole_files
    file = whole_files.receive(part.whole(), owner=current_owner(), filename=part.filename)
    upload = whole_files.keep(file)
    receipt = {"id": upload.id, "length": upload.length, "sha256": upload.sha256}
    if upload.state is UploadState.COMPLETE:
        receipt["media"] = f"/media/{upload.id}"
    return receipt
