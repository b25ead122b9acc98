"""/api/uploads: create, list, show, cancel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flask import Blueprint, Response, jsonify

from app.domain.access import Action
from app.domain.upload import Upload, parse_upload_id
from app.http.access_rules import requires
from app.http.audited import audit_removal
from app.http.bodies import json_object, member
from app.http.context import current_scope, current_services, note_upload
from app.http.documents import upload_document
from app.http.proxy import location_of
from app.uploads.service import NewUpload

blueprint = Blueprint("api_uploads", __name__, url_prefix="/api/uploads")

LIST_LIMIT = 1000
"""Longest list of uploads in progress, newest first."""


@blueprint.post("")
@requires(Action.SEND)
def create() -> tuple[Response, int, dict[str, str]]:
    """Create an upload and reserve its space (201), or find the one for the same file (200)."""
    body = json_object()
    upload, is_new = current_services().uploads.create(
        NewUpload(
            scope=current_scope(),
            filename=member(body, "name", "filename", kind=str),
            length=member(body, "size", "length", kind=int),
            fingerprint=member(body, "fingerprint", kind=str, default=None),
        )
    )
    location = location_of("api_uploads.show", upload.id)
    return (
        jsonify(_documents([note_upload(upload)])[0]),
        201 if is_new else 200,
        {"Location": location},
    )


@blueprint.get("")
@requires(Action.FOLLOW)
def index() -> Response:
    """Uploads in progress."""
    found = current_services().uploads.active(current_scope(), LIST_LIMIT)
    return jsonify({"uploads": _documents(found)})


@blueprint.get("/<upload_id>")
@requires(Action.FOLLOW)
def show(upload_id: str) -> Response:
    """Which ranges of an upload have arrived, and which are missing."""
    upload = current_services().uploads.get(current_scope(), parse_upload_id(upload_id))
    response = jsonify(_documents([note_upload(upload)])[0])
    response.headers["Cache-Control"] = "no-store"
    return response


@blueprint.delete("/<upload_id>")
@requires(Action.SEND)
def cancel(upload_id: str) -> tuple[str, int]:
    """Cancel an upload and free its space."""
    audit_removal(current_services().uploads.cancel(current_scope(), parse_upload_id(upload_id)))
    return "", 204


def _documents(uploads: Sequence[Upload]) -> list[dict[str, Any]]:
    services = current_services()
    expiry = services.settings.expiry_seconds
    views = services.media.library.playbacks(uploads)
    return [
        upload_document(upload, expiry, view) for upload, view in zip(uploads, views, strict=True)
    ]
