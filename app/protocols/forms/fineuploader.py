"""/fineuploader: Fine Uploader's traditional endpoint.

Its fields (5.16; sizes in bytes), in a form before the file part, or in the query string of a raw
body (`forceMultipart` and `paramsInBody` false):

    qquuid              the client's id of the upload
    qqfilename
    qqtotalfilesize     of the whole file
    qqpartindex         0-based
    qqpartbyteoffset
    qqchunksize         of this chunk
    qqtotalparts

Without the last four the file is whole, but still identified by qquuid. Responses are the same JSON
as for other clients, plus `success`. Errors have `preventRetry` (whether to give up) and `reset`
(whether the client must forget which chunks it has sent).

The request after the last chunk (`chunking.success.endpoint`) and deletion by POST use the same
URL, as small forms or JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import parse_qsl

from flask import Blueprint, Response, jsonify, request

from app.access import audit
from app.core.access import Action
from app.core.errors import (
    ChunkMismatch,
    InvalidRequest,
    UploadConflict,
    UploadError,
    UploadGone,
    UploadNotFound,
)
from app.core.upload import Upload
from app.http.access import requires
from app.http.bodies import json_body, read_small_body
from app.http.context import ViewContext, note_upload
from app.http.documents import chunk_document
from app.http.problems import Problem, answer, report
from app.protocols.forms.chunk_form import FORM_TYPE, ChunkForm, receive_raw
from app.protocols.forms.dialects import FormDialect, require_fields, whole_number
from app.uploads.client_uploads import Chunk

blueprint = Blueprint("fineuploader", __name__)

FILE_FIELDS = ("qquuid", "qqtotalfilesize")
PART_FIELDS = ("qqpartindex", "qqpartbyteoffset", "qqchunksize", "qqtotalparts")

COMMAND_TYPES = {"application/x-www-form-urlencoded", "application/json"}

ENDS_SESSION = (UploadConflict, UploadGone, UploadNotFound)
"""Errors after which the client must send all chunks again."""

MAX_COMMAND_BYTES = 64 * 1024
"""A few short fields, and those that the page adds."""


def parse_part(fields: Mapping[str, str]) -> Chunk | None:
    """The chunk or whole file described by the fields; None if they name no upload.

    Raises `InvalidRequest` for a missing or malformed field, `ChunkMismatch` for fields that
    contradict each other.
    """
    is_part = any(name in fields for name in PART_FIELDS)
    if not is_part and not all(name in fields for name in FILE_FIELDS):
        return None
    require_fields(fields, FILE_FIELDS)
    total, name = whole_number(fields, "qqtotalfilesize"), fields.get("qqfilename", "")
    if not is_part:
        return Chunk(fields["qquuid"], 0, total, total, name)
    require_fields(fields, PART_FIELDS)
    index, offset, length, count = (whole_number(fields, name) for name in PART_FIELDS)
    end = offset + length
    if index >= count or end > total or (index == count - 1) != (end == total):
        raise ChunkMismatch(f"Chunk {index} of {count} cannot end at byte {end}.")
    return Chunk(fields["qquuid"], offset, length, total, name)


DIALECT = FormDialect(FILE_FIELDS, parse_part)


@blueprint.post("/fineuploader")
@requires(Action.SEND)
def upload(ctx: ViewContext) -> Response:
    """Store a chunk or a whole file, or carry out the command in a small form."""
    if request.mimetype in COMMAND_TYPES:
        return _run_command(ctx, _command_fields(ctx))
    if request.mimetype == FORM_TYPE:
        return _answer(ChunkForm(ctx, DIALECT, max_files=1).receive()[0])
    length = str(request.content_length or 0)
    return _answer(
        receive_raw(ctx, (DIALECT,), {"qqtotalfilesize": length, **request.args.to_dict()})
    )


@blueprint.delete("/fineuploader/<key>")
@requires(Action.SEND)
def delete(ctx: ViewContext, key: str) -> Response:
    """Cancel the upload, or delete the video it has become."""
    return _remove(ctx, key)


def _remove(ctx: ViewContext, key: str) -> Response:
    audit.note_removal(ctx, ctx.services.client_uploads.remove(ctx.scope, _called(ctx, key)))
    return jsonify({"success": True})


def _called(ctx: ViewContext, key: str) -> Upload:
    return note_upload(ctx.services.client_uploads.called(ctx.scope, key))


def _command_fields(ctx: ViewContext) -> dict[str, str]:
    if request.mimetype == "application/json":
        return {name: str(value) for name, value in json_body(ctx, dict[str, object]).items()}
    try:
        text = read_small_body(ctx, MAX_COMMAND_BYTES).decode("ascii")
    except UnicodeError as error:
        raise InvalidRequest("The form has characters that are not percent-encoded.") from error
    return dict(parse_qsl(text, keep_blank_values=True))


def _run_command(ctx: ViewContext, fields: Mapping[str, str]) -> Response:
    require_fields(fields, ("qquuid",))
    if fields.get("_method") == "DELETE":
        return _remove(ctx, fields["qquuid"])
    return _answer(_whole(_called(ctx, fields["qquuid"])))


def _whole(upload: Upload) -> Upload:
    """The upload if all its bytes have arrived; raises `UploadConflict` otherwise."""
    if not upload.is_covered:
        raise UploadConflict(f"{upload.missing.total} bytes of the file have not arrived.")
    return upload


def _answer(upload: Upload) -> Response:
    document = {"success": True, **chunk_document(upload)}
    if upload.client_key == upload.id:
        document["newUuid"] = upload.id  # Later requests must use this id.
    return jsonify(document)


@blueprint.errorhandler(UploadError)
def refuse(error: UploadError) -> Response:
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
