"""Parses a store's responses: translates its errors and reads its XML."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from xml.etree import ElementTree

from app.core.errors import NoRoom, ServerBusy, StorageFailed

log = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""A page of a listing has 1000 entries of at most about 10 KB, mostly 300 bytes."""

RETRY_AFTER_SECONDS = 5
"""Retry-After for clients while the store does not respond or asks to slow down."""

_CODE = re.compile("[A-Za-z0-9.]{1,64}")
"""Longest text from the store in messages and logs."""


class MultipartGone(StorageFailed):
    """The multipart upload was completed or aborted, or never existed."""


class PartsDiffer(StorageFailed):
    """The store does not have the parts named in the completion: compare with `list_parts`."""


class Kind(Enum):
    """How to react to an error."""

    RETRY = "retry"
    """Transient: retried; the client gets `ServerBusy` if the time runs out."""
    MISSING = "missing"
    """The object does not exist."""
    GONE = "gone"
    PARTS = "parts"
    FULL = "full"
    REFUSED = "refused"
    """The operator must act."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of the store: its status, its code (may be empty), and the id of the request."""

    status: int
    code: str = ""
    request_id: str = ""

    @property
    def kind(self) -> Kind:
        """How to react to this error."""
        if self.code in _WORDS:
            return Kind.REFUSED
        return _KINDS.get(self.code) or _KINDS_OF_STATUSES.get(self.status, Kind.REFUSED)

    def __str__(self) -> str:
        return f"{self.status} {self.code} (request {self.request_id or 'unknown'})"

    def error(self, what: str, *, is_object: bool) -> Exception:
        """The error to raise for the call `what`, on an object or on the bucket as a whole.

        Refusals are logged for the operator.
        """
        if self.kind is Kind.MISSING and is_object:
            return FileNotFoundError(what)
        if self.kind in _ERRORS:
            return _ERRORS[self.kind]()
        log.error("the object store refused %s: %s", what, self)
        return StorageFailed(_WORDS.get(self.code, _UNKNOWN).format(self.code or self.status))


def failure_of(status: int, body: bytes, request_id: str) -> Failure:
    """Parse the failure that a response reports; its body may have any content."""
    if not body:  # A response to HEAD has no body.
        return Failure(status, _CODES_OF_STATUSES.get(status, ""), request_id)
    try:
        code = Document(body).text("Code")
    except StorageFailed:
        code = ""  # For example HTML from a proxy.
    return Failure(status, code if _CODE.fullmatch(code) else "", request_id)


class Document:
    """A response in XML, ignoring namespaces; raises `StorageFailed` if it is not XML.

    Safe from entity expansion attacks: expat 2.4.1 and newer refuses amplification.
    """

    def __init__(self, body: bytes) -> None:
        try:
            self._root = ElementTree.fromstring(body)  # noqa: S314 - of the operator's own store
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise StorageFailed("The object store's answer is not XML.") from error

    @property
    def is_error(self) -> bool:
        """Whether the document reports an error, regardless of the HTTP status."""
        return _name(self._root) == "Error"

    def text(self, name: str) -> str:
        """Returns the text of a child of the root; empty if there is none."""
        return _texts(self._root).get(name, "")

    def all(self, name: str) -> Iterator[Mapping[str, str]]:
        """Yields, for each child of the root with this name, its own children's texts by name."""
        return (_texts(child) for child in self._root if _name(child) == name)

    def everywhere(self, name: str) -> list[str]:
        """Returns the texts of all elements with this name, at any depth."""
        return [(found.text or "").strip() for found in self._root.iter() if _name(found) == name]


def _texts(element: ElementTree.Element) -> dict[str, str]:
    return {_name(child): (child.text or "").strip() for child in element}


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def busy() -> ServerBusy:
    """Returns the error for a store that does not respond in time."""
    error = ServerBusy("The object store does not answer in time.")
    error.retry_after_seconds = RETRY_AFTER_SECONDS
    return error


_KINDS: Mapping[str, Kind] = MappingProxyType(
    dict.fromkeys(
        (
            *("SlowDown", "SlowDownRead", "SlowDownWrite", "ServiceUnavailable", "InternalError"),
            *("RequestTimeout", "OperationAborted", "ConditionalRequestConflict", "Busy"),
            *("IncompleteBody", "RequestTimeTooSlow", "Throttling", "ThrottlingException"),
        ),
        Kind.RETRY,
    )
    | dict.fromkeys(("NoSuchKey", "NoSuchVersion"), Kind.MISSING)
    | {"NoSuchUpload": Kind.GONE}
    | dict.fromkeys(("InvalidPart", "InvalidPartOrder", "EntityTooSmall"), Kind.PARTS)
    | dict.fromkeys(
        ("QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "StorageFull"),
        Kind.FULL,
    )
)
"""Error codes that are not refusals. Sources: "Error responses" of the Amazon S3 API reference;
SlowDownRead, SlowDownWrite and XMinio... are MinIO's."""

_KINDS_OF_STATUSES = MappingProxyType(
    dict.fromkeys((408, 429, 500, 502, 503, 504), Kind.RETRY) | {507: Kind.FULL}
)
"""For codes that are not listed, and for responses without a code, such as a proxy's."""

_CODES_OF_STATUSES = MappingProxyType(
    {301: "PermanentRedirect", 403: "AccessDenied", 404: "NoSuchKey"}
)
"""Codes for responses without a body."""

_UNKNOWN = "The object store refused a request ({})."

_WORDS = MappingProxyType(
    dict.fromkeys(
        ("RequestTimeTooSkewed",),
        "The clocks of this server and of its object store differ by more than 15 minutes ({}).",
    )
    | dict.fromkeys(
        ("AccessDenied", "AllAccessDisabled", "AccountProblem"),
        "The object store does not allow this server's key to do this ({}).",
    )
    | dict.fromkeys(
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"),
        "The object store does not accept this server's key ({}).",
    )
    | dict.fromkeys(("NoSuchBucket",), "The bucket of this server does not exist ({}).")
    | dict.fromkeys(
        ("AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect"),
        "The bucket of this server is in another region than SLUICE_S3_REGION says ({}).",
    )
    | dict.fromkeys(
        ("BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"),
        "Bytes were damaged on their way to the object store ({}).",
    )
)


def _full() -> NoRoom:
    return NoRoom("The object store has no room left.")


def _gone() -> MultipartGone:
    return MultipartGone("The object store does not have this multipart upload any more.")


def _parts() -> PartsDiffer:
    return PartsDiffer("The object store does not have the parts that it confirmed.")


_ERRORS = MappingProxyType(
    {Kind.RETRY: busy, Kind.FULL: _full, Kind.GONE: _gone, Kind.PARTS: _parts}
)
