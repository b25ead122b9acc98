"""Chunks that are placed only once their bytes are there, and compared with what is stored.

Some libraries say neither how long the file is nor where a chunk begins; others send nothing that
tells two people apart who upload files of one name. No byte is put at a guessed place, and no two
files are ever mixed:

- A chunk waits in a file of its own until it has come whole, and is recorded whole or not at all.
- Without a name of its own, an upload grows from its start: a chunk belongs where the bytes so far
  end, or is there already.
- Afterwards the stored bytes of that place are compared with the chunk's, whoever brought them.
  A client that is told success for each of its chunks knows its own file to be there.
- An upload that has ended does not stand for the next file of its name: a first chunk begins
  anew. Only who sent that chunk can go on with the new upload. Anyone else who sends a later one
  means the upload before, to which he has sent its start.
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
from app.http.context import current_owner, current_services, note_upload
from app.ingest.all_or_nothing import AllOrNothing
from app.ingest.source import StreamSource
from app.protocols.forms.chunk import Piece
from app.uploads.client_uploads import Chunk
from app.uploads.receiver import derived_key
from app.uploads.service import NewUpload
from app.uploads.whole import ReceivedFile

BARE_BLOB = "blob"
"""What browsers call a part of a file, to which its sender gives no name."""


class _Keys(NamedTuple):
    """Under what an upload may be found: `shared` by all, or, one begun anew, by its sender."""

    own: str
    shared: str


_CHUNK_BYTES = re.compile(r"(?:^|,)chunkbytes ([A-Za-z0-9+/=]+)")


def place_piece(piece: Piece, file: ReceivedFile) -> Upload:
    """Put the bytes of `file` where they belong, and remove it; the upload they went to.

    Raises what `UploadService.append` raises, `ChunkMismatch` where the numbers contradict each
    other, and `UploadConflict` where the upload has other bytes at that place.
    """
    whole_files = current_services().whole_files
    if piece.is_whole(file.length):
        return _keep_whole(piece, file)
    try:
        upload, span = _upload_and_place(piece, file)
        with whole_files.open(file) as stream:
            source = AllOrNothing(StreamSource(stream, file.length))
            upload = current_services().uploads.append(note_upload(upload), span.start, source)
        if not whole_files.is_in(file, upload, span.start):
            raise UploadConflict(
                f"Other bytes are stored at this place of {upload.filename}: another file of this "
                "name is being uploaded. Cancel that upload, or give each one an upload_id."
            )
        return upload
    finally:
        whole_files.drop(file)


def _keep_whole(piece: Piece, file: ReceivedFile) -> Upload:
    whole_files = current_services().whole_files
    try:
        piece.check_whole(file.length)
    except ChunkMismatch:
        whole_files.drop(file)
        raise
    return note_upload(whole_files.keep(file))


def _upload_and_place(piece: Piece, file: ReceivedFile) -> tuple[Upload, ByteRange]:
    filename = piece.filename or ("" if file.filename in {BARE_BLOB, UNNAMED} else file.filename)
    size = piece.count if piece.total is None else piece.total
    keys = _keys(piece, size, filename)
    if piece.is_named and piece.total is not None:
        span = piece.span(file.length, None)
        chunk = Chunk(keys.own, span.start, span.length, piece.total, filename, piece.identity[0])
        uploads, owner = current_services().client_uploads, current_owner()
        return uploads.of_restartable_chunk(owner, chunk, filename), span
    upload = _first_upload(piece, keys, filename, file.length) if piece.is_first else _called(keys)
    span = piece.span(file.length, _chunk_bytes(upload) if piece.needs_chunk_size else None)
    is_next = span.start == upload.offset or upload.received.covers(span)
    if not is_next and not piece.is_named:
        raise OffsetMismatch.of(expected=upload.offset, provided=span.start)
    if upload.length is None and piece.is_last(file.length):
        upload = current_services().uploads.declare_length(upload, span.end)
    return upload, span


def _keys(piece: Piece, size: int, filename: str) -> _Keys:
    key = derived_key(piece.dialect, "\0".join(piece.identity), size, filename)
    if piece.is_named:
        return _Keys(key, key)
    sender = (*piece.identity, request.remote_addr or "", request.user_agent.string)
    return _Keys(derived_key(piece.dialect, "\0".join(sender), size, filename), key)


def _find(keys: _Keys) -> Upload | None:
    """The sender's own upload, or else the one of all; raises `UploadGone`."""
    uploads, owner = current_services().uploads, current_owner()
    return uploads.called(owner, keys.own) or uploads.called(owner, keys.shared)


def _called(keys: _Keys) -> Upload:
    upload = _find(keys)
    if upload is None:
        raise UploadConflict("The first chunk of this file has not arrived, so none can follow.")
    return upload


def _first_upload(piece: Piece, keys: _Keys, filename: str, length: int) -> Upload:
    """The upload under way, or a new one where none is or the last one has ended."""
    uploads, owner = current_services().uploads, current_owner()
    key = keys.own
    try:
        upload = _find(keys)
        if upload is None:
            key = keys.shared
        elif piece.is_named or upload.state is UploadState.RECEIVING:
            return upload
        elif upload.client_key == keys.own:
            uploads.forget_key(upload)
    except UploadGone:
        uploads.release_key(owner, keys.own)
    new = NewUpload(
        owner=owner,
        filename=filename,
        length=piece.total,
        client_key=key,
        metadata=_metadata(filename, length) if piece.needs_chunk_size else None,
    )
    return uploads.create(new)[0]


def _metadata(filename: str, chunk_bytes: int) -> str:
    """Name and chunk size in the form of tus, whose clients get to see it."""
    pairs = {"filename": filename, "chunkbytes": str(chunk_bytes)}
    return ",".join(f"{name} {b64encode(text.encode()).decode()}" for name, text in pairs.items())


def _chunk_bytes(upload: Upload) -> int:
    found = _CHUNK_BYTES.search(upload.metadata or "")
    if found is None:
        raise UploadConflict("The upload was begun by a client that does not count chunks.")
    return int(b64decode(found[1]))
