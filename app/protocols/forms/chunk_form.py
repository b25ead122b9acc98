"""Chunks in forms, and raw chunks with the same fields in the query string.

A chunk whose place is known from its fields is written directly to the upload. A chunk that comes
before its fields, or whose place depends on its length, is staged until the form ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from flask import request

from app.core.errors import (
    ChunkMismatch,
    InvalidRequest,
    ServerBusy,
    UnknownChunkFields,
    UploadNotFound,
)
from app.core.upload import Upload
from app.http.bodies import chunk_signs, open_body, open_form
from app.http.context import ViewContext, note_upload
from app.http.digests import digest_source
from app.ingest.form import FilePart
from app.ingest.multipart import Field
from app.ingest.source import BodySource, StreamSource
from app.protocols.forms.dialects import FormDialect, UnplacedChunk
from app.protocols.forms.staged_chunks import StagedChunk, place_staged, stage
from app.uploads.client_uploads import Chunk
from app.uploads.files import ReceivedFile

MAX_FILES = 1000
"""Maximum files in one form; metadata of each is held in memory until the form ends."""

FORM_TYPE = "multipart/form-data"

HEADERS = (
    "content-range",
    "content-disposition",
    "uploader-file-id",
    "uploader-chunk-number",
    "uploader-chunks-total",
    "uploader-file-name",
    "uploader-file-size",
)
"""Headers that dialects treat like fields."""


def receive_chunk(ctx: ViewContext, *dialects: FormDialect) -> list[Upload]:
    """Store the request's chunk or its whole files; returns the uploads they went to."""
    if request.mimetype == FORM_TYPE:
        return ChunkForm(ctx, *dialects).receive()
    return [receive_raw(ctx, dialects, request_fields())]


def request_fields() -> dict[str, str]:
    """The fields in the query string, and those sent as headers, with names in lower case."""
    fields = request.args.to_dict()
    headers = request.headers
    fields.update((name, headers[name]) for name in HEADERS if name in headers)
    return fields


def receive_raw(
    ctx: ViewContext, dialects: tuple[FormDialect, ...], fields: Mapping[str, str]
) -> Upload:
    """Store a body that consists of the raw bytes of a chunk."""
    dialect, chunk = parse_chunk(dialects, fields)
    if chunk is None:
        raise InvalidRequest(
            f"Send {FORM_TYPE}, or a raw chunk with the fields "
            f"{', '.join(dialect.fields)} in the query string."
        )
    filename = fields.get("filename", "")
    expected = chunk.length if isinstance(chunk, Chunk) else None
    source = digest_source(open_body(ctx, expected), request.headers.get("Content-Digest"))
    if isinstance(chunk, Chunk):
        return _append(ctx, dialect, chunk, filename, source)
    return place_staged(ctx, chunk, stage(ctx, chunk, source, filename=filename))


def parse_chunk(
    dialects: tuple[FormDialect, ...], fields: Mapping[str, str]
) -> tuple[FormDialect, Chunk | UnplacedChunk | None]:
    """The dialect that knows the fields and its chunk, or any dialect and None if none does."""
    for dialect in dialects:
        if (chunk := dialect.parse(fields)) is not None:
            return dialect, chunk
    return dialects[0], None


def _append(
    ctx: ViewContext, dialect: FormDialect, chunk: Chunk, filename: str, source: BodySource
) -> Upload:
    services = ctx.services
    clients = services.client_uploads
    find = clients.of_restartable_chunk if dialect.restarts else clients.of_chunk
    upload = note_upload(find(ctx.scope, chunk, chunk.filename or filename))
    try:
        return services.chunks.append(upload, chunk.offset, source)
    except UploadNotFound as error:
        # Another chunk created the upload, and could not reserve its space. A chunk names no upload
        # that could be missing: a retry creates one.
        raise ServerBusy("The upload could not be created; send the chunk again.") from error


class ChunkForm:
    """One multipart body: its fields so far, and the files in it."""

    def __init__(
        self, ctx: ViewContext, *dialects: FormDialect, max_files: int = MAX_FILES
    ) -> None:
        self._ctx = ctx
        self._dialects = dialects
        self._max_files = max_files
        self._fields = request_fields()
        self._uploads: list[Upload] = []
        self._staged: list[StagedChunk] = []

    def receive(self) -> list[Upload]:
        """Read the form to its end; returns the uploads its files went to, at least one."""
        if not (uploads := self.receive_any()):
            raise InvalidRequest("The form has no file in it.")
        return uploads

    def receive_any(self) -> list[Upload]:
        """Like `receive`, but the form may have no file."""
        reader = open_form(self._ctx)
        try:
            for part in reader.parts():
                if isinstance(part, Field):
                    self._fields[part.name] = part.value
                else:
                    self._receive_file(part, room=reader.remaining or 0)
            if self._staged:
                self._place_staged()
        finally:
            for staged in self._staged:
                self._ctx.services.whole_files.drop(staged.file)
        return self._uploads

    def _receive_file(self, part: FilePart, room: int) -> None:
        if len(self._staged) + len(self._uploads) == self._max_files:
            raise InvalidRequest(f"A form has at most {self._max_files} files; use /batch.")
        dialect, chunk = self._placed_chunk()
        if isinstance(chunk, Chunk):
            source = digest_source(part.exactly(chunk.length), self._fields.get("digest"))
            self._uploads.append(_append(self._ctx, dialect, chunk, part.filename, source))
        elif part.filename:  # Browsers send an unnamed part for an empty file input.
            source = digest_source(part.whole(), self._fields.get("digest"))
            self._staged.append(stage(self._ctx, chunk, source, filename=part.filename, room=room))

    def _placed_chunk(self) -> tuple[FormDialect, Chunk | UnplacedChunk | None]:
        """The chunk and its dialect, if all of its fields have arrived."""
        for dialect in self._dialects:
            if all(name in self._fields for name in dialect.fields):
                chunk = dialect.parse(self._fields)
                if chunk is not None:
                    return dialect, chunk
        return self._dialects[0], None

    def _place_staged(self) -> None:
        dialect, chunk = parse_chunk(self._dialects, self._fields)
        if chunk is None:
            self._refuse_unknown_chunk()
        while self._staged:
            if isinstance(chunk, Chunk):
                self._uploads.append(self._append_staged(dialect, self._staged[0].file, chunk))
                self._ctx.services.whole_files.drop(self._staged.pop(0).file)
            elif chunk is not None:
                self._uploads.append(place_staged(self._ctx, chunk, self._staged.pop(0)))
            else:
                file = self._staged.pop(0).file
                self._uploads.append(note_upload(self._ctx.services.whole_files.keep(file)))

    def _refuse_unknown_chunk(self) -> None:
        """Refuse the form: a chunk stored as a whole file would be silent data loss."""
        length = self._staged[0].file.length if len(self._staged) == 1 else None
        if signs := chunk_signs(self._fields, request.headers.keys(), length):
            raise UnknownChunkFields.of(signs)

    def _append_staged(self, dialect: FormDialect, file: ReceivedFile, chunk: Chunk) -> Upload:
        if file.length != chunk.length:
            raise ChunkMismatch(
                f"The chunk has {file.length} bytes where it should have {chunk.length}."
            )
        with self._ctx.services.whole_files.open(file) as stream:
            source = digest_source(StreamSource(stream, file.length), self._fields.get("digest"))
            return _append(self._ctx, dialect, chunk, file.filename, source)
