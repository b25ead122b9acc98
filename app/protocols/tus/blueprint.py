"""The requests of tus. Views parse, call and render; the rules are in the upload service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from flask import Blueprint, Response, redirect, request
from werkzeug.exceptions import Forbidden, MethodNotAllowed, PreconditionFailed
from werkzeug.wrappers import Response as BaseResponse

from app.access import audit
from app.core import errors
from app.core.access import EVERYTHING, Action
from app.core.lifecycle import UploadState
from app.core.upload import Upload, UploadKind, parse_upload_id
from app.http.access import requires
from app.http.bodies import open_body
from app.http.context import ViewContext, note_upload
from app.http.problems import Problem, answer
from app.http.proxy import location_of
from app.ingest.checksum import ALGORITHMS
from app.protocols.tus.headers import (
    PARTIAL,
    can_see_trailers,
    checked,
    file_name,
    format_concat,
    format_date,
    format_metadata,
    parse_concat,
    parse_metadata,
    parse_number,
)
from app.uploads.service import NewUpload

blueprint = Blueprint("tus", __name__, url_prefix="/tus")

VERSION = "1.0.0"

EXTENSIONS = (
    "creation",
    "creation-with-upload",
    "creation-defer-length",
    "expiration",
    "checksum",
    "termination",
    "concatenation",
    "concatenation-unfinished",
)
"""Announced to every client; `checksum-trailer` only where trailers arrive."""

CHUNK_TYPE = "application/offset+octet-stream"

CHECKSUM_MISMATCH = 460
"""tus defines a status of its own (section Checksum)."""

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""All are accepted on the request line, because X-HTTP-Method-Override may replace the method."""

Handler = Callable[..., BaseResponse]
"""Answers one method, given the context and, for `/tus/<id>`, the upload's id."""


# ---- around every request ------------------------------------------------------------------------


def _method() -> str:
    """The method, or the header that replaces it for clients that cannot send PATCH or DELETE."""
    return request.headers.get("X-HTTP-Method-Override", request.method)


@blueprint.before_request
def _check_version() -> None:
    if _method() not in {"OPTIONS", "GET"} and request.headers.get("Tus-Resumable") != VERSION:
        raise PreconditionFailed(f"Send the header Tus-Resumable: {VERSION}.")


@blueprint.after_request
def _add_headers(response: Response) -> Response:
    response.headers["Tus-Resumable"] = VERSION
    response.headers["Cache-Control"] = "no-store"
    if response.status_code == PreconditionFailed.code or _method() == "OPTIONS":
        response.headers["Tus-Version"] = VERSION
    return response


@blueprint.errorhandler(errors.DigestMismatch)
def _checksum_mismatch(error: errors.DigestMismatch) -> Response:
    response = answer(replace(Problem.of(error), status=CHECKSUM_MISMATCH))
    response.status = f"{CHECKSUM_MISMATCH} Checksum Mismatch"
    return response


# ---- /tus/ ---------------------------------------------------------------------------------------


@blueprint.route("/", methods=METHODS, provide_automatic_options=False)
@requires(Action.SEND)
def collection(ctx: ViewContext) -> BaseResponse:
    """Create an upload, or list the capabilities of the server."""
    return _chosen({"POST": _create, "OPTIONS": _options})(ctx)


def _options(ctx: ViewContext, _upload_id: str = "") -> Response:
    trailer = ("checksum-trailer",) if can_see_trailers() else ()
    response = _empty(204)
    response.headers["Tus-Extension"] = ",".join((*EXTENSIONS, *trailer))
    response.headers["Tus-Checksum-Algorithm"] = ",".join(ALGORITHMS)
    response.headers["Tus-Max-Size"] = str(ctx.services.settings.max_upload_bytes)
    return response


def _create(ctx: ViewContext) -> Response:
    concat = request.headers.get("Upload-Concat")
    parts = None if concat is None else parse_concat(concat)
    if parts is not None:
        if "Upload-Length" in request.headers or open_body(ctx).remaining != 0:
            raise errors.InvalidRequest("A final upload gets its length and bytes from its parts.")
        upload = ctx.services.uploads.concatenate(_new_upload(ctx, UploadKind.FILE, None), parts)
    else:
        kind = UploadKind.FILE if concat is None else UploadKind.PARTIAL
        length = None
        deferred = request.headers.get("Upload-Defer-Length")
        if deferred is None:
            length = parse_number("Upload-Length", request.headers.get("Upload-Length"))
        elif deferred != "1" or "Upload-Length" in request.headers:
            raise errors.InvalidRequest(
                "Upload-Defer-Length must be 1, and excludes Upload-Length."
            )
        upload, _ = ctx.services.uploads.create(_new_upload(ctx, kind, length))
        upload = _take_first_bytes(ctx, note_upload(upload))
    response = _printed(ctx, note_upload(upload), 201)
    response.headers["Location"] = location_of("tus.one", upload.id)
    return response


def _new_upload(ctx: ViewContext, kind: UploadKind, length: int | None) -> NewUpload:
    metadata = request.headers.get("Upload-Metadata", "")
    filename = file_name(parse_metadata(metadata))
    return NewUpload(
        scope=ctx.scope, filename=filename, length=length, kind=kind, metadata=metadata
    )


def _take_first_bytes(ctx: ViewContext, upload: Upload) -> Upload:
    """Append the bytes in the creation request; an empty file is complete with it.

    If that fails the upload is deleted, because the client never gets its URL.
    """
    source = open_body(ctx)
    if source.remaining == 0 and upload.length != 0:
        return upload
    try:
        if source.remaining != 0:
            _check_type()
        return ctx.services.chunks.append_at_offset(upload, 0, checked(source))
    except errors.UploadError:
        audit.note_removal(ctx, ctx.services.client_uploads.remove(EVERYTHING, upload))
        raise


# ---- /tus/<id> -----------------------------------------------------------------------------------


@blueprint.route("/<upload_id>", methods=METHODS, provide_automatic_options=False)
@requires(Action.SEND)
def one(ctx: ViewContext, upload_id: str) -> BaseResponse:
    """Get an upload's offset, append to it or terminate it; a GET redirects to its file."""
    return _chosen(
        {"HEAD": _head, "PATCH": _patch, "DELETE": _delete, "GET": _file, "OPTIONS": _options}
    )(ctx, upload_id)


def _file(_ctx: ViewContext, upload_id: str) -> BaseResponse:
    return redirect(location_of("delivery.media", upload_id))


def _head(ctx: ViewContext, upload_id: str) -> Response:
    uploads = ctx.services.uploads
    upload = uploads.get(ctx.scope, parse_upload_id(upload_id))
    upload = note_upload(ctx.services.chunks.stop_writer(upload))
    response = _printed(ctx, upload, 200)
    metadata = format_metadata(upload.filename) if upload.metadata is None else upload.metadata
    if metadata:
        response.headers["Upload-Metadata"] = metadata
    length = upload.length
    if upload.kind is UploadKind.CONCATENATION:
        if length is None:  # Known once it can be calculated (section Concatenation).
            length = uploads.length_of_parts(upload)
        response.headers["Upload-Concat"] = format_concat(uploads.parts(upload))
    elif length is None:
        response.headers["Upload-Defer-Length"] = "1"
    if length is not None:
        response.headers["Upload-Length"] = str(length)
    if upload.kind is UploadKind.PARTIAL:
        response.headers["Upload-Concat"] = PARTIAL
    return response


def _patch(ctx: ViewContext, upload_id: str) -> Response:
    _check_type()
    offset = parse_number("Upload-Offset", request.headers.get("Upload-Offset"))
    services = ctx.services
    upload = note_upload(services.uploads.get(ctx.scope, parse_upload_id(upload_id)))
    if upload.kind is UploadKind.CONCATENATION:
        raise Forbidden("A final upload gets its bytes from its parts.")
    if "Upload-Length" in request.headers:
        # First the offset: a refused request must not change the upload (section PATCH).
        upload.require_offset(offset)
        length = parse_number("Upload-Length", request.headers["Upload-Length"])
        upload = services.chunks.declare_length(upload, length)
    upload = services.chunks.append_at_offset(upload, offset, checked(open_body(ctx)))
    return _printed(ctx, upload, 204)


def _delete(ctx: ViewContext, upload_id: str) -> Response:
    uploads = ctx.services.uploads
    upload = note_upload(uploads.get(ctx.scope, parse_upload_id(upload_id)))
    audit.note_removal(ctx, ctx.services.client_uploads.remove(ctx.scope, upload))
    return _empty(204)


# ---- shared --------------------------------------------------------------------------------------


def _chosen(handlers: Mapping[str, Handler]) -> Handler:
    method = _method()
    if method not in handlers:
        raise MethodNotAllowed(list(handlers))
    return handlers[method]


def _check_type() -> None:
    if request.mimetype != CHUNK_TYPE:
        raise errors.TypeNotAllowed(f"The body must be of the type {CHUNK_TYPE}.")


def _printed(ctx: ViewContext, upload: Upload, status: int) -> Response:
    """The upload's offset, and when it expires unless more bytes arrive."""
    response = _empty(status)
    is_whole = upload.kind is not UploadKind.CONCATENATION or upload.state is UploadState.COMPLETE
    if is_whole:
        response.headers["Upload-Offset"] = str(upload.offset)
    if upload.state in {UploadState.RECEIVING, UploadState.HELD}:
        lifetime = timedelta(seconds=ctx.services.settings.expiry_seconds)
        response.headers["Upload-Expires"] = format_date(upload.active_at + lifetime)
    return response


def _empty(status: int) -> Response:
    response = Response(status=status)
    del response.headers["Content-Type"]
    return response
