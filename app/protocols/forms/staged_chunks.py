"""Chunks that are placed after their bytes have arrived, and compared with the stored bytes.

Some libraries send neither the length of the file nor the offset of a chunk; others send nothing
that distinguishes two people who upload files of the same name. Two rules hold all the same: no
chunk is stored at a guessed offset, and two files are not mixed, unless a library gives both the
same name.

- A chunk is staged in a file of its own until all of it has arrived, and is recorded completely or
  not at all.
- An upload without an identity of its own grows from its start: a chunk belongs at the offset, or
  is stored already.
- The stored bytes are then compared with the chunk's, no matter which request wrote them. If all
  chunks of a client succeeded, its own file is stored.
- The next file of the same name does not continue an upload that has ended: a first chunk starts a
  new upload. Only the client that sent that first chunk can continue it; a later chunk of any other
  client belongs to the earlier upload, whose start that client sent.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from flask import request

from app.core.errors import (
    ChunkMismatch,
    LinkFull,
    OffsetMismatch,
    QuotaExceeded,
    TooLarge,
    UploadConflict,
    UploadGone,
)
from app.core.lifecycle import UploadState
from app.core.policy import UNNAMED, clean_filename
from app.core.ranges import ByteRange
from app.core.upload import Upload
from app.http.context import ViewContext, note_upload
from app.ingest.source import AllOrNothing, BodySource, StreamSource
from app.protocols.forms.dialects import UnplacedChunk
from app.uploads.client_uploads import Chunk
from app.uploads.files import ReceivedFile
from app.uploads.service import NewUpload, derived_key

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
    if chunk is None:
        return StagedChunk(receive(filename=filename))
    filename = chunk.filename or filename
    if not chunk.may_be_part:
        return StagedChunk(receive(filename=filename))
    keys, upload = _look_up(ctx, chunk, clean_filename(filename))
    if upload is None:
        try:
            return StagedChunk(receive(filename=filename), keys)
        except (LinkFull, QuotaExceeded) as error:
            if isinstance(error, QuotaExceeded) and not (source.remaining or room):
                raise  # The length was unknown beforehand, so the body has been read.
            # Another chunk may have created the upload since, and taken the last place or space.
            keys, upload = _look_up(ctx, chunk, clean_filename(filename))
            if upload is None:
                raise
    most_bytes = _most_bytes(chunk, upload)
    try:
        return StagedChunk(receive(filename=filename, most_bytes=most_bytes), keys, upload)
    except TooLarge as error:
        raise ChunkMismatch(f"A chunk has at most {most_bytes} bytes here.") from error


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
    except UploadGone:
        return None, None
    if upload is not None and (_restarts(chunk, upload) or _lacks_length(chunk, upload)):
        return None, None
    return keys, upload


def _restarts(chunk: UnplacedChunk, upload: Upload) -> bool:
    """Whether the chunk begins another file of the same name."""
    return chunk.is_first and not chunk.is_named and upload.state is not UploadState.RECEIVING


def _lacks_length(chunk: UnplacedChunk, upload: Upload) -> bool:
    """Whether the chunk states the upload's length, which is then checked against the limits."""
    return upload.length is None and not chunk.needs_chunk_size


def _most_bytes(chunk: UnplacedChunk, upload: Upload) -> int:
    if upload.length is None or chunk.needs_chunk_size:
        return _chunk_bytes(upload)
    return max(0, upload.length - (chunk.start or 0))


def place_staged(ctx: ViewContext, chunk: UnplacedChunk, staged: StagedChunk) -> Upload:
    """Append the staged bytes where they belong and delete the file; returns the upload.

    Raises what `Chunks.append` raises, `ChunkMismatch` if the numbers contradict each other, and
    `UploadConflict` if the upload has other bytes at that place.
    """
    whole_files, file = ctx.services.whole_files, staged.file
    if chunk.is_whole(file.length):
        return _keep_whole(ctx, chunk, file)
    try:
        upload, span = _upload_and_place(ctx, chunk, staged)
        with whole_files.open(file) as stream:
            source = AllOrNothing(StreamSource(stream, file.length))
            upload = ctx.services.chunks.append(note_upload(upload), span.start, source)
        if not whole_files.is_in(file, upload, span.start):
            raise UploadConflict(
                f"Other bytes are stored at this place of {upload.filename}: another file of this "
                "name is being uploaded. Cancel that upload, or give each one an upload_id."
            )
        return upload
    finally:
        whole_files.drop(file)


def _keep_whole(ctx: ViewContext, chunk: UnplacedChunk, file: ReceivedFile) -> Upload:
    whole_files = ctx.services.whole_files
    try:
        chunk.check_whole(file.length)
    except ChunkMismatch:
        whole_files.drop(file)
        raise
    return note_upload(whole_files.keep(file))


def _upload_and_place(
    ctx: ViewContext, chunk: UnplacedChunk, staged: StagedChunk
) -> tuple[Upload, ByteRange]:
    length, filename = staged.file.length, _name_of(chunk, staged.file.filename)
    span = None if chunk.needs_chunk_size else chunk.span(length, None)
    keys = _keys(chunk, filename)
    upload = None
    if staged.keys == keys:
        upload = staged.upload or _created(ctx, chunk, keys, filename, length)
    if upload is None:
        upload = _upload_now(ctx, chunk, keys, filename, length)
    if span is None:
        span = chunk.span(length, _chunk_bytes(upload))
    if not chunk.is_named and not _continues(upload, span):
        upload = _called(ctx, keys)  # Earlier chunks may have arrived while this one was staged.
        if not _continues(upload, span):
            raise OffsetMismatch.of(expected=upload.offset, provided=span.start)
    if upload.length is None and chunk.is_last(length):
        upload = ctx.services.chunks.declare_length(upload, span.end)
    return upload, span


def _continues(upload: Upload, span: ByteRange) -> bool:
    return span.start == upload.offset or upload.received.covers(span)


def _upload_now(
    ctx: ViewContext, chunk: UnplacedChunk, keys: _Keys, filename: str, length: int
) -> Upload:
    """Look up or create the upload of a chunk that has arrived, ignoring earlier lookups."""
    if chunk.is_named and chunk.total is not None:
        span = chunk.span(length, None)
        placed = Chunk(keys.own, span.start, span.length, chunk.total, filename, chunk.identity[0])
        uploads, scope = ctx.services.client_uploads, ctx.scope
        return uploads.of_restartable_chunk(scope, placed, filename)
    return (
        _first_upload(ctx, chunk, keys, filename, length) if chunk.is_first else _called(ctx, keys)
    )


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
        raise UploadConflict("The first chunk of this file has not arrived, so none can follow.")
    return upload


def _first_upload(
    ctx: ViewContext, chunk: UnplacedChunk, keys: _Keys, filename: str, length: int
) -> Upload:
    """The upload in progress, or a new one if there is none or the last one has ended."""
    uploads, scope = ctx.services.uploads, ctx.scope
    key = keys.own
    try:
        upload = _find(ctx, keys)
        if upload is None:
            key = keys.shared
        elif not _restarts(chunk, upload):
            return upload
        elif upload.client_key == keys.own:
            uploads.forget_key(upload)
    except UploadGone:
        uploads.release_key(scope, keys.own)
    return uploads.create(_new_upload(ctx, chunk, key, filename, length))[0]


def _created(
    ctx: ViewContext, chunk: UnplacedChunk, keys: _Keys, filename: str, length: int
) -> Upload | None:
    """Create the upload; None if it exists by now, or if another chunk must create it."""
    if not chunk.is_first and not (chunk.is_named and chunk.total is not None):
        return None
    new = _new_upload(ctx, chunk, keys.shared, filename, length)
    with suppress(UploadGone):
        upload, is_new = ctx.services.uploads.create(new)
        return upload if is_new else None
    return None


def _new_upload(
    ctx: ViewContext, chunk: UnplacedChunk, key: str, filename: str, length: int
) -> NewUpload:
    return NewUpload(
        scope=ctx.scope,
        filename=filename,
        length=chunk.total,
        client_key=key,
        metadata=_metadata(filename, length) if chunk.needs_chunk_size else None,
    )


def _metadata(filename: str, chunk_bytes: int) -> str:
    """Name and chunk size as tus metadata, so that tus clients can read them."""
    pairs = {"filename": filename, "chunkbytes": str(chunk_bytes)}
    return ",".join(f"{name} {b64encode(text.encode()).decode()}" for name, text in pairs.items())


def _chunk_bytes(upload: Upload) -> int:
    found = _CHUNK_BYTES.search(upload.metadata or "")
    if found is None:
        raise UploadConflict("The upload was created by a client that does not number its chunks.")
    return int(b64decode(found[1]))
