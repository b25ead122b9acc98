"""Chunks in forms, and raw chunks with the same fields in the query string.

A chunk whose place is known from its fields is written directly to the upload. A chunk that comes
before its fields, or whose place depends on its length, is staged until the form ends.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from flask import request

from app.core import errors
from app.core.chunk_signs import chunk_signs
from app.core.lifecycle import UploadState
from app.core.policy import UNNAMED, clean_filename
from app.core.ranges import ByteRange
from app.core.upload import Upload
from app.http.bodies import open_body, open_form
from app.http.context import ViewContext, note_upload
from app.http.digests import digest_source
from app.ingest.form import FilePart
from app.ingest.multipart import Field
from app.ingest.source import AllOrNothing, BodySource, StreamSource
from app.protocols.forms.dialects import HEADERS, FormDialect, UnplacedChunk
from app.uploads.client_uploads import Chunk
from app.uploads.files import ReceivedFile
from app.uploads.service import NewUpload, derived_key

MAX_FILES = 1000
"""Maximum files in one form; metadata of each is held in memory until the form ends."""

FORM_TYPE = "multipart/form-data"


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
    ctx: ViewContext, dialects: Sequence[FormDialect], fields: Mapping[str, str]
) -> Upload:
    """Store a body that consists of the raw bytes of a chunk."""
    chunk = parse_chunk(dialects, fields)
    if chunk is None:
        raise errors.InvalidRequest(
            f"Send {FORM_TYPE}, or a raw chunk with the fields "
            f"{', '.join(dialects[0].fields)} in the query string."
        )
    filename = fields.get("filename", "")
    expected = chunk.length if isinstance(chunk, Chunk) else None
    source = digest_source(open_body(ctx, expected), request.headers.get("Content-Digest"))
    if isinstance(chunk, Chunk):
        return _append(ctx, chunk, filename, source)
    return place_staged(ctx, chunk, stage(ctx, chunk, source, filename=filename))


def parse_chunk(
    dialects: Iterable[FormDialect], fields: Mapping[str, str]
) -> Chunk | UnplacedChunk | None:
    """The chunk that the fields describe in one of the dialects; None if they are in none."""
    for dialect in dialects:
        if (chunk := dialect.parse(fields)) is not None:
            return chunk
    return None


def _append(ctx: ViewContext, chunk: Chunk, filename: str, source: BodySource) -> Upload:
    uploads = ctx.services.client_uploads
    upload = note_upload(uploads.of_chunk(ctx.scope, chunk, chunk.filename or filename))
    try:
        return ctx.services.chunks.append(upload, chunk.offset, source)
    except errors.UploadNotFound as error:
        # Another chunk created the upload, and could not reserve its space. A chunk names no upload
        # that could be missing: a retry creates one.
        raise errors.ServerBusy("The upload could not be created; send the chunk again.") from error


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
            raise errors.InvalidRequest("The form has no file in it.")
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
            raise errors.InvalidRequest(f"A form has at most {self._max_files} files; use /batch.")
        # Without all fields of a dialect, the others may come after the file.
        chunk = parse_chunk(
            (dialect for dialect in self._dialects if dialect.has_all(self._fields)), self._fields
        )
        if isinstance(chunk, Chunk):
            source = digest_source(part.exactly(chunk.length), self._fields.get("digest"))
            self._uploads.append(_append(self._ctx, chunk, part.filename, source))
        elif part.filename:  # Browsers send an unnamed part for an empty file input.
            source = digest_source(part.whole(), self._fields.get("digest"))
            self._staged.append(stage(self._ctx, chunk, source, filename=part.filename, room=room))

    def _place_staged(self) -> None:
        whole_files = self._ctx.services.whole_files
        chunk = parse_chunk(self._dialects, self._fields)
        if chunk is None:
            # A chunk of an unknown library, stored as a whole file, would silently be lost.
            length = self._staged[0].file.length if len(self._staged) == 1 else None
            if signs := chunk_signs(self._fields, request.headers.keys(), length):
                raise errors.UnknownChunkFields.of(signs)
        while self._staged:
            if isinstance(chunk, Chunk):
                file = self._staged[0].file
                if file.length != chunk.length:
                    raise errors.ChunkMismatch(
                        f"The chunk has {file.length} bytes where it should have {chunk.length}."
                    )
                with whole_files.open(file) as stream:
                    source = StreamSource(stream, file.length)
                    checked = digest_source(source, self._fields.get("digest"))
                    self._uploads.append(_append(self._ctx, chunk, file.filename, checked))
                whole_files.drop(self._staged.pop(0).file)
            elif chunk is not None:
                self._uploads.append(place_staged(self._ctx, chunk, self._staged.pop(0)))
            else:
                file = self._staged.pop(0).file
                self._uploads.append(note_upload(whole_files.keep(file)))


# ---- chunks placed after they have arrived -------------------------------------------------------

# Chunks that are placed after their bytes have arrived, and compared with the stored bytes.
#
# Some libraries send neither the length of the file nor the offset of a chunk; others send nothing
# that distinguishes two people who upload files of the same name. Two rules hold all the same: no
# chunk is stored at a guessed offset, and two files are not mixed, unless a library gives both the
# same name.
#
# - A chunk is staged in a file of its own until all of it has arrived, and is recorded completely
#   or not at all.
# - An upload without an identity of its own grows from its start: a chunk belongs at the offset, or
#   is stored already.
# - The stored bytes are then compared with the chunk's, no matter which request wrote them. If all
#   chunks of a client succeeded, its own file is stored.
# - The next file of the same name does not continue an upload that has ended: a first chunk starts
#   a new upload. Only the client that sent that first chunk can continue it; a later chunk of any
#   other client belongs to the earlier upload, whose start that client sent.


BARE_BLOB = "blob"
"""The name that browsers give to a slice of a file."""


class _Keys(NamedTuple):
    """Keys of an upload: `shared` by all senders; `own` for the sender who restarted it."""

    own: str
    shared: str


_CHUNK_BYTES = re.compile(r"(?:^|,)chunkbytes ([A-Za-z0-9+/=]+)")


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """A file part in a staging file of its own, and its upload as looked up before it arrived.

    `upload` is None if there was none with these `keys`. Without `keys`, look it up again.
    """

    file: ReceivedFile
    keys: _Keys | None = None
    upload: Upload | None = None


def stage(
    ctx: ViewContext,
    chunk: UnplacedChunk | None,
    source: BodySource,
    *,
    filename: str,
    room: int = 0,
) -> StagedChunk:
    """Stage a whole file, or a chunk; raises what `WholeFiles.receive` raises.

    The space for a chunk of a known upload is already reserved. Any other chunk is checked against
    the limits like a file: strangers could otherwise fill the disk with chunks of uploads that are
    then refused.
    """
    receive = partial(ctx.services.whole_files.receive, source, scope=ctx.scope, room=room)
    if chunk is not None and chunk.filename:
        filename = chunk.filename
    if chunk is None or not chunk.may_be_part:
        return StagedChunk(receive(filename=filename))
    keys, upload = _look_up(ctx, chunk, clean_filename(filename))
    if upload is None:
        try:
            return StagedChunk(receive(filename=filename), keys)
        except (errors.LinkFull, errors.QuotaExceeded) as error:
            if isinstance(error, errors.QuotaExceeded) and not (source.remaining or room):
                raise  # The length was unknown beforehand, so the body has been read.
            # Another chunk may have created the upload since, and taken the last place or space.
            keys, upload = _look_up(ctx, chunk, clean_filename(filename))
            if upload is None:
                raise
    end = None if chunk.needs_chunk_size else upload.length
    most_bytes = _chunk_bytes(upload) if end is None else max(0, end - (chunk.start or 0))
    try:
        return StagedChunk(receive(filename=filename, most_bytes=most_bytes), keys, upload)
    except errors.TooLarge as error:
        raise errors.ChunkMismatch(f"A chunk has at most {most_bytes} bytes here.") from error


def _look_up(
    ctx: ViewContext, chunk: UnplacedChunk, filename: str
) -> tuple[_Keys | None, Upload | None]:
    """The chunk's keys and their upload, if any; neither if the chunk starts a new upload."""
    filename = _name_of(chunk, filename)
    keys = _keys(chunk, filename)
    try:
        if chunk.is_named and chunk.total is not None:
            named = Chunk(keys.own, 0, 0, chunk.total, filename, chunk.identity[0])
            upload = ctx.services.client_uploads.find(ctx.scope, named)
        else:
            upload = _find(ctx, keys)
    except errors.UploadGone:
        return None, None
    if upload is None:
        return keys, None
    # The length that the chunk states is then checked against the limits.
    states_length = upload.length is None and not chunk.needs_chunk_size
    return (None, None) if _restarts(chunk, upload) or states_length else (keys, upload)


def _restarts(chunk: UnplacedChunk, upload: Upload) -> bool:
    """Whether the chunk begins another file of the same name."""
    return chunk.is_first and not chunk.is_named and upload.state is not UploadState.RECEIVING


def place_staged(ctx: ViewContext, chunk: UnplacedChunk, staged: StagedChunk) -> Upload:
    """Append the staged bytes where they belong and delete the file; returns the upload.

    Raises what `Chunks.append` raises, `ChunkMismatch` if the numbers contradict each other, and
    `UploadConflict` if the upload has other bytes at that place.
    """
    whole_files, file = ctx.services.whole_files, staged.file
    if chunk.is_whole(file.length):
        try:
            chunk.check_whole(file.length)
        except errors.ChunkMismatch:
            whole_files.drop(file)
            raise
        return note_upload(whole_files.keep(file))
    try:
        upload, span = _upload_and_place(ctx, chunk, staged)
        with whole_files.open(file) as stream:
            source = AllOrNothing(StreamSource(stream, file.length))
            upload = ctx.services.chunks.append(note_upload(upload), span.start, source)
        if not whole_files.is_in(file, upload, span.start):
            raise errors.UploadConflict(
                f"Other bytes are stored at this place of {upload.filename}: another file of this "
                "name is being uploaded. Cancel that upload, or give each one an upload_id."
            )
        return upload
    finally:
        whole_files.drop(file)


def _upload_and_place(
    ctx: ViewContext, chunk: UnplacedChunk, staged: StagedChunk
) -> tuple[Upload, ByteRange]:
    file, length = staged.file, staged.file.length
    span = None if chunk.needs_chunk_size else chunk.span(length, None)
    keys = _keys(chunk, _name_of(chunk, file.filename))
    upload = None
    if staged.keys == keys:
        upload = staged.upload or _created(ctx, chunk, keys, file)
    if upload is None:
        upload = _upload_now(ctx, chunk, keys, file)
    if span is None:
        span = chunk.span(length, _chunk_bytes(upload))
    if not chunk.is_named and not _continues(upload, span):
        upload = _called(ctx, keys)  # Earlier chunks may have arrived while this one was staged.
        if not _continues(upload, span):
            upload.require_offset(span.start)
    if upload.length is None and chunk.is_last(length):
        upload = ctx.services.chunks.declare_length(upload, span.end)
    return upload, span


def _continues(upload: Upload, span: ByteRange) -> bool:
    return span.start == upload.offset or upload.received.covers(span)


def _upload_now(ctx: ViewContext, chunk: UnplacedChunk, keys: _Keys, file: ReceivedFile) -> Upload:
    """Look up or create the upload of a chunk that has arrived, ignoring earlier lookups.

    A first chunk gets the upload in progress, or a new one if the last one has ended.
    """
    if chunk.is_named and chunk.total is not None:
        start, filename = chunk.span(file.length, None).start, _name_of(chunk, file.filename)
        place = keys.own, start, file.length, chunk.total
        placed = Chunk(*place, filename, chunk.identity[0], restarts=True)
        return ctx.services.client_uploads.of_chunk(ctx.scope, placed, filename)
    if not chunk.is_first:
        return _called(ctx, keys)
    uploads, key = ctx.services.uploads, keys.own
    try:
        upload = _find(ctx, keys)
        if upload is None:
            key = keys.shared
        elif not _restarts(chunk, upload):
            return upload
        elif upload.client_key == keys.own:
            uploads.forget_key(upload)
    except errors.UploadGone:
        uploads.release_key(ctx.scope, keys.own)
    return uploads.create(_new_upload(ctx, chunk, key, file))[0]


def _name_of(chunk: UnplacedChunk, filename: str) -> str:
    return chunk.filename or ("" if filename in {BARE_BLOB, UNNAMED} else filename)


def _keys(chunk: UnplacedChunk, filename: str) -> _Keys:
    size = chunk.count if chunk.total is None else chunk.total
    key = derived_key(chunk.dialect, "\0".join(chunk.identity), size, filename)
    if chunk.is_named:
        return _Keys(key, key)
    sender = (*chunk.identity, request.remote_addr or "", request.user_agent.string)
    return _Keys(derived_key(chunk.dialect, "\0".join(sender), size, filename), key)


def _find(ctx: ViewContext, keys: _Keys) -> Upload | None:
    """The sender's own upload, or else the shared one; raises `UploadGone`."""
    uploads, scope = ctx.services.uploads, ctx.scope
    upload = uploads.called(scope, keys.own)
    return upload if upload or keys.own == keys.shared else uploads.called(scope, keys.shared)


def _called(ctx: ViewContext, keys: _Keys) -> Upload:
    upload = _find(ctx, keys)
    if upload is None:
        raise errors.UploadConflict(
            "The first chunk of this file has not arrived, so none can follow."
        )
    return upload


def _created(
    ctx: ViewContext, chunk: UnplacedChunk, keys: _Keys, file: ReceivedFile
) -> Upload | None:
    """Create the upload; None if it exists by now, or if another chunk must create it."""
    if not chunk.is_first and not (chunk.is_named and chunk.total is not None):
        return None
    with suppress(errors.UploadGone):
        upload, is_new = ctx.services.uploads.create(_new_upload(ctx, chunk, keys.shared, file))
        return upload if is_new else None
    return None


def _new_upload(ctx: ViewContext, chunk: UnplacedChunk, key: str, file: ReceivedFile) -> NewUpload:
    filename = _name_of(chunk, file.filename)
    metadata = None
    if chunk.needs_chunk_size:  # As metadata of tus, which tus clients can read.
        name, size = (b64encode(text.encode()).decode() for text in (filename, str(file.length)))
        metadata = f"filename {name},chunkbytes {size}"
    return NewUpload(
        scope=ctx.scope,
        filename=filename,
        length=chunk.total,
        client_key=key,
        metadata=metadata,
    )


def _chunk_bytes(upload: Upload) -> int:
    """The size of all chunks but the last, in the metadata of `_new_upload`."""
    found = _CHUNK_BYTES.search(upload.metadata or "")
    if found is None:
        raise errors.UploadConflict(
            "The upload was created by a client that does not number its chunks."
        )
    return int(b64decode(found[1]))
