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

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar


class UploadError(Exception):
    """Base of the tree; `str()` is a sentence for people."""

    code: ClassVar[str]
    title: ClassVar[str]
    status_hint: ClassVar[int]
    retryable: ClassVar[bool] = False
    retry_after_seconds: int | None = None
    """How long a client should wait before it tries again, where the server can tell."""
    members: Mapping[str, object] = MappingProxyType({})
    """Further members of the problem document."""
