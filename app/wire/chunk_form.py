"""Chunks in forms, and raw chunks with the same fields in the query string.

Every dialect sends one file part and beside it fields which say where its bytes belong. Only the
names and the arithmetic differ: a dialect brings a function that reads its fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from flask import request

from app.domain.errors import ChunkMismatch, InvalidRequest
from app.domain.ranges import ByteRange
from app.domain.upload import Upload
from app.ingest.form import FilePart
from app.ingest.multipart import Field
from app.ingest.source import BodySource, StreamSource
from app.uploads.whole import ReceivedFile
from app.wire.context import current_owner, current_services, note_upload
from app.wire.digests import digest_source
from app.wire.request_body import open_body, open_form

MAX_FILES = 1000
"""Files in one form; what is known of each is held until it ends."""

FORM_TYPE = "multipart/form-data"

_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Chunk:
    """What the fields say of one chunk; `filename` where they name the file, too.

    `identifier` is what the client wrote, where `key` is made from it.
    """

    key: str
    offset: int
    length: int
    total: int
    filename: str = ""
    identifier: str = ""

    @property
    def span(self) -> ByteRange:
        """Its place in the file."""
        return ByteRange(self.offset, self.offset + self.length)


@dataclass(frozen=True, slots=True)
class FormDialect:
    """How a client names the fields of a chunk, and which upload it belongs to.

    Once all of `fields` are there, `parse` can tell where a file part belongs. It returns None for
    a form that has none of them, whose files are whole.
    """

    fields: tuple[str, ...]
    parse: Callable[[Mapping[str, str]], Chunk | None]
    upload_of: Callable[[Chunk, str], Upload]


def require_fields(fields: Mapping[str, str], names: Sequence[str]) -> None:
    """`InvalidRequest` that lists which of `names` are missing, if any."""
    if missing := [name for name in names if name not in fields]:
        raise InvalidRequest(f"These fields are missing: {', '.join(missing)}.")


def whole_number(fields: Mapping[str, str], name: str) -> int:
    """The value of a field; `InvalidRequest` unless it is plain decimal digits."""
    if not _NUMBER.fullmatch(fields[name]):
        raise InvalidRequest(f"The field {name} is not a whole number of bytes or chunks.")
    return int(fields[name])


def receive_chunk(dialect: FormDialect) -> list[Upload]:
    """Take the request's chunk, or its whole files; the uploads they went to."""
    if request.mimetype == FORM_TYPE:
        return ChunkForm(dialect).receive()
    return [receive_raw(dialect, request.args)]


def receive_raw(dialect: FormDialect, fields: Mapping[str, str]) -> Upload:
    """Take a body that is nothing but a chunk."""
    chunk = dialect.parse(fields)
    if chunk is None:
        raise InvalidRequest(
            f"Send {FORM_TYPE}, or a raw chunk with the fields "
            f"{', '.join(dialect.fields)} in the query string."
        )
    source = digest_source(open_body(chunk.length), request.headers.get("Content-Digest"))
    return _append(dialect, chunk, fields.get("filename", ""), source)


def _append(dialect: FormDialect, chunk: Chunk, filename: str, source: BodySource) -> Upload:
    upload = dialect.upload_of(chunk, chunk.filename or filename)
    return current_services().uploads.append(upload, chunk.offset, source)


class ChunkForm:
    """One multipart body: its fields so far, and the files in it.

    A file that comes before the fields that say where it belongs waits until the form has ended.
    """

    def __init__(self, dialect: FormDialect, max_files: int = MAX_FILES) -> None:
        self._dialect = dialect
        self._max_files = max_files
        self._fields: dict[str, str] = request.args.to_dict()
        self._uploads: list[Upload] = []
        self._waiting: list[ReceivedFile] = []

    def receive(self) -> list[Upload]:
        """Read the form to its end; the uploads its files went to, of which there must be one."""
        if not (uploads := self.receive_any()):
            raise InvalidRequest("The form has no file in it.")
        return uploads

    def receive_any(self) -> list[Upload]:
        """Like `receive`, but the form may be without a file."""
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
        return self._uploads

    def _receive_file(self, part: FilePart, room: int) -> None:
        if len(self._waiting) + len(self._uploads) == self._max_files:
            raise InvalidRequest(f"A form has at most {self._max_files} files; use /batch.")
        is_told = all(name in self._fields for name in self._dialect.fields)
        if is_told and (chunk := self._dialect.parse(self._fields)) is not None:
            source = digest_source(part.exactly(chunk.length), self._fields.get("digest"))
            self._uploads.append(_append(self._dialect, chunk, part.filename, source))
        elif part.filename:  # A browser sends an unnamed one for an input nothing was chosen in.
            source = digest_source(part.whole(), self._fields.get("digest"))
            file = current_services().whole_files.receive(
                source, owner=current_owner(), filename=part.filename, room=room
            )
            self._waiting.append(file)

    def _place_waiting(self) -> None:
        chunk = self._dialect.parse(self._fields)
        while self._waiting:
            if chunk is None:
                file = self._waiting.pop(0)
                self._uploads.append(note_upload(current_services().whole_files.keep(file)))
            else:
                self._uploads.append(self._graft(self._waiting[0], chunk))
                current_services().whole_files.drop(self._waiting.pop(0))

    def _graft(self, file: ReceivedFile, chunk: Chunk) -> Upload:
        if file.length != chunk.length:
            raise ChunkMismatch(
                f"The chunk has {file.length} bytes where it should have {chunk.length}."
            )
        with current_services().whole_files.open(file) as stream:
            source = digest_source(StreamSource(stream, file.length), self._fields.get("digest"))
            return _append(self._dialect, chunk, file.filename, source)
