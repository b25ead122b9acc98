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
from app.ingest.form import FilePart
from app.ingest.multipart import Field
from app.ingest.source import BodySource, StreamSource
from app.uploads.service import NewUpload
from app.uploads.whole import ReceivedFile
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

MAX_FILES = 1000
"""Whole files in one plain form; they are all held until it ends."""

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

    A file that comes before the fields that say where it belongs waits until the form has ended.
    """

    def __init__(self) -> None:
        self._fields: dict[str, str] = request.args.to_dict()
        self._uploads: list[Upload] = []
        self._waiting: list[ReceivedFile] = []

    def receive(self) -> list[Upload]:
        """Read the form to its end; the uploads its files went to."""
        reader = open_form()
        try:
            for part in reader.parts():
                if isinstance(part, Field):
                    self._fields[part.name] = part.value
                else:
                    self._receive_file(part, room=reader.remaining or 0)
            self._place_waiting()
        finally:
            for file in self._waiting:
                current_services().whole_files.drop(file)
        if not self._uploads:
            raise InvalidRequest("The form has no file in it.")
        return self._uploads

    def _receive_file(self, part: FilePart, room: int) -> None:
        is_told = all(name in self._fields for name in FIELDS)
        if is_told and (chunk := parse_chunk(self._fields)) is not None:
            source = digest_source(part.exactly(chunk.length), self._fields.get("digest"))
            self._uploads.append(_append(chunk, part.filename, source))
        elif len(self._waiting) == MAX_FILES:
            raise InvalidRequest(f"A form has at most {MAX_FILES} files; use /batch.")
        elif part.filename:  # A browser sends an unnamed one for an input nothing was chosen in.
            source = digest_source(part.whole(), self._fields.get("digest"))
            file = current_services().whole_files.receive(
                source, owner=current_owner(), filename=part.filename, room=room
            )
            self._waiting.append(file)

    def _place_waiting(self) -> None:
        chunk = parse_chunk(self._fields)
        while self._waiting:
            if chunk is None:
                file = self._waiting.pop(0)
                self._uploads.append(note_upload(current_services().whole_files.keep(file)))
            else:
                self._uploads.append(
                    self._graft(self._waiting[0], chunk, self._fields.get("digest"))
                )
                current_services().whole_files.drop(self._waiting.pop(0))

    @staticmethod
    def _graft(file: ReceivedFile, chunk: Chunk, digest: str | None) -> Upload:
        if file.length != chunk.length:
            raise ChunkMismatch(
                f"The chunk has {file.length} bytes where it should have {chunk.length}."
            )
        with current_services().whole_files.open(file) as stream:
            source = StreamSource(stream, file.length)
            return _append(chunk, file.filename, digest_source(source, digest))


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
