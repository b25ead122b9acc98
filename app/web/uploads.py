"""/api/uploads: create, list, show and cancel; direct uploads of cells to the bucket."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Blueprint, Response, jsonify, request

from app.access import audit
from app.access.upload_links import UploadLink
from app.core.access import THROUGH_LINKS, Action, Caller, CallerKind
from app.core.cells import URL_SECONDS, CellOffer, PromisedCell, check_crc32c
from app.core.errors import InvalidRequest, NotDirect, UploadNotFound
from app.core.moments import instant
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId, parse_upload_id
from app.http.access import requires
from app.http.bodies import json_object, member
from app.http.context import (
    ViewContext,
    note_upload,
)
from app.http.digests import wants_sha256
from app.http.documents import sender_document, sent_document, upload_document
from app.http.proxy import location_of
from app.uploads.direct import DirectUploads
from app.uploads.service import NewUpload

blueprint = Blueprint("api_uploads", __name__, url_prefix="/api/uploads")

LIST_LIMIT = 1000
"""Maximum of unfinished uploads in a list, newest first."""

SENT_LIMIT = 1000
"""Maximum of a sender's files in a list, newest first."""

IDS_AT_ONCE = 100
"""Maximum ids in one request: they fill most of the 4094 bytes of a request line."""

CELLS_AT_ONCE = 100
"""Maximum cells in one request: 2 GB and more."""


@blueprint.post("")
@requires(Action.SEND)
def create(ctx: ViewContext) -> tuple[Response, int, dict[str, str]]:
    """Create an upload and reserve its space (201), or return that of the same file (200)."""
    body = json_object(ctx)
    upload, is_new = ctx.services.uploads.create(
        NewUpload(
            scope=ctx.scope,
            filename=member(body, "name", "filename", kind=str),
            length=member(body, "size", "length", kind=int),
            fingerprint=member(body, "fingerprint", kind=str, default=None),
        )
    )
    location = location_of("api_uploads.show", upload.id)
    return (
        jsonify(_documents(ctx, [note_upload(upload)])[0]),
        201 if is_new else 200,
        {"Location": location},
    )


@blueprint.get("")
@requires(Action.FOLLOW)
def index(ctx: ViewContext) -> Response:
    """Unfinished uploads; with `id`, those with these ids, including complete ones.

    With `id`, their SHA-256 will be computed if the request wants it.
    """
    uploads = ctx.services.uploads
    if ids := request.args.getlist("id"):
        found = uploads.get_all(ctx.scope, _parse_ids(ids))
        if wants_sha256():
            ctx.services.library.want_sha256(*found)
    else:
        found = uploads.active(ctx.scope, LIST_LIMIT)
    return jsonify({"uploads": _with_senders(ctx, found)})


def _parse_ids(texts: Sequence[str]) -> list[UploadId]:
    if len(texts) > IDS_AT_ONCE:
        raise InvalidRequest(f"The parameter id may be given {IDS_AT_ONCE} times at most.")
    try:
        return [parse_upload_id(text) for text in texts]
    except UploadNotFound as error:
        raise InvalidRequest("The parameter id must be the id of an upload.") from error


@blueprint.get("/sent")
@requires(Action.FOLLOW)
def sent(ctx: ViewContext) -> Response:
    """The caller's own files; for a link, also what it still accepts."""
    found = ctx.services.uploads.sent(ctx.scope, SENT_LIMIT)
    return jsonify(sent_document(found, _link_of(ctx, ctx.caller)))


def _link_of(ctx: ViewContext, caller: Caller) -> UploadLink | None:
    if caller.kind is not CallerKind.UPLOAD_LINK:
        return None
    return ctx.services.identity.upload_links.get(caller.project, caller.id)


@blueprint.get("/<upload_id>")
@requires(Action.FOLLOW)
def show(ctx: ViewContext, upload_id: str) -> Response:
    """One upload, with its received and missing ranges.

    The SHA-256 of the file will be computed if the request wants it.
    """
    upload = _found(ctx, upload_id)
    if wants_sha256():
        ctx.services.library.want_sha256(upload)
    return jsonify(_with_senders(ctx, [upload])[0])


@blueprint.delete("/<upload_id>")
@requires(Action.SEND)
def cancel(ctx: ViewContext, upload_id: str) -> tuple[str, int]:
    """Cancel an upload and free its space."""
    audit.note_removal(ctx, ctx.services.uploads.cancel(ctx.scope, parse_upload_id(upload_id)))
    return "", 204


@blueprint.post("/<upload_id>/cells")
@requires(Action.SEND)
def offer_cells(ctx: ViewContext, upload_id: str) -> Response:
    """Signed URLs with which the client uploads cells directly to the bucket."""
    upload, cells = _found(ctx, upload_id), _promised_cells(ctx)
    offers = _direct(ctx).offers(upload, cells)
    expires = datetime.now(UTC) + timedelta(seconds=URL_SECONDS)
    pairs = zip(cells, offers, strict=True)
    return jsonify({"cells": [_offer_document(cell, offer, expires) for cell, offer in pairs]})


@blueprint.post("/<upload_id>/cells/stored")
@requires(Action.SEND)
def accept_cells(ctx: ViewContext, upload_id: str) -> Response:
    """Record cells that the client has uploaded to the bucket."""
    upload, cells = _found(ctx, upload_id), _promised_cells(ctx)
    return jsonify(_documents(ctx, [_direct(ctx).accept(upload, cells)])[0])


def _found(ctx: ViewContext, upload_id: str) -> Upload:
    uploads = ctx.services.uploads
    return note_upload(uploads.get(ctx.scope, parse_upload_id(upload_id)))


def _direct(ctx: ViewContext) -> DirectUploads:
    direct = ctx.services.direct
    if direct is None:
        raise NotDirect("This server takes no direct uploads: send the bytes to it.")
    return direct


def _promised_cells(ctx: ViewContext) -> list[PromisedCell]:
    cells = member(json_object(ctx), "cells", kind=list)
    if not 0 < len(cells) <= CELLS_AT_ONCE:
        raise InvalidRequest(f"The member cells must have 1 to {CELLS_AT_ONCE} entries.")
    return [_promised_cell(each) for each in cells]


def _promised_cell(entry: object) -> PromisedCell:
    if not isinstance(entry, dict):
        raise InvalidRequest("Each cell must be an object.")
    start, length = member(entry, "start", kind=int), member(entry, "length", kind=int)
    if start < 0 or length <= 0:
        raise InvalidRequest("A cell must begin at 0 or later, and have a byte or more.")
    crc32c = check_crc32c(member(entry, "crc32c", kind=str))
    return PromisedCell(ByteRange(start, start + length), crc32c)


def _offer_document(cell: PromisedCell, offer: CellOffer, expires: datetime) -> dict[str, Any]:
    place = {"start": cell.span.start, "length": cell.span.length, "stored": offer.is_stored}
    if offer.target is None:
        return place
    request = {"method": "PUT", "url": offer.target.url, "headers": dict(offer.target.headers)}
    return {**place, **request, "expires": instant(expires)}


def _with_senders(ctx: ViewContext, uploads: Sequence[Upload]) -> list[dict[str, Any]]:
    """The documents with their senders; only members see those of others."""
    senders = ctx.services.identity.senders.of(uploads) if not _is_private(ctx) else {}
    documents = _documents(ctx, uploads)
    for document, upload in zip(documents, uploads, strict=True):
        document["sender"] = sender_document(senders.get(upload.sender))
    return documents


def _is_private(ctx: ViewContext) -> bool:
    return ctx.caller.kind in THROUGH_LINKS


def _documents(ctx: ViewContext, uploads: Sequence[Upload]) -> list[dict[str, Any]]:
    services, own = ctx.services, ctx.caller.sender
    expiry, direct = services.settings.expiry_seconds, services.direct
    views = services.media.library.playbacks(uploads)
    documents = []
    for upload, view in zip(uploads, views, strict=True):
        cell_bytes = direct.cell_bytes(upload) if direct else None
        documents.append(
            {
                **upload_document(upload, expiry, view),
                "yours": upload.sender == own,
                "direct": {"cell_bytes": cell_bytes} if cell_bytes else None,
            }
        )
    return documents
