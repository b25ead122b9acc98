"""Uploads by what their clients call them: a key of the client's own, or an upload's id.

An id stands for its upload in every dialect, whichever protocol has begun it.
"""

from __future__ import annotations

import hashlib
import time

from app.domain.errors import UploadComplete, UploadConflict, UploadGone, UploadNotFound
from app.domain.lifecycle import UploadState
from app.domain.upload import Upload, parse_upload_id
from app.ingest.turns import aside
from app.uploads.service import NewUpload
from app.wire.chunk import Chunk
from app.wire.context import current_owner, current_services, note_upload

RESTART_SECONDS = 5.0
"""How long a chunk from further on waits for the first chunk to begin an ended upload anew."""

RESTART_TICK_SECONDS = 0.05
"""How often it looks."""


def derived_key(dialect: str, identifier: str, total: int, filename: str) -> str:
    """A key from an identifier with any characters in it.

    Clients make the identifier from length and name and drop all characters but a few, so that
    two files may share one. With length and name beside it they differ again.
    """
    text = "\0".join([identifier, str(total), filename])
    return f"{dialect}:{hashlib.sha256(text.encode()).hexdigest()}"


def find_upload(chunk: Chunk) -> Upload | None:
    """The upload the chunk belongs to, of its total length or of one yet untold.

    Raises `UploadConflict` where it has another length, `UploadGone` where it has ended.
    """
    upload = _upload_of_id(chunk.identifier or chunk.key)
    if upload is None:
        return current_services().uploads.find(current_owner(), chunk.key, chunk.total)
    if upload.length not in {None, chunk.total}:
        raise UploadConflict(f"The upload has {upload.length} bytes, not {chunk.total}.")
    return upload


def upload_called(key: str) -> Upload:
    """The upload of that key, whatever its length; raises `UploadNotFound` or `UploadGone`."""
    upload = _upload_of_id(key)
    if upload is None:
        upload = current_services().uploads.called(current_owner(), key)
    if upload is None:
        raise UploadNotFound("No upload has this key.")
    return note_upload(upload)


def upload_of_chunk(chunk: Chunk, filename: str) -> Upload:
    """The upload of that key, made when its first chunk, of whatever index, arrives."""
    uploads = current_services().uploads
    upload = find_upload(chunk)
    if upload is None:
        new = NewUpload(
            owner=current_owner(), filename=filename, length=chunk.total, client_key=chunk.key
        )
        upload, _ = uploads.create(new)
    elif upload.length is None:
        upload = uploads.declare_length(upload, chunk.total)
    return note_upload(upload)


def renewable_upload_of_chunk(chunk: Chunk, filename: str) -> Upload:
    """Like `upload_of_chunk`, but the first bytes of a file begin an ended upload anew.

    Only they do: a client which still counts on bytes that are gone with the old upload sends
    later ones, and must hear of it.
    """
    _upload_of_id(chunk.identifier)  # Raises: what is addressed by its id is never begun anew.
    deadline = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            return upload_of_chunk(chunk, filename)
        except UploadGone:
            if time.monotonic() > deadline:
                raise
        if chunk.offset == 0:
            current_services().uploads.release_key(current_owner(), chunk.key)
        else:
            with aside():
                time.sleep(RESTART_TICK_SECONDS)


def has_chunk(chunk: Chunk) -> bool:
    """Whether every byte of the chunk has arrived; the one of an empty file by completing it."""
    try:
        upload = find_upload(chunk)
    except UploadGone:
        return False
    if upload is None:
        return False
    note_upload(upload)
    if upload.state is UploadState.RECEIVING and chunk.length == 0:
        return False
    return upload.received.covers(chunk.span)


def remove_upload(upload: Upload) -> None:
    """Cancel the upload, or delete the video it has become."""
    services, owner = current_services(), current_owner()
    try:
        services.uploads.cancel(owner, upload.id)
    except UploadComplete:
        services.library.delete(owner, upload.id)


def _upload_of_id(text: str) -> Upload | None:
    try:
        return current_services().uploads.get(current_owner(), parse_upload_id(text))
    except UploadNotFound:
        return None
