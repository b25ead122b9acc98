"""/resumable/: create an upload, get its offset, append to it, cancel it."""

from __future__ import annotations

from contextlib import suppress

from flask import Blueprint, Response, current_app, g, request

from app.access import audit
from app.core import errors
from app.core.access import Action
from app.core.upload import Upload, parse_upload_id
from app.http.access import requires
from app.http.bodies import body_length, open_body
from app.http.context import ViewContext, note_upload, view_context
from app.http.digests import digest_source, parse_repr_digest
from app.http.problems import answer, report
from app.http.proxy import came_directly, location_of
from app.ingest.source import BodySource
from app.protocols.ietf import interop
from app.uploads.service import NewUpload

blueprint = Blueprint("resumable", __name__, url_prefix="/resumable")

VERSION_HEADER = "Upload-Draft-Interop-Version"


# ---- around every request ------------------------------------------------------------------------


def _named_version() -> interop.InteropVersion | None:
    """The version that the client requests, if it is supported."""
    with suppress(errors.InvalidRequest):
        return interop.VERSIONS.get(
            interop.parse_length(request.headers.get(VERSION_HEADER, ""), VERSION_HEADER)
        )
    return None


def _version() -> interop.InteropVersion:
    return _named_version() or interop.NEWEST


@blueprint.after_request
def _name_version(response: Response) -> Response:
    version = _named_version()
    if version is not None:
        response.headers[VERSION_HEADER] = str(version.number)
    return response


@blueprint.errorhandler(errors.UploadError)
def _failed(error: errors.UploadError) -> Response:
    """The problem response, with the headers that the client needs to resume."""
    ctx = view_context()
    version = _version()
    if not isinstance(error, errors.WriterSuperseded):  # A newer request replaced this one.
        report(error)
    response = answer(*interop.problem_of(error, version))
    if isinstance(error, errors.TooLarge):
        response.headers.update(interop.limit_headers(ctx, version))
    if isinstance(error, interop.NotPartialUpload):
        response.headers["Accept-Patch"] = interop.PARTIAL_UPLOAD
    if request.method in {"POST", "PUT", "PATCH"}:
        response.headers.update(_state_after(ctx, error, version))
    return response


def _state_after(
    ctx: ViewContext, error: errors.UploadError, version: interop.InteropVersion
) -> dict[str, str]:
    """The state of the upload after a request that failed.

    If the request ended the upload, for instance with bytes that do not match its digest, the
    client gets "complete": there is nothing to resume (draft -12, section 4.1.2).
    """
    if "upload" not in g or isinstance(error, errors.WriterSuperseded):
        return version.write_completeness(is_complete=False)
    try:
        upload = ctx.services.uploads.get(ctx.scope, g.upload.id)
    except errors.UploadError:
        return version.write_completeness(is_complete=True)
    location = {"Location": _location(upload)} if request.method != "PATCH" else {}
    is_open = version.write_completeness(is_complete=False)
    return {**location, **is_open, "Upload-Offset": str(upload.offset)}


# ---- /resumable/ ---------------------------------------------------------------------------------


@blueprint.route("/", methods=["POST", "PUT"], provide_automatic_options=False)
@requires(Action.SEND)
def create(ctx: ViewContext) -> Response:
    """Create an upload resource and store the bytes in the request."""
    version, wanted = _version(), interop.WantedDigest(request.headers.get("Want-Repr-Digest", ""))
    transfer = interop.parse_creation(dict(request.headers), version, body_length())
    body = _checked(wanted.watch(open_body(ctx)) if transfer.is_last else open_body(ctx))
    # A body that is too large is refused before the upload is created, even if it is only a part.
    ctx.services.settings.policy.check_length(transfer.end)
    disposition = request.headers.get("Content-Disposition", "")
    digest = request.headers.get("Repr-Digest")
    new = NewUpload(
        scope=ctx.scope,
        filename=interop.parse_filename(disposition, request.mimetype),
        length=transfer.length(None),
        repr_digest=None if digest is None else parse_repr_digest(digest),
    )
    upload = _remember(ctx.services.uploads.create(new)[0])
    location = {"Location": _location(upload)}
    interim = _interim()
    interim.announce({**location, **interop.limit_headers(ctx, version, upload)})
    upload = _receive(ctx, upload, transfer, body, interim)
    status = version.completed_status if transfer.is_last else 201
    response = interop.acknowledgement(ctx, upload, version, status, is_last=transfer.is_last)
    response.headers.update({**location, **wanted.headers(ctx, upload)})
    return response


@blueprint.route("/", methods=["OPTIONS"], provide_automatic_options=False)
@requires(Action.VISIT, is_below_links=True)
def options(ctx: ViewContext) -> Response:
    """The limits of uploads (draft -12, section 4.1.4)."""
    response = current_app.make_default_options_response()
    response.headers.update(interop.limit_headers(ctx, _version()))
    return response


# ---- /resumable/<id> -----------------------------------------------------------------------------


@blueprint.get("/<upload_id>")
@requires(Action.SEND)
def look(ctx: ViewContext, upload_id: str) -> Response:
    """The offset of the upload; a request that is still writing is taken over first."""
    version, wanted = _version(), interop.WantedDigest(request.headers.get("Want-Repr-Digest", ""))
    _refuse_state(version, "Upload-Length")
    upload = _settled(ctx, upload_id)
    headers = {**interop.state_headers(ctx, upload, version), **wanted.headers(ctx, upload)}
    return Response(status=204, headers=headers)


@blueprint.patch("/<upload_id>")
@requires(Action.SEND)
def append(ctx: ViewContext, upload_id: str) -> Response:
    """Append the bytes in the request."""
    version, wanted = _version(), interop.WantedDigest(request.headers.get("Want-Repr-Digest", ""))
    if version.append_type not in {None, request.mimetype}:
        raise interop.NotPartialUpload(f"Send the bytes as {version.append_type}.")
    transfer = interop.parse_append(dict(request.headers), version, body_length())
    upload = _receive(ctx, _settled(ctx, upload_id), transfer, _checked(open_body(ctx)), _interim())
    status = version.completed_status if transfer.is_last else version.appended_status
    response = interop.acknowledgement(ctx, upload, version, status, is_last=transfer.is_last)
    response.headers.update(wanted.headers(ctx, upload))
    return response


@blueprint.delete("/<upload_id>")
@requires(Action.SEND)
def cancel(ctx: ViewContext, upload_id: str) -> Response:
    """End the upload and free its space."""
    _refuse_state(_version())
    upload = _settled(ctx, upload_id)
    audit.note_removal(ctx, ctx.services.uploads.cancel(ctx.scope, upload.id))
    return Response(status=204)


def _refuse_state(version: interop.InteropVersion, *others: str) -> None:
    """Refuse a request with state headers, as earlier drafts do: it is meant as another request."""
    barred = {version.completeness_header, "Upload-Offset", *others}
    found = barred & set(request.headers.keys())
    if version.bars_state_on_lookup and found:
        raise errors.InvalidRequest(
            f"These headers do not belong here: {', '.join(sorted(found))}."
        )


# ---- shared --------------------------------------------------------------------------------------


def _settled(ctx: ViewContext, upload_id: str) -> Upload:
    services = ctx.services
    upload = services.uploads.get(ctx.scope, parse_upload_id(upload_id))
    return _remember(services.chunks.stop_writer(upload))


def _remember(upload: Upload) -> Upload:
    """Note the upload for the log, and for the response in case the request fails."""
    g.upload = note_upload(upload)
    return upload


def _receive(
    ctx: ViewContext,
    upload: Upload,
    transfer: interop.Transfer,
    body: BodySource,
    interim: interop.Interim,
) -> Upload:
    """Append the bytes of `body`; returns the upload, complete if they were the last.

    Raises `InconsistentLength`, and what `Chunks.append_at_offset` raises.
    """
    upload.require_offset(transfer.offset)
    services, length = ctx.services, transfer.length(upload.length)
    if length is not None and upload.length is None:
        upload = services.chunks.declare_length(upload, length)
    if transfer.content_length == 0 and not transfer.is_last:
        return upload
    try:
        upload = services.chunks.append_at_offset(
            upload, transfer.offset, body, progress=interim.progress
        )
    except errors.ChunkMismatch as error:
        # Only a chunked body can turn out to be longer than the rest of the file.
        if _version().ends_overlong_upload:
            services.uploads.cancel(ctx.scope, upload.id)
        raise interop.InconsistentLength("The upload has more bytes than its length.") from error
    if not transfer.is_last:
        return upload
    if upload.length is None:  # The end of a chunked body may reveal the length of the file.
        return services.chunks.declare_length(upload, upload.offset)
    if upload.offset != upload.length:
        raise interop.InconsistentLength(
            f"The upload ends at byte {upload.offset}, but has {upload.length} bytes."
        )
    return upload


def _interim() -> interop.Interim:
    is_direct = came_directly(request.environ)
    return interop.Interim(request.environ, _named_version() if is_direct else None)


def _location(upload: Upload) -> str:
    return location_of("resumable.look", upload.id)


def _checked(body: BodySource) -> BodySource:
    return digest_source(body, request.headers.get("Content-Digest"))
