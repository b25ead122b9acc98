"""The tree of errors, and its root.

    UploadError
    |-- InvalidRequest          400
    |   |-- MalformedBody       400
    |   |-- UnknownChunkFields  400
    |   |-- ChunkMismatch       400
    |   |-- TooManyGaps         400
    |   |-- InvalidField        400
    |   |-- DigestMismatch      400  retryable
    |   `-- BodyTruncated       400  retryable
    |-- NotSignedIn             401
    |   |-- WrongCredentials    401
    |   `-- SecondFactorRequired 401
    |-- NotAllowed              403
    |   |-- SecondFactorMissing 403
    |   |-- SignInRefused       403
    |   `-- NoProject           403
    |-- UploadNotFound          404
    |   `-- NotMade             404
    |-- EntryNotFound           404
    |-- LinkNotFound            404
    |-- BodyStalled             408  retryable
    |-- UploadConflict          409
    |   |-- OffsetMismatch      409
    |   |-- WriterSuperseded    409  retryable
    |   |-- UploadComplete      409
    |   |-- NotDirect           409
    |   |-- CellNotStored       409
    |   `-- RenditionsOff       409
    |-- LastAdministrator       409
    |-- LastManager             409
    |-- ProjectInUse            409
    |-- UploadGone              410
    |-- LinkClosed              410
    |-- TooLarge                413
    |   `-- LargerThanQuota     413
    |-- LinkFull                413
    |-- TypeNotAllowed          415
    |-- RenditionFailed         422
    |-- TooManyAttempts         429  retryable
    |-- TooManyRequests         429  retryable
    |   `-- TooManyUploads      429  retryable
    |-- StorageFailed           500  retryable
    |-- ServerBusy              503  retryable
    |   |-- NotMadeYet          503  retryable
    |   `-- ProviderUnreachable 503  retryable
    `-- NoRoom                  507
        |-- QuotaExceeded       507
        `-- TooMuchReserved     507

Clients decide by `code` and `retryable`, never by the text. `status_hint` is the HTTP status that
fits; a protocol with statuses of its own may choose another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from app.core.numbers import bytes_in_words

# ---- the root ------------------------------------------------------------------------------------


class UploadError(Exception):
    """Base of the tree; `str()` is a sentence for people."""

    code: ClassVar[str]
    title: ClassVar[str]
    status_hint: ClassVar[int]
    retryable: ClassVar[bool] = False
    retry_after_seconds: int | None = None
    """How long a client should wait before it retries, if the server can tell."""
    members: Mapping[str, object] = MappingProxyType({})
    """Further members of the problem document."""


# ---- uploads, requests, videos -------------------------------------------------------------------

# Errors of uploads, of the requests that send them, and of videos.


class InvalidRequest(UploadError):
    """A field, parameter or member is missing, malformed or impossible."""

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
        """The error that lists the fields and headers that identify the chunk."""
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
    """The ranges of an upload are too fragmented; no further separate ranges are accepted."""

    code = "too_many_gaps"
    title = "The upload has too many gaps"


class InvalidField(InvalidRequest):
    """The value of a form field or JSON member is not valid."""

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
    """The video exists, but this derived file has not been made, or cannot be."""

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
    """The upload does not accept direct uploads: send the bytes to the server."""

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
    """The server is configured without renditions."""

    code = "renditions_off"
    title = "The server makes no renditions"


class UploadGone(UploadError):
    """The upload existed, but was cancelled, expired or deleted."""

    code = "upload_gone"
    title = "The upload no longer exists"
    status_hint = 410


class TooLarge(UploadError):
    """The file or the request is larger than the server accepts."""

    code = "too_large"
    title = "The file is too large"
    status_hint = 413


class TypeNotAllowed(UploadError):
    """The server is configured to refuse files of this type."""

    code = "type_not_allowed"
    title = "Files of this type are not accepted"
    status_hint = 415


class RenditionFailed(UploadError):
    """This part of the rendition could not be encoded; retrying does not help."""

    code = "rendition_failed"
    title = "The rendition cannot be made"
    status_hint = 422


class StorageFailed(UploadError):
    """The disk or the object store returned an error."""

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
    """The requested file is being made."""

    code = "not_made_yet"
    title = "This is still being made"
    retry_after_seconds = 1


class NoRoom(UploadError):
    """There is not enough free space for the file."""

    code = "no_room"
    title = "There is not enough space for the file"
    status_hint = 507


# ---- people, projects, keys, links ---------------------------------------------------------------

# Errors of people, projects, keys and links.


class NotSignedIn(UploadError):
    """The request is not authenticated; signing in would help."""

    code = "not_signed_in"
    title = "You are not signed in"
    status_hint = 401


class WrongCredentials(NotSignedIn):
    """No account has this e-mail address and this password.

    `failures` counts recent failures of the network or the account.
    """

    code = "wrong_credentials"
    title = "The e-mail address or the password is wrong"

    def __init__(self, detail: str, *, failures: int = 1) -> None:
        super().__init__(detail)
        self.failures = failures


class NotAllowed(UploadError):
    """The request is authenticated, but not authorized."""

    code = "not_allowed"
    title = "This is not allowed"
    status_hint = 403


class SecondFactorRequired(NotSignedIn):
    """The password is correct, but a one-time code is missing."""

    code = "second_factor_required"
    title = "Enter a code too"


class SecondFactorMissing(NotAllowed):
    """The person must set up a second factor before they can use anything but their account."""

    code = "second_factor_missing"
    title = "Set up a second factor first"


class SignInRefused(NotAllowed):
    """A passkey or a response of the OpenID provider is not valid for signing in.

    `person_id` is its owner, if known.
    """

    code = "sign_in_refused"
    title = "You could not be signed in"

    def __init__(self, detail: str, *, person_id: str = "") -> None:
        super().__init__(detail)
        self.person_id = person_id


class TooManyAttempts(UploadError):
    """Too many recent failed sign-ins."""

    code = "too_many_attempts"
    title = "Too many attempts to sign in"
    status_hint = 429
    retryable = True

    def __init__(self, detail: str, *, wait_seconds: int | None = None) -> None:
        super().__init__(detail)
        self.retry_after_seconds = wait_seconds


class ProviderUnreachable(ServerBusy):
    """The OpenID provider does not respond, or is not working."""

    code = "provider_unreachable"
    title = "The sign-in service cannot be reached"
    retry_after_seconds = 10


class LastAdministrator(UploadError):
    """The server would be left without an administrator."""

    code = "last_administrator"
    title = "The server needs an administrator"
    status_hint = 409


class EntryNotFound(UploadError):
    """No project, member, key or webhook has this id, or none visible to the caller."""

    code = "entry_not_found"
    title = "There is no such entry"
    status_hint = 404


class NoProject(NotAllowed):
    """The person is signed in, but is not a member of any project."""

    code = "no_project"
    title = "You are in no project yet"


class LastManager(UploadError):
    """The project would be left without a manager."""

    code = "last_manager"
    title = "The project needs a manager"
    status_hint = 409


class ProjectInUse(UploadError):
    """The project has videos or uploads, or is the server's first one."""

    code = "project_in_use"
    title = "The project is in use"
    status_hint = 409


class LinkNotFound(UploadError):
    """No link has this code."""

    code = "link_not_found"
    title = "There is no such link"
    status_hint = 404


class LinkClosed(UploadError):
    """The link was closed, was used up or has expired."""

    code = "link_closed"
    title = "The link is closed"
    status_hint = 410


class LinkFull(UploadError):
    """The upload link accepts no more files, or not as many bytes."""

    code = "link_full"
    title = "The link has no room for the file"
    status_hint = 413


# ---- limits --------------------------------------------------------------------------------------

# Errors of limits: storage of projects, requests and uploads of one sender.


class LargerThanQuota(TooLarge):
    """The file is larger than the project's whole quota."""

    code = "larger_than_quota"
    title = "The file is larger than the project may be"


class QuotaExceeded(NoRoom):
    """The rest of the project's quota is smaller than the file."""

    code = "quota_exceeded"
    title = "The project has not enough space left"


class TooMuchReserved(NoRoom):
    """The sender's unfinished uploads already reserve the maximum number of bytes."""

    code = "too_much_reserved"
    title = "Too many bytes are on their way"


class TooManyRequests(UploadError):
    """The caller exceeds its limit of requests per minute."""

    code = "too_many_requests"
    title = "Too many requests"
    status_hint = 429
    retryable = True


class TooManyUploads(TooManyRequests):
    """The sender has the maximum number of unfinished uploads."""

    code = "too_many_uploads"
    title = "Too many uploads are on their way"
    retry_after_seconds = 10


def over_quota(length: int, *, left: int, quota: int) -> QuotaExceeded | LargerThanQuota:
    """The error for a file of `length` bytes in a project with `left` of `quota` bytes left."""
    error: QuotaExceeded | LargerThanQuota
    if length > quota:
        error = LargerThanQuota(
            f"The file has {bytes_in_words(length)}; all files together may have "
            f"{bytes_in_words(quota)}."
        )
    else:
        error = QuotaExceeded(
            f"The file needs {bytes_in_words(length)}, but of {bytes_in_words(quota)} only "
            f"{bytes_in_words(left)} are left."
        )
    error.members = {"left": left, "quota": quota}
    return error


def too_many(what: str, limit: int, *, wait_seconds: int) -> TooManyRequests:
    """The error for a caller that has done `what` more often than `limit` times a minute."""
    error = TooManyRequests(f"At most {limit} {what} a minute; go on in {wait_seconds} seconds.")
    error.retry_after_seconds = wait_seconds
    return error
