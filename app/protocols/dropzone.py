"""POST /upload: Dropzone's chunked form, its raw `binaryBody` form, and a plain HTML form.

Dropzone sends these fields before the file part of every chunk (6.3; sizes in bytes):

    dzuuid              the client's name for the upload
    dzchunkindex        0-based
    dztotalfilesize     of the whole file
    dzchunksize         as configured; the last chunk is shorter
    dztotalchunkcount
    dzchunkbyteoffset   = index x chunk size

With `binaryBody` the body is the bare chunk and the same names stand in the query string, with
`filename` beside them. A file that comes without any of them is taken whole. Either form may give
the digest of the chunk: as Content-Digest header (RFC 9530) of a raw body, as a field `digest` of
the same form before the file part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, Response, jsonify, redirect, request
from werkzeug.wrappers import Response as BaseResponse

from app.domain.errors import ChunkMismatch, InvalidRequest
from app.domain.lifecycle import UploadState
from app.domain.upload import Upload
from app.ingest.form import FilePart, FormReader
from app.ingest.multipart import Field
from app.ingest.source import BodySource
from app.uploads.service import NewUpload
from app.wire.context import current_owner, current_services, note_upload
from app.wire.digests import digest_source
from app.wire.problems import prefers_html
from app.wire.request_body import open_body, open_form

blueprint = Blueprint("dropzone", __name__)

FIELDS = (
    "dzuuid",
    "dzchunkindex",
    "dztotalfilesize",
    "dzchunksize",
    "dztotalchunkcount",
    "dzchunkbyteoffset",
)

FILE_FIELD = "file"

_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Chunk:
    """What the fields say of one chunk; `length` follows from them."""

    key: str
    offset: int
    length: int
    total: int


def parse_chunk(fields: Mapping[str, str]) -> Chunk | None:
    """The chunk the fields tell of; None where none of them is there.

    Raises `InvalidRequest` for a missing or malformed one, `ChunkMismatch` where they contradict
    each other.
    """
    if not any(name in fields for name in FIELDS):
        return None
    missing = [name for name in FIELDS if name not in fields]
    if missing:
        raise InvalidRequest(f"These fields are missing: {', '.join(missing)}.")
    index, total, size, count, offset = (_number(fields, name) for name in FIELDS[1:])
    if size == 0 or count != max(1, -(-total // size)):
        raise ChunkMismatch(f"A file of {total} bytes does not have {count} chunks of {size}.")
    if index >= count or offset != index * size:
        raise ChunkMismatch(f"Chunk {index} of {count} does not begin at byte {offset}.")
    return Chunk(fields["dzuuid"], offset, min(size, total - offset), total)


def _number(fields: Mapping[str, str], name: str) -> int:
    if not _NUMBER.fullmatch(fields[name]):
        raise InvalidRequest(f"The field {name} is not a whole number of bytes or chunks.")
    return int(fields[name])


@blueprint.post("/upload")
def upload() -> BaseResponse:
    """Take a chunk, or whole files."""
    if request.mimetype != "multipart/form-data":
        return _answer([_receive_raw()])
    uploads = _FormUpload().receive()
    if prefers_html():
        return redirect(f"/?uploaded={len(uploads)}", 303)
    return _answer(uploads)


def _receive_raw() -> Upload:
    chunk = parse_chunk(request.args)
    if chunk is None:
        raise InvalidRequest(
            "Send multipart/form-data, or a raw chunk with the dz fields in the query string."
        )
    source = digest_source(open_body(chunk.length), request.headers.get("Content-Digest"))
    return _append(chunk, request.args.get("filename", ""), source)


def _append(chunk: Chunk, filename: str, source: BodySource) -> Upload:
    upload = _upload_of(chunk, filename)
    return current_services().uploads.append(upload, chunk.offset, source)


def _upload_of(chunk: Chunk, filename: str) -> Upload:
    """The upload of that key, made when its first chunk, of whatever index, arrives."""
    uploads, owner = current_services().uploads, current_owner()
    found = uploads.find(owner, chunk.key, chunk.total)
    if found is None:
        new = NewUpload(owner=owner, filename=filename, length=chunk.total, client_key=chunk.key)
        found, _ = uploads.create(new)
    return note_upload(found)


class _FormUpload:
    """One multipart body: its fields so far, and the files in it.

    A file that comes before the fields that say where it belongs is received into an upload of
    its own and put in its place when the form has ended.
    """

    def __init__(self) -> None:
        self._fields: dict[str, str] = request.args.to_dict()
        self._received: list[Upload] = []
        self._waiting: list[Upload] = []

    def receive(self) -> list[Upload]:
        """Read the form to its end; the uploads its files went to."""
        reader = open_form()
        try:
            for part in reader.parts():
                if isinstance(part, Field):
                    self._fields[part.name] = part.value
                else:
                    self._receive_file(part, reader)
            self._place_waiting()
        except BaseException:
            self._drop_waiting()
            raise
        if not self._received:
            raise InvalidRequest(f"The form has no file part named {FILE_FIELD}.")
        return self._received

    def _receive_file(self, part: FilePart, reader: FormReader) -> None:
        is_told = all(name in self._fields for name in FIELDS)
        if is_told and (chunk := parse_chunk(self._fields)) is not None:
            source = digest_source(part.exactly(chunk.length), self._fields.get("digest"))
            self._received.append(_append(chunk, part.filename, source))
            return
        if not part.filename:
            part.skip()  # A browser sends such a part for a file input nothing was chosen in.
            return
        new = NewUpload(
            owner=current_owner(),
            filename=part.filename,
            length=None,
            at_most=reader.remaining or 0,
        )
        self._waiting.append(current_services().uploads.receive_open(new, part.whole()))

    def _place_waiting(self) -> None:
        uploads = current_services().uploads
        chunk = parse_chunk(self._fields)
        while self._waiting:
            waiting = self._waiting[0]
            if chunk is None:
                self._received.append(note_upload(uploads.close(waiting)))
            else:
                self._check_length(waiting, chunk)
                target = _upload_of(chunk, waiting.filename)
                self._received.append(uploads.graft(waiting, target, chunk.offset))
            del self._waiting[0]

    @staticmethod
    def _check_length(waiting: Upload, chunk: Chunk) -> None:
        if waiting.offset != chunk.length:
            raise ChunkMismatch(
                f"The chunk has {waiting.offset} bytes where it should have {chunk.length}."
            )

    def _drop_waiting(self) -> None:
        uploads = current_services().uploads
        for waiting in self._waiting:
            uploads.cancel(waiting.owner, waiting.id)


def _answer(uploads: list[Upload]) -> Response:
    first, *others = [_document(upload) for upload in uploads]
    return jsonify({**first, "files": [first, *others]} if others else first)


def _document(upload: Upload) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": upload.id,
        "filename": upload.filename,
        "received": upload.received.total,
        "length": upload.length,
        "complete": upload.state is UploadState.COMPLETE,
        "state": upload.state.value,
    }
    if upload.state is UploadState.COMPLETE:
        document["media"] = f"/media/{upload.id}"
    if upload.sha256:
        document["sha256"] = upload.sha256
    return document
