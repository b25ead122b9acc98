"""The URLs of libraries whose requests or responses are their own."""

from __future__ import annotations

import json
from dataclasses import replace
from urllib.parse import parse_qsl

from flask import Blueprint, Response, jsonify, redirect, request
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.wrappers import Response as BaseResponse

from app.access import audit
from app.core import errors
from app.core.access import Action
from app.core.policy import UNNAMED
from app.core.upload import Upload, UploadId, parse_upload_id
from app.http import bodies, problems
from app.http.access import requires
from app.http.context import ViewContext, note_upload
from app.http.digests import digest_source
from app.http.documents import chunk_document
from app.http.proxy import location_of
from app.ingest.source import AllOrNothing
from app.protocols.forms import dialects
from app.protocols.forms.chunk_form import FORM_TYPE, ChunkForm, receive_chunk, receive_raw
from app.uploads.client_uploads import Chunk
from app.uploads.service import NewUpload

# ---- /resumablejs, /flow -------------------------------------------------------------------------

# Resumable.js and Flow.js, in their multipart form and in their `octet` form. Before each chunk
# they ask whether it is stored.
#
# Resumable.js (1.1) takes 200 and 201 for success and gives up on a few statuses. It retries
# anything else a hundred times, without a pause.
#
# Flow.js (2.14) takes 200, 201 and 202 for success and gives up on 404, 413, 415, 500 and 501, also
# in response to a probe. It retries anything else as often as its option `maxChunkRetries` says, by
# default never.


ENDS_RESUMABLEJS = frozenset({400, 401, 403, 404, 415, 500, 501})
"""Statuses on which every release gives up; some add 409. Releases before 1.1 retry 401 and 403,
which are sent all the same: they tell what would help."""

_RETRIED = {errors.BodyStalled.status_hint, errors.ServerBusy.status_hint}
"""Statuses that all of these clients retry."""


def _numbered(name: str, dialect: dialects.FormDialect) -> Blueprint:
    """The URL of a client that asks before each chunk whether it is stored."""
    blueprint = Blueprint(name, __name__)

    @blueprint.get(f"/{name}", endpoint="probe")
    @requires(Action.SEND)
    def probe(ctx: ViewContext) -> Response:
        """Whether a chunk has been stored."""
        return _answer_probe(ctx, dialect)

    @blueprint.post(f"/{name}", endpoint="upload")
    @requires(Action.SEND)
    def upload(ctx: ViewContext) -> Response:
        """Store a chunk."""
        return jsonify(chunk_document(receive_chunk(ctx, dialect)[0]))

    return blueprint


def _answer_probe(ctx: ViewContext, dialect: dialects.FormDialect) -> Response:
    """200 if every byte of the probed chunk is stored, 204 otherwise."""
    chunk = dialect.parse(request.args)
    if not isinstance(chunk, Chunk):
        raise errors.InvalidRequest(f"Name a chunk with the fields {', '.join(dialect.fields)}.")
    upload, has_chunk = ctx.services.client_uploads.probe(ctx.scope, chunk)
    if upload is not None:
        note_upload(upload)
    return Response(status=200 if has_chunk else 204, headers={"Cache-Control": "no-store"})


resumablejs = _numbered("resumablejs", dialects.RESUMABLEJS)
flow = _numbered("flow", dialects.FLOW)


@resumablejs.errorhandler(errors.UploadError)
def refuse_resumablejs(error: errors.UploadError) -> Response:
    """The problem response; a permanent error gets a status that the client does not retry."""
    problem = _problem_of(error)
    if not problem.retryable and problem.status not in ENDS_RESUMABLEJS:
        problem = replace(problem, status=500 if problem.status >= 500 else 400)
    return problems.answer(problem)


@flow.errorhandler(errors.UploadError)
def refuse_flow(error: errors.UploadError) -> Response:
    """The problem response."""
    return problems.answer(_problem_of(error))


def _problem_of(error: errors.UploadError) -> problems.Problem:
    """The problem, with a status that every client retries if a retry may help.

    The clients ignore the body: some statuses end the upload, and they retry all others.
    """
    problems.report(error)
    problem, busy = problems.Problem.of(error), errors.ServerBusy
    if problem.retryable and problem.status not in _RETRIED:
        pause = busy.retry_after_seconds
        return replace(problem, status=busy.status_hint, retry_after_seconds=pause)
    return problem


# ---- the probe at /upload ------------------------------------------------------------------------

# simple-uploader.js (0.6): the fields of Flow.js without a prefix; see above.
#
# It takes 200, 201 and 202 for success and gives up on 404, 415, 500 and 501. Its chunks go to the
# shared URL; only the probe before each chunk is handled here.


simple_uploader = Blueprint("simple_uploader", __name__)


@simple_uploader.get("/upload", endpoint="probe")
@requires(Action.SEND)
def probe_simple_uploader(ctx: ViewContext) -> Response:
    """Whether a chunk has been stored."""
    if dialects.SIMPLE_UPLOADER.parse(request.args) is None:
        raise MethodNotAllowed(valid_methods=["POST", "OPTIONS"])
    return _answer_probe(ctx, dialects.SIMPLE_UPLOADER)


# ---- /fineuploader -------------------------------------------------------------------------------

# Fine Uploader's traditional endpoint.
#
# Responses are the same JSON as for other clients, plus `success`. Errors have `preventRetry`
# (whether to give up) and `reset` (whether the client must forget which chunks it has sent).
#
# The request after the last chunk (`chunking.success.endpoint`) and deletion by POST use the same
# URL, as small forms or JSON.


fineuploader = Blueprint("fineuploader", __name__)

COMMAND_TYPES = {"application/x-www-form-urlencoded", "application/json"}

ENDS_SESSION = (errors.UploadConflict, errors.UploadGone, errors.UploadNotFound)
"""Errors after which the client must send all chunks again."""

MAX_COMMAND_BYTES = 64 * 1024
"""A few short fields, and those that the page adds."""


@fineuploader.post("/fineuploader", endpoint="upload")
@requires(Action.SEND)
def upload_fineuploader(ctx: ViewContext) -> Response:
    """Store a chunk or a whole file, or carry out the command in a small form."""
    if request.mimetype in COMMAND_TYPES:
        return _run_command(ctx)
    if request.mimetype == FORM_TYPE:
        uploads = ChunkForm(ctx, dialects.FINEUPLOADER, max_files=1).receive()
        return _answer_fineuploader(uploads[0])
    fields = {"qqtotalfilesize": str(request.content_length or 0), **request.args.to_dict()}
    return _answer_fineuploader(receive_raw(ctx, (dialects.FINEUPLOADER,), fields))


@fineuploader.delete("/fineuploader/<key>", endpoint="delete")
@requires(Action.SEND)
def delete_fineuploader(ctx: ViewContext, key: str) -> Response:
    """Cancel the upload, or delete the video it has become."""
    return _remove(ctx, key)


def _remove(ctx: ViewContext, key: str) -> Response:
    uploads = ctx.services.client_uploads
    upload = note_upload(uploads.called(ctx.scope, key))
    audit.note_removal(ctx, uploads.remove(ctx.scope, upload))
    return jsonify({"success": True})


def _run_command(ctx: ViewContext) -> Response:
    if request.mimetype == "application/json":
        fields = {
            name: str(value) for name, value in bodies.json_body(ctx, dict[str, object]).items()
        }
    else:
        try:
            text = bodies.read_small_body(ctx, MAX_COMMAND_BYTES).decode("ascii")
        except UnicodeError as error:
            raise errors.InvalidRequest(
                "The form has characters that are not percent-encoded."
            ) from error
        fields = dict(parse_qsl(text, keep_blank_values=True))
    dialects.require_fields(fields, ("qquuid",))
    if fields.get("_method") == "DELETE":
        return _remove(ctx, fields["qquuid"])
    upload = note_upload(ctx.services.client_uploads.called(ctx.scope, fields["qquuid"]))
    if not upload.is_covered:
        raise errors.UploadConflict(f"{upload.missing.total} bytes of the file have not arrived.")
    return _answer_fineuploader(upload)


def _answer_fineuploader(upload: Upload) -> Response:
    document = {"success": True, **chunk_document(upload)}
    if upload.client_key == upload.id:
        document["newUuid"] = upload.id  # Later requests must use this id.
    return jsonify(document)


@fineuploader.errorhandler(errors.UploadError)
def refuse_fineuploader(error: errors.UploadError) -> Response:
    """The problem response, with the members that Fine Uploader reads."""
    problems.report(error)
    problem = problems.Problem.of(error)
    response = problems.answer(problem)
    document = {
        "success": False,
        "error": problem.detail,
        "preventRetry": not problem.retryable,
        "reset": not problem.retryable and isinstance(error, ENDS_SESSION),
        **problem.to_json(),
    }
    response.set_data(json.dumps(document))
    response.content_type = "application/json"
    return response


# ---- /filepond -----------------------------------------------------------------------------------

#     POST    a form with the file              201, the id as text
#     POST    Upload-Length: n                  201, the id of a new chunked upload
#     PATCH   ?patch=id  Upload-Offset: n       204
#     HEAD    ?patch=id                         200, Upload-Offset
#     GET     ?load=id, ?restore=id             302 to the file
#     DELETE  the id as body                    204, upload cancelled or video deleted
#
# FilePond (4.32) sends its chunks in order. It retries a failed chunk from its start without
# asking, so any offset is accepted, not just the upload's. When it has asked, it skips every chunk
# that begins before the offset it got, so a chunk is recorded completely or not at all.


filepond = Blueprint("filepond", __name__)

MAX_ID_BYTES = 1024
"""The body of DELETE is an id and nothing else."""


@filepond.post("/filepond")
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
        raise errors.InvalidRequest("The Upload-Name header is not UTF-8.") from error


@filepond.patch("/filepond")
@requires(Action.SEND)
def patch(ctx: ViewContext) -> tuple[str, int, dict[str, str]]:
    """Store a chunk."""
    services, upload = ctx.services, _patched(ctx)
    offset = _header_number("Upload-Offset")
    if upload.filename == UNNAMED:
        upload = services.uploads.rename(upload, _filename())
    if "Upload-Length" in request.headers:
        length = _header_number("Upload-Length")
        upload.require_length(length)
        if upload.length is None:
            upload = services.chunks.declare_length(upload, length)
    source = digest_source(bodies.open_body(ctx), request.headers.get("Content-Digest"))
    upload = services.chunks.append(upload, offset, AllOrNothing(source))
    return "", 204, {"Upload-Offset": str(upload.offset)}


def _header_number(name: str) -> int:
    value = request.headers.get(name)
    if value is None:
        raise errors.InvalidRequest(f"The {name} header is missing.")
    return dialects.whole_number({name: value}, name)


@filepond.get("/filepond")
@requires(Action.SEND)
def show(ctx: ViewContext) -> BaseResponse:
    """HEAD returns the upload's offset, GET redirects to the file."""
    if request.method == "HEAD":
        upload = ctx.services.chunks.stop_writer(_patched(ctx))
        headers = {"Upload-Offset": str(upload.offset), "Cache-Control": "no-store"}
        if upload.length is not None:
            headers["Upload-Length"] = str(upload.length)
        return Response(headers=headers)
    name = "load" if "load" in request.args else "restore"
    if name not in request.args:
        raise errors.InvalidRequest(
            "This server loads only its own files, and fetches none from other servers."
        )
    video = ctx.services.library.get(ctx.scope, _id(name))
    return redirect(location_of("delivery.media", video.id))


@filepond.delete("/filepond")
@requires(Action.SEND)
def revert(ctx: ViewContext) -> tuple[str, int]:
    """Cancel the upload, or delete the video it has become."""
    text = bodies.read_small_body(ctx, MAX_ID_BYTES).decode("ascii", "replace").strip()
    upload = ctx.services.uploads.get(ctx.scope, parse_upload_id(text))
    audit.note_removal(ctx, ctx.services.client_uploads.remove(ctx.scope, note_upload(upload)))
    return "", 204


def _patched(ctx: ViewContext) -> Upload:
    """The upload to which the request belongs."""
    return note_upload(ctx.services.uploads.get(ctx.scope, _id("patch")))


def _id(parameter: str) -> UploadId:
    if parameter not in request.args:
        raise errors.InvalidRequest(f"The parameter {parameter} is missing.")
    return parse_upload_id(request.args[parameter])
