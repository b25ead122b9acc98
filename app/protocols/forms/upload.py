"""POST /upload: chunks of every library that needs no URL of its own, and whole files.

A file without any library's fields is stored as a whole file, unless its fields show that it is a
chunk in an unknown dialect. Such a chunk is refused: stored as a file, it would silently be lost.
"""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from flask import Blueprint, jsonify, redirect, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from app.core import errors
from app.core.access import Action
from app.core.json_types import (
    FIELD_NAMES,
    ClientKey,
    ContentDigest,
    Count,
    Filename,
    Positive,
    keywords,
)
from app.http.access import requires
from app.http.context import ViewContext
from app.http.documents import StoredUploadDocument, chunk_document
from app.http.openapi import describes, header, query
from app.http.problems import prefers_html
from app.protocols.forms.chunk_form import FORM_TYPE, receive_chunk
from app.protocols.forms.dialects import AT_UPLOAD, DROPZONE_FIELDS

blueprint = Blueprint("upload", __name__)


class ChunkFormDocument(TypedDict):
    """The `dz` fields of a chunk: all of them or none.

    They must agree with each other and with the length of `file`, which comes last.
    """

    dzuuid: NotRequired[ClientKey]
    dzchunkindex: NotRequired[Count]
    """Counted from 0."""
    dztotalfilesize: NotRequired[Count]
    """Bytes of the whole file."""
    dzchunksize: NotRequired[Positive]
    """Bytes of every chunk but the last."""
    dztotalchunkcount: NotRequired[Positive]
    """Chunks of the file."""
    dzchunkbyteoffset: NotRequired[Count]
    """`dzchunkindex` times `dzchunksize`."""
    digest: NotRequired[ContentDigest]
    """Of the chunk. One that does not match leaves nothing of the chunk behind."""
    file: bytes


class ReceiptDocument(StoredUploadDocument):
    """Stored. The upload as it is now.

    Of a form with several files, the first one's; `files` has one for each.
    """

    files: NotRequired[list[StoredUploadDocument]]


ALL_OR_NONE = {
    name: [other for other in DROPZONE_FIELDS if other != name] for name in DROPZONE_FIELDS
}


@blueprint.post("/upload")
@requires(Action.SEND)
@describes(
    "sendChunk",
    {
        200: ReceiptDocument,
        303: "Stored, and the form came from a browser. Back to the page.",
    },
    *(errors.MalformedBody, errors.UnknownChunkFields, errors.ChunkMismatch, errors.TooManyGaps),
    *(errors.DigestMismatch, errors.UploadConflict, errors.WriterSuperseded, errors.UploadGone),
    *(errors.LargerThanQuota, errors.TypeNotAllowed, errors.ServerBusy, errors.NoRoom),
    *(errors.QuotaExceeded, errors.TooMuchReserved),
    parameters=(
        query("dzuuid", "", ClientKey),
        query("dzchunkindex", "", Count),
        query("dztotalfilesize", "", Count),
        query("dzchunksize", "", Positive),
        query("dztotalchunkcount", "", Positive),
        query("dzchunkbyteoffset", "", Count),
        query("filename", "Raw chunks only.", Filename),
        header(
            "Content-Digest",
            "Raw chunks only. A chunk whose digest does not match leaves nothing behind.",
            ContentDigest,
        ),
    ),
    bodies={
        "multipart/form-data": Annotated[
            ChunkFormDocument, keywords(propertyNames=FIELD_NAMES, dependentRequired=ALL_OR_NONE)
        ],
        "application/octet-stream": bytes,
    },
)
def upload(ctx: ViewContext) -> BaseResponse:
    """Send one chunk of an upload, or whole files.

    - A form with the `dz` fields is one chunk. Chunks may come in any order, and more than once.
    - A raw body is one chunk too, with the `dz` fields in the query string.
    - A form without them stores each of its files whole.
    - On bad lines, chunks may also be sent as messages of WebSockets: see `GET /lanes` in
      docs/http-api.md.

    The chunk forms of several other upload libraries are understood as well (docs/protocols.md); a
    form that looks like a chunk of any other library is refused with `unknown_chunk_fields`.
    """
    uploads = receive_chunk(ctx, *AT_UPLOAD)
    if request.mimetype == FORM_TYPE and prefers_html():
        return redirect(url_for("pages.index", uploaded=len(uploads)), 303)
    first, *others = [chunk_document(upload) for upload in uploads]
    return jsonify({**first, "files": [first, *others]} if others else first)
