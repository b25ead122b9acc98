"""What can go wrong with uploads, with the requests that send them, and with videos."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.errors.base import UploadError


class InvalidRequest(UploadError):
    """A field is missing, malformed or impossible."""

    code = "malformed_request"
    title = "The request is malformed"
    status_hint = 400


class MalformedBody(InvalidRequest):
    """The body does not follow the format its headers announce."""

    code = "malformed_body"
    title = "The request body is malformed"


class UnknownChunkFields(InvalidRequest):
    """The file looks like one chunk of a larger one, in an unknown dialect."""

    code = "unknown_chunk_fields"
    title = "The chunk is in a form that the server does not know"

    @classmethod
    def of(cls, names: Sequence[str]) -> UnknownChunkFields:
        """The error that names the fields and headers that give the chunk away."""
        return cls(
            f"The request seems to carry one chunk of a larger file ({', '.join(names)}), in no "
            "form that this server knows. Nothing was stored. Use tus at /tus/, a library that "
            "docs/protocols.md names, or send the file whole, without these fields."
        )


class ChunkMismatch(InvalidRequest):
    """A chunk's length, offset or count does not fit the file it belongs to."""

    code = "chunk_mismatch"
    title = "The chunk does not fit the upload"


class TooManyGaps(InvalidRequest):
    """The ranges of an upload are too fragmented; no more between them are accepted."""

    code = "too_many_gaps"
    title = "The upload has too many gaps"


class InvalidField(InvalidRequest):
    """What was entered in a form's field, or sent as a member of JSON, cannot be used."""

    code = "invalid_field"
    title = "A field cannot be used"

    def __init__(self, detail: str, *, field: str = "") -> None:
        super().__init__(detail)
        self.field = field


class DigestMismatch(InvalidRequest):
    """The bytes do not match the client's digest; none of them was kept."""

    code = "digest_mismatch"
    title = "The checksum does not match"
    retryable = True


class BodyTruncated(InvalidRequest):
    """The connection ended before the body did; what arrived is kept."""

    code = "body_truncated"
    title = "The request body ended early"
    retryable = True


class UploadNotFound(UploadError):
    """No upload of that id exists."""

    code = "upload_not_found"
    title = "There is no such upload"
    status_hint = 404


class NotMade(UploadNotFound):
    """The video exists, and this has not been made of it, or cannot be."""

    code = "not_made"
    title = "The video does not have this"


class BodyStalled(UploadError):
    """The body stalled, or arrives more slowly than the server accepts."""

    code = "body_stalled"
    title = "The request body stalled"
    status_hint = 408
    retryable = True


class UploadConflict(UploadError):
    """The request contradicts what the upload was created with."""

    code = "upload_conflict"
    title = "The request contradicts the upload"
    status_hint = 409


class NotDirect(UploadConflict):
    """The upload takes no direct uploads: send the bytes to the server."""

    code = "not_direct"
    title = "The upload takes its bytes through the server"


class CellNotStored(UploadConflict):
    """The bucket lacks a cell that the client reported as stored."""

    code = "cell_not_stored"
    title = "The bucket does not have this cell"


class OffsetMismatch(UploadConflict):
    """The bytes do not start at the upload's offset; both offsets in bytes."""

    code = "offset_mismatch"
    title = "The offset is not the upload's"

    expected = 0
    provided = 0

    @classmethod
    def of(cls, *, expected: int, provided: int) -> OffsetMismatch:
        """The error with both offsets."""
        error = cls(f"The upload continues at byte {expected}, not at {provided}.")
        error.expected, error.provided = expected, provided
        return error


class WriterSuperseded(UploadConflict):
    """A newer request has taken over these bytes."""

    code = "writer_superseded"
    title = "A newer request writes the same bytes"
    retryable = True


class UploadComplete(UploadConflict):
    """The step is for unfinished uploads, and this one is complete."""

    code = "upload_complete"
    title = "The upload is complete"


class RenditionsOff(UploadConflict):
    """The server is set up to offer films in their own quality only."""

    code = "renditions_off"
    title = "The server makes no other qualities"


class UploadGone(UploadError):
    """The upload existed, and was cancelled, expired or deleted."""

    code = "upload_gone"
    title = "The upload no longer exists"
    status_hint = 410


class TooLarge(UploadError):
    """The file is larger than the server takes."""

    code = "too_large"
    title = "The file is too large"
    status_hint = 413


class TypeNotAllowed(UploadError):
    """The server is set up to refuse files of this type."""

    code = "type_not_allowed"
    title = "Files of this type are not accepted"
    status_hint = 415


class RenditionFailed(UploadError):
    """This part of the film could not be made in another quality; trying again does not help."""

    code = "rendition_failed"
    title = "The film cannot be made in this quality"
    status_hint = 422


class StorageFailed(UploadError):
    """The disk or the object store answered with an error."""

    code = "storage_failed"
    title = "The storage failed"
    status_hint = 500
    retryable = True


class ServerBusy(UploadError):
    """The server cannot take the request now."""

    code = "server_busy"
    title = "The server is busy"
    status_hint = 503
    retryable = True
    retry_after_seconds = 2


class NotMadeYet(ServerBusy):
    """What was asked for is being made."""

    code = "not_made_yet"
    title = "This is still being made"
    retry_after_seconds = 1


class NoRoom(UploadError):
    """There is not enough free space for the file."""

    code = "no_room"
    title = "There is not enough space for the file"
    status_hint = 507
