"""/filepond: the server protocol of FilePond, whole files and chunks.

    POST    a form with the file              201, the id as text
    POST    Upload-Length: n                  201, the id of a new chunked upload
    PATCH   ?patch=id  Upload-Offset: n       204
    HEAD    ?patch=id                         200, Upload-Offset
    GET     ?load=id, ?restore=id             302 to the file
    DELETE  the id as body                    204, upload cancelled or video deleted

FilePond (4.32) sends its chunks in order. It retries a failed chunk from its start without asking,
so any offset is accepted, not just the upload's. When it has asked, it skips every chunk that
begins before the offset it got, so a chunk is recorded completely or not at all.
"""

from __future__ import annotations

from flask import Blueprint, Response, redirect, request
from werkzeug.wrappers import Response as BaseResponse

from app.access import audit
from app.core.access import Action
from app.core.errors import InvalidRequest, UploadConflict
from app.core.policy import UNNAMED
from app.core.upload import Upload, UploadId, parse_upload_id
from app.http.access import requires
from app.http.bodies import open_body, read_small_body
from app.http.context import ViewContext, note_upload
from app.http.digests import digest_source
from app.http.proxy import location_of
from app.ingest.source import AllOrNothing
from app.protocols.forms.chunk_form import FORM_TYPE, ChunkForm
from app.protocols.forms.dialects import whole_number
from app.uploads.service import NewUpload

blueprint = Blueprint("filepond", __name__)

MAX_ID_BYTES = 1024
"""The body of DELETE is an id and nothing else."""


@blueprint.post("/filepond")
@requires(Action.SEND)
def process(ctx: ViewContext) -> tuple[str, int, dict[str, str]]:
    """Store a whole file, or create an upload for a file sent in chunks."""
    form = ChunkForm(ctx, max_files=1)  # Its forms never hold chunks.
    if "Upload-Length" in request.headers:
        # The form then has only the page's metadata. But a page that sets its own headers may also
        # send this one with whole files.
        uploads = form.receive_any() if request.mimetype == FORM_TYPE else []
        if not uploads:
            length = _header_number("Upload-Length")
            new = NewUpload(scope=ctx.scope, filename=_filename() or None, length=length)
            uploads = [note_upload(ctx.services.uploads.create(new)[0])]
    else:
        uploads = form.receive()
    return uploads[0].id, 201, {"Content-Type": "text/plain; charset=utf-8"}


def _filename() -> str:
    """The file name: the client sends UTF-8, and WSGI decodes headers as Latin-1."""
    name = request.headers.get("Upload-Name", "")
    try:
        return name.encode("latin-1").decode()
    except UnicodeError as error:
        raise InvalidRequest("The Upload-Name header is not UTF-8.") from error


@blueprint.patch("/filepond")
@requires(Action.SEND)
def patch(ctx: ViewContext) -> tuple[str, int, dict[str, str]]:
    """Store a chunk."""
    services, upload = ctx.services, _patched(ctx)
    offset = _header_number("Upload-Offset")
    if upload.filename == UNNAMED:
        upload = services.uploads.rename(upload, _filename())
    if "Upload-Length" in request.headers:
        length = _header_number("Upload-Length")
        if upload.length is None:
            upload = services.chunks.declare_length(upload, length)
        elif upload.length != length:
            raise UploadConflict(f"The upload has {upload.length} bytes, not {length}.")
    source = digest_source(open_body(ctx), request.headers.get("Content-Digest"))
    upload = services.chunks.append(upload, offset, AllOrNothing(source))
    return "", 204, {"Upload-Offset": str(upload.offset)}


def _header_number(name: str) -> int:
    value = request.headers.get(name)
    if value is None:
        raise InvalidRequest(f"The {name} header is missing.")
    return whole_number({name: value}, name)


@blueprint.get("/filepond")
@requires(Action.SEND)
def show(ctx: ViewContext) -> BaseResponse:
    """HEAD returns the upload's offset, GET redirects to the file."""
    if request.method == "HEAD":
        upload = ctx.services.chunks.wait_for_writer(_patched(ctx))
        headers = {"Upload-Offset": str(upload.offset), "Cache-Control": "no-store"}
        if upload.length is not None:
            headers["Upload-Length"] = str(upload.length)
        return Response(headers=headers)
    name = "load" if "load" in request.args else "restore"
    if name not in request.args:
        raise InvalidRequest(
            "This server loads only its own files, and fetches none from other servers."
        )
    video = ctx.services.library.get(ctx.scope, _id(name))
    return redirect(location_of("delivery.media", video.id))


@blueprint.delete("/filepond")
@requires(Action.SEND)
def revert(ctx: ViewContext) -> tuple[str, int]:
    """Cancel the upload, or delete the video it has become."""
    text = read_small_body(ctx, MAX_ID_BYTES).decode("ascii", "replace").strip()
    upload = ctx.services.uploads.get(ctx.scope, parse_upload_id(text))
    audit.note_removal(ctx, ctx.services.client_uploads.remove(ctx.scope, note_upload(upload)))
    return "", 204


def _patched(ctx: ViewContext) -> Upload:
    """The upload to which the request belongs."""
    return note_upload(ctx.services.uploads.get(ctx.scope, _id("patch")))


def _id(parameter: str) -> UploadId:
    if parameter not in request.args:
        raise InvalidRequest(f"The parameter {parameter} is missing.")
    return parse_upload_id(request.args[parameter])
