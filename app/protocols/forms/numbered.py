"""Resumable.js, Flow.js and simple-uploader.js: chunks with numbers, and a probe before each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from flask import Blueprint, Response, jsonify, request
from werkzeug.exceptions import MethodNotAllowed

from app.core.access import Action
from app.core.errors import BodyStalled, ChunkMismatch, InvalidRequest, ServerBusy, UploadError
from app.http.access import requires
from app.http.context import ViewContext, note_upload
from app.http.documents import chunk_document
from app.http.problems import Problem, answer, report
from app.protocols.forms.chunk_form import receive_chunk
from app.protocols.forms.dialects import FormDialect, require_fields, whole_number
from app.uploads.client_uploads import Chunk
from app.uploads.service import derived_key

# ---- fields --------------------------------------------------------------------------------------

# Chunks with 1-based numbers, as sent by Resumable.js, Flow.js and simple-uploader.js.
#
# All use these fields, the first two with a prefix (sizes in bytes):
#
#     ChunkNumber         from 1
#     ChunkSize           as configured
#     CurrentChunkSize    of this chunk; the last one may be almost twice as large
#     TotalSize           of the whole file
#     Identifier          by default derived from length and name
#     Filename, RelativePath
#
# and TotalChunks, which is useless: while a file is still being cut it counts the chunks so far.
# Before each chunk they send a GET with the same fields (a probe) to ask whether it is stored.


_REQUIRED = ("Identifier", "ChunkNumber", "ChunkSize", "CurrentChunkSize", "TotalSize")

_RETRIED = {BodyStalled.status_hint, ServerBusy.status_hint}
"""Statuses that all of these clients retry."""


def numbered_dialect(prefix: str) -> FormDialect:
    """The dialect whose fields begin with `prefix`; if it is empty, with a lower-case letter."""
    names = tuple(_name(prefix, name) for name in _REQUIRED)
    return FormDialect(names, partial(parse_numbered, prefix), restarts=True)


def parse_numbered(prefix: str, fields: Mapping[str, str]) -> Chunk | None:
    """The chunk described by the fields; None if none of them is present.

    Raises `InvalidRequest` for a missing or malformed field, `ChunkMismatch` for fields that
    contradict each other.
    """
    names = [_name(prefix, name) for name in _REQUIRED]
    are_there = all if prefix == "" else any  # Without a prefix the names may be the page's own.
    if not are_there(name in fields for name in names):
        return None
    require_fields(fields, names)
    number, size, length, total = (whole_number(fields, name) for name in names[1:])
    offset = _offset(number, size, length, total)
    identifier = fields[names[0]]
    filename = fields.get(_name(prefix, "RelativePath")) or fields.get(
        _name(prefix, "Filename"), ""
    )
    key = derived_key(prefix or "simple", identifier, total, filename)
    return Chunk(key, offset, length, total, filename, identifier)


def _name(prefix: str, name: str) -> str:
    return prefix + name if prefix else name[0].lower() + name[1:]


def _offset(number: int, size: int, length: int, total: int) -> int:
    if number == 0 or size == 0:
        raise ChunkMismatch("Chunks are numbered from 1, and ChunkSize is not 0.")
    offset = (number - 1) * size
    is_last = offset + length == total
    if offset + length > total or not (is_last or length == size):
        raise ChunkMismatch(f"Chunk {number} of {length} bytes does not fit {total} bytes.")
    if length >= 2 * size or (length == 0 and total > 0):
        raise ChunkMismatch(f"Chunk {number} cannot have {length} bytes where others have {size}.")
    return offset


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

RESUMABLEJS = numbered_dialect("resumable")

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
def refuse(error: UploadError) -> Response:
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

FLOW = numbered_dialect("flow")


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

SIMPLE_UPLOADER = numbered_dialect("")


@simple_uploader.get("/upload", endpoint="probe")
@requires(Action.SEND)
def probe_simple_uploader(ctx: ViewContext) -> Response:
    """Whether a chunk has been stored."""
    if SIMPLE_UPLOADER.parse(request.args) is None:
        raise MethodNotAllowed(valid_methods=["POST", "OPTIONS"])
    return answer_probe(ctx, SIMPLE_UPLOADER)
