"""The URLs to which libraries post chunks as forms: a shared one, and those of single libraries.

/upload takes the chunks of every library that needs no URL of its own, and whole files. Libraries
with requests or responses of their own have their own URL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import parse_qsl

from flask import Blueprint, Response, jsonify, redirect, request, url_for
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.wrappers import Response as BaseResponse

from app.access import audit
from app.core.access import Action
from app.core.errors import (
    BodyStalled,
    InvalidRequest,
    ServerBusy,
    UploadConflict,
    UploadError,
    UploadGone,
    UploadNotFound,
)
from app.core.upload import Upload
from app.http.access import requires
from app.http.bodies import json_object, read_small_body
from app.http.context import ViewContext, note_upload
from app.http.documents import chunk_document
from app.http.problems import Problem, answer, prefers_html, report
from app.protocols.forms.chunk_form import FORM_TYPE, ChunkForm, receive_chunk, receive_raw
from app.protocols.forms.dialects import (
    AT_UPLOAD,
    FINEUPLOADER,
    FLOW,
    RESUMABLEJS,
    SIMPLE_UPLOADER,
    FormDialect,
    require_fields,
)
from app.uploads.client_uploads import Chunk

# ---- /upload -------------------------------------------------------------------------------------

# Chunks of every library that needs no URL of its own, and whole files.
#
# A file without any library's fields is stored as a whole file, unless its fields show that it is a
# chunk in an unknown dialect. Such a chunk is refused: stored as a file, it would silently be lost.


shared = Blueprint("upload", __name__)


@shared.post("/upload")
@requires(Action.SEND)
def upload(ctx: ViewContext) -> BaseResponse:
    """Store a chunk, or whole files."""
    uploads = receive_chunk(ctx, *AT_UPLOAD)
    if request.mimetype == FORM_TYPE and prefers_html():
        return redirect(url_for("pages.index", uploaded=len(uploads)), 303)
    return _answer_shared(uploads)


def _answer_shared(uploads: list[Upload]) -> Response:
    first, *others = [chunk_document(upload) for upload in uploads]
    return jsonify({**first, "files": [first, *others]} if others else first)


# ---- numbered chunks -----------------------------------------------------------------------------

_RETRIED = {BodyStalled.status_hint, ServerBusy.status_hint}
"""Statuses that all of these clients retry."""


def answer_probe(ctx: ViewContext, dialect: FormDialect) -> Response:
    """200 if every byte of the probed chunk is stored, 204 otherwise."""
    chunk = dialect.parse(request.args)
    if not isinstance(chunk, Chunk):
        raise InvalidRequest(f"Name a chunk with the fields {', '.join(dialect.fields)}.")
    upload, has_chunk = ctx.services.client_uploads.probe(ctx.scope, chunk)
    if upload is not None:
        note_upload(upload)
    response = Response(status=200 if has_chunk else 204)
    response.headers["Cache-Control"] = "no-store"
    return response


def answer_chunk(ctx: ViewContext, dialect: FormDialect) -> Response:
    """Store the request's chunk; returns the state of the upload."""
    return jsonify(chunk_document(receive_chunk(ctx, dialect)[0]))


def answer_error(error: UploadError, *, ends_upload: frozenset[int] | None = None) -> Response:
    """The problem response, with a status that every client retries if a retry may help.

    The clients ignore the body: some statuses end the upload, and they retry all others. Pass the
    former as `ends_upload`, and a permanent error gets one of them.
    """
    report(error)
    problem = Problem.of(error)
    if problem.retryable and problem.status not in _RETRIED:
        pause = ServerBusy.retry_after_seconds
        return answer(replace(problem, status=ServerBusy.status_hint, retry_after_seconds=pause))
    return answer(replace(problem, status=_status(problem, ends_upload)))


def _status(problem: Problem, ends_upload: frozenset[int] | None) -> int:
    if problem.retryable or ends_upload is None or problem.status in ends_upload:
        return problem.status
    return 500 if problem.status >= 500 else 400


# ---- /resumablejs --------------------------------------------------------------------------------

# /resumablejs: Resumable.js, in its multipart form and in its `octet` form.
#
# Resumable.js (1.1) takes 200 and 201 for success and gives up on a few statuses. It retries
# anything else a hundred times, without a pause.


resumablejs = Blueprint("resumablejs", __name__)

ENDS_UPLOAD = frozenset({400, 401, 403, 404, 415, 500, 501})
"""Statuses on which every release gives up; some add 409. Releases before 1.1 retry 401 and 403,
which are sent all the same: they tell what would help."""


@resumablejs.get("/resumablejs", endpoint="probe")
@requires(Action.SEND)
def probe_resumablejs(ctx: ViewContext) -> Response:
    """Whether a chunk has been stored."""
    return answer_probe(ctx, RESUMABLEJS)


@resumablejs.post("/resumablejs", endpoint="upload")
@requires(Action.SEND)
def upload_resumablejs(ctx: ViewContext) -> Response:
    """Store a chunk."""
    return answer_chunk(ctx, RESUMABLEJS)


@resumablejs.errorhandler(UploadError)
def refuse_resumablejs(error: UploadError) -> Response:
    """The problem response; a permanent error gets a status that the client does not retry."""
    return answer_error(error, ends_upload=ENDS_UPLOAD)


# ---- /flow ---------------------------------------------------------------------------------------

# /flow: Flow.js, in its multipart form and in its `octet` form; see above.
#
# Flow.js (2.14) takes 200, 201 and 202 for success and gives up on 404, 413, 415, 500 and 501, also
# in response to a probe. It retries anything else as often as its option `maxChunkRetries` says, by
# default never.


flow = Blueprint("flow", __name__)
flow.register_error_handler(UploadError, answer_error)


@flow.get("/flow", endpoint="probe")
@requires(Action.SEND)
def probe_flow(ctx: ViewContext) -> Response:
    """Whether a chunk has been stored."""
    return answer_probe(ctx, FLOW)


@flow.post("/flow", endpoint="upload")
@requires(Action.SEND)
def upload_flow(ctx: ViewContext) -> Response:
    """Store a chunk."""
    return answer_chunk(ctx, FLOW)


# ---- the shared URL ------------------------------------------------------------------------------

# simple-uploader.js (0.6): the fields of Flow.js without a prefix; see above.
#
# It takes 200, 201 and 202 for success and gives up on 404, 415, 500 and 501. Its chunks go to the
# shared URL; only the probe before each chunk is handled here.


simple_uploader = Blueprint("simple_uploader", __name__)


@simple_uploader.get("/upload", endpoint="probe")
@requires(Action.SEND)
def probe_simple_uploader(ctx: ViewContext) -> Response:
    """Whether a chunk has been stored."""
    if SIMPLE_UPLOADER.parse(request.args) is None:
        raise MethodNotAllowed(valid_methods=["POST", "OPTIONS"])
    return answer_probe(ctx, SIMPLE_UPLOADER)


# ---- /fineuploader -------------------------------------------------------------------------------

# /fineuploader: Fine Uploader's traditional endpoint.
#
# Responses are the same JSON as for other clients, plus `success`. Errors have `preventRetry`
# (whether to give up) and `reset` (whether the client must forget which chunks it has sent).
#
# The request after the last chunk (`chunking.success.endpoint`) and deletion by POST use the same
# URL, as small forms or JSON.


fineuploader = Blueprint("fineuploader", __name__)

COMMAND_TYPES = {"application/x-www-form-urlencoded", "application/json"}

ENDS_SESSION = (UploadConflict, UploadGone, UploadNotFound)
"""Errors after which the client must send all chunks again."""

MAX_COMMAND_BYTES = 64 * 1024
"""A few short fields, and those that the page adds."""


@fineuploader.post("/fineuploader", endpoint="upload")
@requires(Action.SEND)
def upload_fineuploader(ctx: ViewContext) -> Response:
    """Store a chunk or a whole file, or carry out the command in a small form."""
    if request.mimetype in COMMAND_TYPES:
        return _run_command(ctx, _command_fields(ctx))
    if request.mimetype == FORM_TYPE:
        return _answer_fineuploader(ChunkForm(ctx, FINEUPLOADER, max_files=1).receive()[0])
    length = str(request.content_length or 0)
    return _answer_fineuploader(
        receive_raw(ctx, (FINEUPLOADER,), {"qqtotalfilesize": length, **request.args.to_dict()})
    )


@fineuploader.delete("/fineuploader/<key>", endpoint="delete")
@requires(Action.SEND)
def delete_fineuploader(ctx: ViewContext, key: str) -> Response:
    """Cancel the upload, or delete the video it has become."""
    return _remove(ctx, key)


def _remove(ctx: ViewContext, key: str) -> Response:
    audit.note_removal(ctx, ctx.services.client_uploads.remove(ctx.scope, _called(ctx, key)))
    return jsonify({"success": True})


def _called(ctx: ViewContext, key: str) -> Upload:
    return note_upload(ctx.services.client_uploads.called(ctx.scope, key))


def _command_fields(ctx: ViewContext) -> dict[str, str]:
    if request.mimetype == "application/json":
        return {name: str(value) for name, value in json_object(ctx).items()}
    try:
        text = read_small_body(ctx, MAX_COMMAND_BYTES).decode("ascii")
    except UnicodeError as error:
        raise InvalidRequest("The form has characters that are not percent-encoded.") from error
    return dict(parse_qsl(text, keep_blank_values=True))


def _run_command(ctx: ViewContext, fields: Mapping[str, str]) -> Response:
    require_fields(fields, ("qquuid",))
    if fields.get("_method") == "DELETE":
        return _remove(ctx, fields["qquuid"])
    return _answer_fineuploader(_whole(_called(ctx, fields["qquuid"])))


def _whole(upload: Upload) -> Upload:
    """The upload if all its bytes have arrived; raises `UploadConflict` otherwise."""
    if not upload.is_covered:
        raise UploadConflict(f"{upload.missing.total} bytes of the file have not arrived.")
    return upload


def _answer_fineuploader(upload: Upload) -> Response:
    document = {"success": True, **chunk_document(upload)}
    if upload.client_key == upload.id:
        document["newUuid"] = upload.id  # Later requests must use this id.
    return jsonify(document)


@fineuploader.errorhandler(UploadError)
def refuse_fineuploader(error: UploadError) -> Response:
    """The problem response, with the members that Fine Uploader reads."""
    report(error)
    problem = Problem.of(error)
    response = answer(problem)
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
