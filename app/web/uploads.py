"""/api/uploads: create, list, show and cancel; direct uploads of cells to the bucket."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, NotRequired, TypedDict

from flask import Blueprint, Response, jsonify, request
from msgspec import Struct

from app.access import audit
from app.core import errors
from app.core.access import THROUGH_LINKS, Action, CallerKind
from app.core.errors import InvalidRequest, NotDirect, UploadNotFound
from app.core.json_types import (
    Count,
    Crc32c,
    Filename,
    Fingerprint,
    Id,
    Instant,
    MediaPath,
    Positive,
    Ranges,
    Sha256,
    Url,
    keywords,
)
from app.core.lifecycle import UploadState
from app.core.moments import instant
from app.core.pieces import URL_SECONDS, CellOffer, PromisedCell, check_crc32c
from app.core.ranges import ByteRange, RangeSet
from app.core.upload import Upload, parse_upload_id
from app.http.access import requires
from app.http.bodies import json_body, takes
from app.http.context import ViewContext, note_upload
from app.http.digests import wants_sha256
from app.http.documents import (
    PlaybackDocument,
    SenderDocument,
    media_path,
    playback_document,
    sender_document,
)
from app.http.openapi import JSON, WANT_REPR_DIGEST, ResponseSpec, describes, query
from app.http.proxy import location_of
from app.uploads.direct import DirectUploads
from app.uploads.service import NewUpload
from app.video.serve.library import PlaybackView

blueprint = Blueprint("api_uploads", __name__, url_prefix="/api/uploads")

LIST_LIMIT = 1000
"""Maximum of unfinished uploads in a list, newest first."""

SENT_LIMIT = 1000
"""Maximum of a sender's files in a list, newest first."""

IDS_AT_ONCE = 100
"""Maximum ids in one request: they fill most of the 4094 bytes of a request line."""

CELLS_AT_ONCE = 100
"""Maximum cells in one request: 2 GB and more."""

# ---- documents -----------------------------------------------------------------------------------


class DirectDocument(TypedDict):
    """Direct uploads to the bucket."""

    cell_bytes: Positive


class UploadDocument(TypedDict):
    """An upload, with everything needed to resume it.

    Example:
        {
            "id": "9f86d081884c7d659a2feaa0c55ad015",
            "filename": "film.mp4",
            "length": 3000,
            "offset": 1000,
            "received": [[0, 1000], [2000, 3000]],
            "missing": [[1000, 2000]],
            "state": "receiving",
            "expires": "2026-01-08T12:00:00.000Z",
            "created": "2026-01-01T12:00:00.000Z",
            "active": "2026-01-01T12:00:00.000Z",
            "fingerprint": "film.mp4-3000-1767225600000",
            "playback": null,
            "yours": true,
            "direct": null
        }
    """

    id: Id
    filename: Filename
    length: Count | None
    """Null until the client has sent it."""
    offset: Count
    """Bytes that have arrived without a gap, from the start."""
    received: Ranges
    missing: Ranges
    state: UploadState
    expires: Instant | None
    """Moves on with every chunk. Null once complete."""
    created: Instant
    active: Instant
    """When bytes last arrived."""
    fingerprint: str | None
    media: NotRequired[MediaPath]
    """Only once complete."""
    sha256: NotRequired[Sha256 | None]
    """Only once complete. Null until the background worker has computed it: with a `crc32c`, once a
    request wants it or little is to do."""
    crc32c: NotRequired[Crc32c | None]
    """Only once complete. Null unless every chunk came with a digest."""
    playback: PlaybackDocument | None
    """Null until something is known. Many videos can be played while they arrive."""
    yours: bool
    """Whether you have begun it."""
    sender: NotRequired[SenderDocument | None]
    """Only in lists, and for a single upload."""
    direct: DirectDocument | None
    """Null unless cells of it may be stored in the bucket."""


class UploadsDocument(TypedDict):
    """Uploads; at most 1000."""

    uploads: list[UploadDocument]


class SentFileDocument(TypedDict):
    """A file that has arrived."""

    id: Id
    filename: Filename
    length: Count
    arrived: Instant


class LinkRestDocument(TypedDict):
    """What an upload link still accepts; null for any number."""

    files_left: int | None
    bytes_left: int | None


class SentFilesDocument(TypedDict):
    """The files of one sender, the latest 1000."""

    files: list[SentFileDocument]
    count: Count
    """Of all files, also those that are not listed."""
    bytes: Count
    unfinished: Count
    """Uploads in progress."""
    link: LinkRestDocument | None
    """Null unless you send through an upload link."""


class NewUploadDocument(Struct):
    """A new upload.

    Example:
        {"name": "film.mp4", "size": 3000, "fingerprint": "film.mp4-3000-1767225600000"}
    """

    name: Filename
    size: Count
    fingerprint: Fingerprint | None = None
    """Finds the same upload again, together with the size."""


class CellDocument(Struct):
    """A cell of an upload: from a multiple of `cell_bytes` to the next, or to the file's end."""

    start: Count
    length: Positive
    crc32c: Crc32c


class CellsDocument(Struct):
    """Cells of an upload.

    Example:
        {"cells": [{"start": 20971520, "length": 1048576, "crc32c": "4waSgw=="}]}
    """

    cells: Annotated[list[CellDocument], keywords(minItems=1, maxItems=CELLS_AT_ONCE)]


class CellTargetDocument(TypedDict):
    """Where to store a cell; without `url`, it is stored, or is to be sent to the server."""

    start: Count
    length: Positive
    stored: bool
    """Whether the server has it. If not, and there is no `url` either, send it to the server."""
    method: NotRequired[Literal["PUT"]]
    url: NotRequired[Url]
    headers: NotRequired[dict[str, str]]
    """To be sent along, with these values."""
    expires: NotRequired[Instant]
    """Until when the request can begin."""


class CellTargetsDocument(TypedDict):
    """For each cell the request to send, or that it is there already."""

    cells: list[CellTargetDocument]


# ---- views ---------------------------------------------------------------------------------------


@blueprint.post("")
@requires(Action.SEND)
@takes(NewUploadDocument, {"filename": "name", "length": "size"})
@describes(
    "createUpload",
    {
        200: ResponseSpec(
            "An upload with this fingerprint and size exists already; this is it.",
            UploadDocument,
            ("Location",),
        ),
        201: ResponseSpec("Created.", UploadDocument, ("Location",)),
    },
    *(errors.TypeNotAllowed, errors.LargerThanQuota, errors.NoRoom, errors.QuotaExceeded),
    errors.TooMuchReserved,
)
def create(ctx: ViewContext, new: NewUploadDocument) -> tuple[Response, int, dict[str, str]]:
    """Create an upload and reserve its disk space.

    Optional: the first chunk sent to `/upload` creates its upload too. Creating it first has two
    merits: a file that does not fit is refused before its first byte, and its `fingerprint` finds
    the upload again after a restart.
    """
    upload, is_new = ctx.services.uploads.create(
        NewUpload(scope=ctx.scope, filename=new.name, length=new.size, fingerprint=new.fingerprint)
    )
    location = location_of("api_uploads.show", upload.id)
    return (
        jsonify(_documents(ctx, [note_upload(upload)])[0]),
        201 if is_new else 200,
        {"Location": location},
    )


@blueprint.get("")
@requires(Action.FOLLOW)
@describes(
    "listUploads",
    {200: UploadsDocument},
    InvalidRequest,
    parameters=(
        query(
            "id",
            "List the uploads with these ids instead, in this order, complete ones too. Ids that "
            "are unknown, gone or not yours to see are left out.",
            list[Id],
            maxItems=IDS_AT_ONCE,
            examples=[["0123456789abcdef0123456789abcdef"]],
        ),
        WANT_REPR_DIGEST,
    ),
)
def index(ctx: ViewContext) -> Response:
    """List unfinished uploads, newest first, or the uploads with some ids."""
    uploads = ctx.services.uploads
    if ids := request.args.getlist("id"):
        if len(ids) > IDS_AT_ONCE:
            raise InvalidRequest(f"The parameter id may be given {IDS_AT_ONCE} times at most.")
        try:
            upload_ids = [parse_upload_id(each) for each in ids]
        except UploadNotFound as error:
            raise InvalidRequest("The parameter id must be the id of an upload.") from error
        found = uploads.get_all(ctx.scope, upload_ids)
        if wants_sha256():
            ctx.services.library.want_sha256(*found)
    else:
        found = uploads.active(ctx.scope, LIST_LIMIT)
    return jsonify({"uploads": _with_senders(ctx, found)})


@blueprint.get("/sent")
@requires(Action.FOLLOW)
@describes("listSentFiles", {200: SentFilesDocument})
def sent(ctx: ViewContext) -> Response:
    """List what you have sent yourself, newest first.

    The files that have arrived, also those that were deleted later. Below the address of an upload
    link, these are the files of the visitor that the page's cookie names, none without the cookie,
    and `link` says what the link still takes.
    """
    found, caller, link = ctx.services.uploads.sent(ctx.scope, SENT_LIMIT), ctx.caller, None
    if caller.kind is CallerKind.UPLOAD_LINK:
        link = ctx.services.identity.upload_links.get(caller.project, caller.id)
    document: SentFilesDocument = {
        "files": [
            {
                "id": upload.id,
                "filename": upload.filename,
                "length": upload.known_length,
                "arrived": instant(upload.published_at or upload.active_at),
            }
            for upload in found.files
        ],
        "count": found.count,
        "bytes": found.bytes,
        "unfinished": found.unfinished,
        "link": (
            None if link is None else {"files_left": link.files_left, "bytes_left": link.bytes_left}
        ),
    }
    return jsonify(document)


@blueprint.get("/<upload_id>")
@requires(Action.FOLLOW)
@describes("showUpload", {200: UploadDocument}, parameters=(WANT_REPR_DIGEST,))
def show(ctx: ViewContext, upload_id: str) -> Response:
    """Get an upload, with the ranges that have arrived and those that are missing.

    To resume, send the bytes of `missing`. Bytes sent twice do no harm.
    """
    upload = _found(ctx, upload_id)
    if wants_sha256():
        ctx.services.library.want_sha256(upload)
    return jsonify(_with_senders(ctx, [upload])[0])


@blueprint.delete("/<upload_id>")
@requires(Action.SEND)
@describes("cancelUpload", {204: "Cancelled."}, errors.UploadComplete, errors.ServerBusy)
def cancel(ctx: ViewContext, upload_id: str) -> tuple[str, int]:
    """Cancel an upload and free its disk space.

    A complete upload cannot be cancelled: delete the video. Neither can a part of a file while that
    is published.
    """
    audit.note_removal(ctx, ctx.services.uploads.cancel(ctx.scope, parse_upload_id(upload_id)))
    return "", 204


@blueprint.post("/<upload_id>/cells")
@requires(Action.SEND)
@describes(
    "offerCells",
    {200: CellTargetsDocument},
    *(errors.ChunkMismatch, NotDirect),
    bodies={JSON: CellsDocument},
)
def offer_cells(ctx: ViewContext, upload_id: str) -> Response:
    """Get URLs at which cells of an upload are stored in the bucket.

    For uploads with the member `direct`. A cell begins at a multiple of its `cell_bytes`, and is as
    long, or ends with the file. The URL takes exactly the bytes that were promised. Cells and
    chunks of one upload may be mixed.
    """
    upload, cells = _found(ctx, upload_id), _promised_cells(ctx)
    offers = _direct(ctx).offers(upload, cells)
    expires = datetime.now(UTC) + timedelta(seconds=URL_SECONDS)
    pairs = zip(cells, offers, strict=True)
    return jsonify({"cells": [_offer_document(cell, offer, expires) for cell, offer in pairs]})


@blueprint.post("/<upload_id>/cells/stored")
@requires(Action.SEND)
@describes(
    "acceptCells",
    {200: UploadDocument},
    *(errors.ChunkMismatch, errors.CellNotStored, NotDirect),
    bodies={JSON: CellsDocument},
)
def accept_cells(ctx: ViewContext, upload_id: str) -> Response:
    """Report cells that were stored in the bucket.

    The server asks the bucket, and then counts them as received. The report of the last one
    completes the upload. Repeatable.
    """
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
    promised = json_body(ctx, CellsDocument)
    if not 0 < len(promised.cells) <= CELLS_AT_ONCE:
        raise InvalidRequest(f"The member cells must have 1 to {CELLS_AT_ONCE} entries.")
    if any(cell.start < 0 or cell.length <= 0 for cell in promised.cells):
        raise InvalidRequest("A cell must begin at 0 or later, and have a byte or more.")
    return [
        PromisedCell(ByteRange(cell.start, cell.start + cell.length), check_crc32c(cell.crc32c))
        for cell in promised.cells
    ]


def _offer_document(cell: PromisedCell, offer: CellOffer, expires: datetime) -> CellTargetDocument:
    document: CellTargetDocument = {
        "start": cell.span.start,
        "length": cell.span.length,
        "stored": offer.is_stored,
    }
    if offer.target is not None:
        document |= {
            "method": "PUT",
            "url": offer.target.url,
            "headers": dict(offer.target.headers),
            "expires": instant(expires),
        }
    return document


def _with_senders(ctx: ViewContext, uploads: Sequence[Upload]) -> list[UploadDocument]:
    """The documents with their senders; only members see those of others."""
    senders = (
        ctx.services.identity.senders.of(uploads) if ctx.caller.kind not in THROUGH_LINKS else {}
    )
    documents = _documents(ctx, uploads)
    for document, upload in zip(documents, uploads, strict=True):
        document["sender"] = sender_document(senders.get(upload.sender))
    return documents


def _documents(ctx: ViewContext, uploads: Sequence[Upload]) -> list[UploadDocument]:
    views = ctx.services.media.library.playbacks(uploads)
    return [_document(ctx, upload, view) for upload, view in zip(uploads, views, strict=True)]


def _document(ctx: ViewContext, upload: Upload, playback: PlaybackView) -> UploadDocument:
    services, is_complete = ctx.services, upload.state is UploadState.COMPLETE
    expires = upload.active_at + timedelta(seconds=services.settings.expiry_seconds)
    cell_bytes = services.direct.cell_bytes(upload) if services.direct else None
    document: UploadDocument = {
        "id": upload.id,
        "filename": upload.filename,
        "length": upload.length,
        "offset": upload.offset,
        "received": _pairs(upload.received),
        "missing": _pairs(upload.missing),
        "state": upload.state,
        "expires": None if is_complete else instant(expires),
        "created": instant(upload.created_at),
        "active": instant(upload.active_at),
        "fingerprint": upload.fingerprint,
        "playback": playback_document(playback) if playback.facts else None,
        "yours": upload.sender == ctx.caller.sender,
        "direct": {"cell_bytes": cell_bytes} if cell_bytes else None,
    }
    if is_complete:
        document |= {
            "media": media_path(upload.id),
            "sha256": upload.sha256,
            "crc32c": upload.crc32c,
        }
    return document


def _pairs(ranges: RangeSet) -> list[list[int]]:
    return [[item.start, item.end] for item in ranges]
