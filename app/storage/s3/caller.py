"""Signs and sends calls, retries transient failures, and parses responses and errors."""

from __future__ import annotations

import hashlib
import logging
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import TypeVar
from xml.etree import ElementTree

from app.core.errors import NoRoom, ServerBusy, StorageFailed
from app.storage.s3.address import BucketAddress
from app.storage.s3.connections import (
    IDLE_SECONDS,
    SLOWEST_BYTES_PER_SECOND,
    Answer,
    Connections,
    Request,
    StoreUnreachable,
)
from app.storage.s3.contents import Body
from app.storage.s3.signing import UNSIGNED_PAYLOAD, Signer, Target

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 5.0
"""Upper limit of the exponential backoff between attempts. Jitter keeps refused requests from
returning all at once."""


@dataclass(frozen=True, slots=True)
class Call:
    """An unsigned request; `name` is without the prefix, None for the bucket itself."""

    method: str
    name: str | None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case, values in ASCII."""
    body: Body = b""
    is_slow: bool = False
    """Whether the response may take minutes: some stores complete and copy that slowly."""
    is_repeatable: bool = True
    """Whether the call is idempotent, so that it can be sent twice."""

    def __str__(self) -> str:
        words = (self.method, self.name, *(name for name in self.query))
        return " ".join(word for word in words if word)


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def failure(self) -> Failure:
        """Returns the failure that the response reports."""
        return failure_of(self.status, self.body, self.headers.get("x-amz-request-id", ""))

    @property
    def document(self) -> Document:
        """Parse the body as XML; raises `StorageFailed` if it is not XML."""
        return Document(self.body)


def read_whole(answer: Answer) -> Reply:
    """Read a response to its end and close it; raises `StoreUnreachable`."""
    try:
        body = answer.read(MAX_ANSWER_BYTES)
    finally:
        answer.close()
    headers = {name.lower(): text for name, text in answer.response.headers.items()}
    return Reply(answer.status, headers, body)


class _Refused(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class S3Caller:
    """Makes calls to one bucket; each may take `seconds`, retries included."""

    address: BucketAddress
    signer: Signer
    connections: Connections
    seconds: float

    def within(self, seconds: float) -> S3Caller:
        """Returns a caller with the same connections and another time limit."""
        return replace(self, seconds=seconds)

    def call(self, call: Call) -> Reply:
        """Make a call and read its response.

        Raises `ServerBusy` when the time is up, `FileNotFoundError`, `StorageFailed`, `NoRoom`.
        """
        return self._retried(lambda: call, self._reply)

    def call_with_new(self, new_call: Callable[[], Call]) -> tuple[Call, Reply]:
        """Make a call, with a new one for each attempt; returns the last call and its response."""
        return self._retried(new_call, lambda call, deadline: (call, self._reply(call, deadline)))

    def stream(self, call: Call) -> Answer:
        """Make a call; the code that uses the response must close it. Raises like `call`."""
        return self._retried(lambda: call, self._answer)

    def url(self, call: Call, seconds: int) -> str:
        """Returns a signed URL for the call with exactly its headers, valid for `seconds`."""
        target = self._target(call)
        query = self.signer.presigned_query(call.method, target, call.headers, seconds)
        return f"{self.address.origin}{target.path}?{query}"

    def _retried(self, new_call: Callable[[], Call], attempt: Callable[[Call, float], T]) -> T:
        deadline = time.monotonic() + self.seconds
        longest = FIRST_PAUSE_SECONDS
        while True:
            call = new_call()
            try:
                return attempt(call, deadline)
            except StoreUnreachable as error:
                reason = str(error)
            except _Refused as refused:
                if refused.failure.kind is not Kind.RETRY:
                    is_object = call.name is not None
                    raise refused.failure.error(str(call), is_object=is_object) from None
                reason = str(refused.failure)
            pause = random.uniform(longest / 2, longest)  # noqa: S311 - no secret
            if time.monotonic() + pause >= deadline:
                log.error("the object store did not answer in time: %s: %s", call, reason)
                raise busy()
            time.sleep(pause)
            longest = min(longest * 2, MAX_PAUSE_SECONDS)

    def _reply(self, call: Call, deadline: float) -> Reply:
        reply = read_whole(self._answer(call, deadline))
        if call.is_slow:  # Copying and completing may fail after the status was sent.
            if not reply.body.strip():
                raise StoreUnreachable("no result")
            if reply.document.is_error:
                raise _Refused(reply.failure)
        return reply

    def _answer(self, call: Call, deadline: float) -> Answer:
        answer = self.connections.ask(self.request(call), deadline)
        if answer.status >= 300:
            raise _Refused(read_whole(answer).failure)
        return answer

    def request(self, call: Call) -> Request:
        """Returns the signed request of a call."""
        target = self._target(call)
        if isinstance(call.body, bytes):
            length, payload = len(call.body), hashlib.sha256(call.body).hexdigest()
        else:
            length, payload = call.body.length, UNSIGNED_PAYLOAD
        headers = {**call.headers, "content-length": str(length)}
        signed = self.signer.headers(call.method, target, headers, payload)
        text = f"{target.path}?{query}" if (query := target.query_text) else target.path
        patience = (
            self.seconds if call.is_slow else IDLE_SECONDS + length / SLOWEST_BYTES_PER_SECOND
        )
        return Request(call.method, text, signed, call.body, patience, call.is_repeatable)

    def _target(self, call: Call) -> Target:
        key = "" if call.name is None else self.address.prefix + call.name
        return Target(self.address.authority, self.address.path(key), call.query)


# ---- responses -----------------------------------------------------------------------------------


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
        if self.kind is Kind.RETRY:
            return busy()
        if self.kind in _ERRORS:
            error, message = _ERRORS[self.kind]
            return error(message)
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
    {
        **dict.fromkeys(
            (
                *("SlowDown", "SlowDownRead", "SlowDownWrite", "ServiceUnavailable"),
                *("InternalError", "RequestTimeout", "OperationAborted", "Busy"),
                *("ConditionalRequestConflict", "IncompleteBody", "RequestTimeTooSlow"),
                *("Throttling", "ThrottlingException"),
            ),
            Kind.RETRY,
        ),
        **dict.fromkeys(("NoSuchKey", "NoSuchVersion"), Kind.MISSING),
        **dict.fromkeys(("InvalidPart", "InvalidPartOrder", "EntityTooSmall"), Kind.PARTS),
        **dict.fromkeys(("QuotaExceeded", "StorageFull"), Kind.FULL),
        **dict.fromkeys(("XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"), Kind.FULL),
        "NoSuchUpload": Kind.GONE,
    }
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

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "RequestTimeTooSkewed": (
            "The clocks of this server and of its object store differ by more than 15 minutes ({})."
        ),
        **dict.fromkeys(
            ("AccessDenied", "AllAccessDisabled", "AccountProblem"),
            "The object store does not allow this server's key to do this ({}).",
        ),
        **dict.fromkeys(
            ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"),
            "The object store does not accept this server's key ({}).",
        ),
        "NoSuchBucket": "The bucket of this server does not exist ({}).",
        **dict.fromkeys(
            ("AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect"),
            "The bucket of this server is in another region than SLUICE_S3_REGION says ({}).",
        ),
        **dict.fromkeys(
            ("BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"),
            "Bytes were damaged on their way to the object store ({}).",
        ),
    }
)

_ERRORS = MappingProxyType(
    {
        Kind.FULL: (NoRoom, "The object store has no room left."),
        Kind.GONE: (
            MultipartGone,
            "The object store does not have this multipart upload any more.",
        ),
        Kind.PARTS: (PartsDiffer, "The object store does not have the parts that it confirmed."),
    }
)
