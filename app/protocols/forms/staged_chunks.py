"""Chunks that are placed once their bytes have arrived, and compared with what is stored.

Some libraries say neither how long the file is nor where a chunk begins; others send nothing that
distinguishes two people who upload files of the same name. Two rules hold all the same: no chunk is
stored at a guessed offset, and two files are never mixed.

- A chunk is staged in a file of its own until all of it has arrived, and is recorded whole or not
  at all.
- An upload without an identity of its own grows from its start: a chunk belongs at the offset, or
  is stored already.
- The stored bytes are then compared with the chunk's, whichever request wrote them. A client that
  was told success for each of its chunks therefore knows that its own file is stored.
- An upload that has ended is not continued by the next file of its name: a first chunk starts a new
  upload. Only the sender of that first chunk can continue it; a later chunk of anyone else belongs
  to the earlier upload, to which they sent the start.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import NamedTuple

from flask import request

from app.domain.errors import ChunkMismatch, OffsetMismatch, UploadConflict, UploadGone
from app.domain.lifecycle import UploadState
from app.domain.policy import UNNAMED
from app.domain.ranges import ByteRange
from app.domain.upload import Upload
from app.http.context import current_scope, current_services, note_upload
from app.ingest.source import AllOrNothing, StreamSource
from app.protocols.forms.chunk import UnplacedChunk
from app.uploads.client_uploads import Chunk
from app.uploads.files import ReceivedFile
from app.uploads.service import NewUpload, derived_key

BARE_BLOB = "blob"
"""The name that browsers give to a slice of a file."""


class _Keys(NamedTuple):
    """Keys of an upload: `shared` by all senders; `own` of the sender who restarted it."""

    own: str
    shared: str


_CHUNK_BYTES = re.compile(r"(?:^|,)chunkbytes ([A-Za-z0-9+/=]+)")


def place_staged(chunk: UnplacedChunk, file: ReceivedFile) -> Upload:
    """Append the bytes of `file` where they belong and delete it; the upload they went to.

    Raises what `Chunks.append` raises, `ChunkMismatch` where the numbers contradict each
    other, and `UploadConflict` where the upload has other bytes at that place.
    """
    whole_files = current_services().whole_files
    if chunk.is_whole(file.length):
        return _keep_whole(chunk, file)
    try:
        upload, span = _upload_and_place(chunk, file)
        with whole_files.open(file) as stream:
            source = AllOrNothing(StreamSource(stream, file.length))
            upload = current_services().chunks.append(note_upload(upload), span.start, source)
        if not whole_files.is_in(file, upload, span.start):
            raise UploadConflict(
                f"Other bytes are stored at this place of {upload.filename}: another file of this "
                "name is being uploaded. Cancel that upload, or give each one an upload_id."
            )
        return upload
    finally:
        whole_files.drop(file)


def _keep_whole(chunk: UnplacedChunk, file: ReceivedFile) -> Upload:
    whole_files = current_services().whole_files
    try:
        chunk.check_whole(file.length)
    except ChunkMismatch:
        whole_files.drop(file)
        raise
    return note_upload(whole_files.keep(file))


def _upload_and_place(chunk: UnplacedChunk, file: ReceivedFile) -> tuple[Upload, ByteRange]:
    filename = chunk.filename or ("" if file.filename in {BARE_BLOB, UNNAMED} else file.filename)
    size = chunk.count if chunk.total is None else chunk.total
    keys = _keys(chunk, size, filename)
    if chunk.is_named and chunk.total is not None:
        span = chunk.span(file.length, None)
        placed = Chunk(keys.own, span.start, span.length, chunk.total, filename, chunk.identity[0])
        uploads, scope = current_services().client_uploads, current_scope()
        return uploads.of_restartable_chunk(scope, placed, filename), span
    upload = _first_upload(chunk, keys, filename, file.length) if chunk.is_first else _called(keys)
    span = chunk.span(file.length, _chunk_bytes(upload) if chunk.needs_chunk_size else None)
    is_next = span.start == upload.offset or upload.received.covers(span)
    if not is_next and not chunk.is_named:
        raise OffsetMismatch.of(expected=upload.offset, provided=span.start)
    if upload.length is None and chunk.is_last(file.length):
        upload = current_services().chunks.declare_length(upload, span.end)
    return upload, span


def _keys(chunk: UnplacedChunk, size: int, filename: str) -> _Keys:
    key = derived_key(chunk.dialect, "\0".join(chunk.identity), size, filename)
    if chunk.is_named:
        return _Keys(key, key)
    sender = (*chunk.identity, request.remote_addr or "", request.user_agent.string)
    return _Keys(derived_key(chunk.dialect, "\0".join(sender), size, filename), key)


def _find(keys: _Keys) -> Upload | None:
    """The sender's own upload, or else the shared one; raises `UploadGone`."""
    uploads, scope = current_services().uploads, current_scope()
    return uploads.called(scope, keys.own) or uploads.called(scope, keys.shared)


def _called(keys: _Keys) -> Upload:
    upload = _find(keys)
    if upload is None:
        raise UploadConflict("The first chunk of this file has not arrived, so none can follow.")
    return upload


def _first_upload(chunk: UnplacedChunk, keys: _Keys, filename: str, length: int) -> Upload:
    """The upload in progress, or a new one if there is none or the last one has ended."""
    uploads, scope = current_services().uploads, current_scope()
    key = keys.own
    try:
        upload = _find(keys)
        if upload is None:
            key = keys.shared
        elif chunk.is_named or upload.state is UploadState.RECEIVING:
            return upload
        elif upload.client_key == keys.own:
            uploads.forget_key(upload)
    except UploadGone:
        uploads.release_key(scope, keys.own)
    new = NewUpload(
        scope=scope,
        filename=filename,
        length=chunk.total,
        client_key=key,
        metadata=_metadata(filename, length) if chunk.needs_chunk_size else None,
    )
    return uploads.create(new)[0]


def _metadata(filename: str, chunk_bytes: int) -> str:
    """Name and chunk size as tus metadata, because tus clients can read it."""
    pairs = {"filename": filename, "chunkbytes": str(chunk_bytes)}
    return ",".join(f"{name} {b64encode(text.encode()).decode()}" for name, text in pairs.items())


def _chunk_bytes(upload: Upload) -> int:
    found = _CHUNK_BYTES.search(upload.metadata or "")
    if found is None:
        raise UploadConflict("The upload was created by a client that does not number its chunks.")
    return int(b64decode(found[1]))
