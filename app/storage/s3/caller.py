"""Makes calls to a bucket: retries transient failures until the time is up, and names the others.

The two calls that move a file's bytes, put and get, go from the signature straight to our own
connections. botocore builds and parses all others, which use the same connections and retries.
A body that is cut off after its head has arrived is no failed call: `reader.py` asks for the rest.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from xml.etree import ElementTree

from app.core.errors import NoRoom, ServerBusy, StorageFailed
from app.core.ranges import ByteRange
from app.storage.s3.address import BucketAddress
from app.storage.s3.connections import (
    IDLE_SECONDS,
    SLOWEST_BYTES_PER_SECOND,
    Answer,
    Connections,
    Reply,
    Request,
    StoreUnreachable,
)
from app.storage.s3.contents import Body

if TYPE_CHECKING:
    from app.storage.s3.signing import Botocore

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 5.0
"""Upper limit of the exponential backoff between attempts. Jitter keeps refused requests from
returning all at once."""

RETRY_AFTER_SECONDS = 5
"""Retry-After for clients while the store does not respond or asks to slow down."""

SLOW_OPERATIONS = frozenset({"complete_multipart_upload", "upload_part_copy"})
"""Some stores take minutes for these, and fail after they have sent the status."""


@dataclass(frozen=True, slots=True)
class S3Caller:
    """Makes calls to one bucket; each may take `seconds`, retries included.

    Every call raises `ServerBusy` when the time is up, `StorageFailed` if the store refuses,
    `NoRoom`, and `FileNotFoundError` if it names an object that does not exist. Names are without
    the prefix.
    """

    address: BucketAddress
    botocore: Callable[[], Botocore]
    """Imports botocore when it is first called."""
    connections: Connections
    seconds: float

    def within(self, seconds: float) -> S3Caller:
        """Returns a caller with the same connections and another time limit."""
        return replace(self, seconds=seconds)

    def put(
        self, name: str, query: Mapping[str, str], headers: Mapping[str, str], body: Body
    ) -> Mapping[str, str]:
        """Send the bytes of an object or part; returns the headers of the response.

        `headers` should have the checksum of the body, which is not signed.
        """
        url = self.address.url(name, query)
        length = len(body) if isinstance(body, bytes) else body.length
        headers = {"content-length": str(length), **headers}

        def attempt(deadline: float) -> Reply:
            return self._open("PUT", url, headers, body, deadline).read()

        return self.retried(attempt, f"PUT {name}").headers

    def get(self, name: str, span: ByteRange) -> Answer:
        """Request a range of an object; the code that uses the response must close it."""
        url, headers = self.address.url(name, {}), {"range": f"bytes={span.start}-{span.end - 1}"}
        return self.retried(
            lambda deadline: self._open("GET", url, headers, b"", deadline), f"GET {name}"
        )

    def call(self, operation: str, name: str | None = None, **parameters: object) -> dict[str, Any]:
        """Make any other call; without a name, on the bucket as a whole.

        Operation, parameters and the response are those of botocore's client.
        """
        return self.retried(
            lambda deadline: self.once(deadline, operation, name, **parameters),
            f"{operation} {name or ''}",
            is_object=name is not None,
        )

    def once(
        self, deadline: float, operation: str, name: str | None = None, **parameters: object
    ) -> dict[str, Any]:
        """Make one attempt of a call; raises `StoreUnreachable`, `Refused`, `StorageFailed`."""
        is_slow = operation in SLOW_OPERATIONS
        patience = self.seconds if is_slow else IDLE_SECONDS

        def send(request: Request) -> Reply:
            request = replace(request, idle_seconds=patience)
            reply = self.connections.ask(request, deadline).read()
            if reply.status >= 300 or (is_slow and _error_code(reply.body) is not None):
                raise _refused(request.method, reply)
            if is_slow and not reply.body.strip():
                raise StoreUnreachable("no result")
            return reply

        if name is not None:
            parameters["Key"] = self.address.prefix + name
        return self.botocore().call(operation, parameters, send)

    def retried(self, attempt: Callable[[float], T], what: str, *, is_object: bool = True) -> T:
        """Repeat an attempt, which gets the deadline, until it succeeds or fails for good.

        `what` names the call in logs.
        """
        deadline = time.monotonic() + self.seconds
        longest, may_hurry = FIRST_PAUSE_SECONDS, True
        while True:
            try:
                return attempt(deadline)
            except StoreUnreachable as error:
                reason = str(error)
                if error.was_idle and may_hurry:  # The store may be well, and needs no pause.
                    may_hurry = False
                    continue
            except Refused as refused:
                error_of_call = refused.error(what, is_object=is_object)
                if not isinstance(error_of_call, ServerBusy):
                    raise error_of_call from None
                reason = str(refused)
            pause = random.uniform(longest / 2, longest)  # noqa: S311 - no secret
            if time.monotonic() + pause >= deadline:
                log.error("the object store did not answer in time: %s: %s", what, reason)
                raise busy()
            time.sleep(pause)
            longest = min(longest * 2, MAX_PAUSE_SECONDS)

    def _open(
        self, method: str, url: str, headers: Mapping[str, str], body: Body, deadline: float
    ) -> Answer:
        target, signed = url.removeprefix(self.address.origin), self.botocore().headers
        patience = IDLE_SECONDS + int(headers.get("content-length", 0)) / SLOWEST_BYTES_PER_SECOND
        request = Request(method, target, signed(method, url, headers), body, patience)
        answer = self.connections.ask(request, deadline)
        if answer.status >= 300:
            raise _refused(method, answer.read())
        return answer


# ---- failures ------------------------------------------------------------------------------------


class MultipartGone(StorageFailed):
    """The multipart upload was completed or aborted, or never existed."""


class PartsDiffer(StorageFailed):
    """The store does not have the parts named in the completion: compare with `list_parts`."""


class Refused(Exception):
    """An error response: its status, its code (may be empty), and the id of the request."""

    def __init__(self, status: int, code: str, request_id: str = "") -> None:
        super().__init__(f"{status} {code} (request {request_id or 'unknown'})")
        self.status = status
        self.code = code

    def error(self, what: str, *, is_object: bool) -> Exception:
        """Returns the error to raise for the call `what`; `ServerBusy` if it can be repeated.

        Refusals are logged for the operator.
        """
        status, code = self.status, self.code
        if code in _MISSING and is_object:
            return FileNotFoundError(what)
        is_known = code in _ERRORS
        if code in _TRANSIENT or (not is_known and status in _TRANSIENT_STATUSES):
            return busy()
        by_status = (NoRoom, _FULL) if status == 507 else (StorageFailed, _UNKNOWN)
        kind, message = _ERRORS.get(code, by_status)
        if kind is StorageFailed:
            log.error("the object store refused %s: %s", what, self)
        return kind(message.format(code or status))


def busy() -> ServerBusy:
    """Returns the error for a store that does not respond in time."""
    error = ServerBusy("The object store does not answer in time.")
    error.retry_after_seconds = RETRY_AFTER_SECONDS
    return error


def _refused(method: str, reply: Reply) -> Refused:
    code = _error_code(reply.body) or ""  # Empty for a proxy's HTML.
    if method == "HEAD":
        code = _CODES_OF_STATUSES.get(reply.status, "")
    return Refused(reply.status, code, reply.headers.get("x-amz-request-id", ""))


def _error_code(body: bytes) -> str | None:
    """Returns the code in an error document, empty if it is none; None for other documents.

    Safe from entity expansion attacks: expat 2.4.1 and newer refuses amplification.
    """
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - of the operator's own store
    except (ElementTree.ParseError, ValueError, LookupError):
        return None
    if root.tag.rpartition("}")[2] != "Error":
        return None
    code = (root.findtext("{*}Code") or "").strip()
    return code if _CODE.fullmatch(code) else ""


_CODE = re.compile("[A-Za-z0-9.]{1,64}")
"""Longest text from the store in messages and logs."""

_CODES_OF_STATUSES = MappingProxyType(
    {301: "PermanentRedirect", 403: "AccessDenied", 404: "NoSuchKey"}
)
"""Codes for responses to HEAD, which have no body. A 404 without a code to any other call is from a
proxy: the object may be there."""

_TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
"""For codes that are not listed, and for responses without a code, such as a proxy's."""

_TRANSIENT = frozenset(
    (
        *("SlowDown", "SlowDownRead", "SlowDownWrite", "ServiceUnavailable", "InternalError"),
        *("RequestTimeout", "RequestTimeTooSlow", "IncompleteBody", "OperationAborted", "Busy"),
        *("ConditionalRequestConflict", "Throttling", "ThrottlingException"),
    )
)
"""Codes of failures that pass. Sources of all codes: "Error responses" of the Amazon S3 API
reference; SlowDownRead, SlowDownWrite and XMinio... are MinIO's."""

_MISSING = frozenset({"NoSuchKey", "NoSuchVersion"})

_UNKNOWN = "The object store refused a request ({})."
_FULL = "The object store has no room left."
_GONE = "The object store does not have this multipart upload any more."
_PARTS = "The object store does not have the parts that it confirmed."
_CLOCK = "The clocks of this server and of its object store differ by more than 15 minutes ({})."
_DENIED = "The object store does not allow this server's key to do this ({})."
_KEY = "The object store does not accept this server's key ({})."
_NO_BUCKET = "The bucket of this server does not exist ({})."
_REGION = "The bucket of this server is in another region than SLUICE_S3_REGION says ({})."
_DAMAGED = "Bytes were damaged on their way to the object store ({})."

_ERRORS: Mapping[str, tuple[type[Exception], str]] = MappingProxyType(
    {
        "NoSuchUpload": (MultipartGone, _GONE),
        "InvalidPart": (PartsDiffer, _PARTS),
        "InvalidPartOrder": (PartsDiffer, _PARTS),
        "EntityTooSmall": (PartsDiffer, _PARTS),
        "QuotaExceeded": (NoRoom, _FULL),
        "StorageFull": (NoRoom, _FULL),
        "XMinioStorageFull": (NoRoom, _FULL),
        "XMinioAdminBucketQuotaExceeded": (NoRoom, _FULL),
        "RequestTimeTooSkewed": (StorageFailed, _CLOCK),
        "AccessDenied": (StorageFailed, _DENIED),
        "AllAccessDisabled": (StorageFailed, _DENIED),
        "AccountProblem": (StorageFailed, _DENIED),
        "InvalidAccessKeyId": (StorageFailed, _KEY),
        "SignatureDoesNotMatch": (StorageFailed, _KEY),
        "InvalidToken": (StorageFailed, _KEY),
        "ExpiredToken": (StorageFailed, _KEY),
        "NoSuchBucket": (StorageFailed, _NO_BUCKET),
        "AuthorizationHeaderMalformed": (StorageFailed, _REGION),
        "PermanentRedirect": (StorageFailed, _REGION),
        "TemporaryRedirect": (StorageFailed, _REGION),
        "BadDigest": (StorageFailed, _DAMAGED),
        "InvalidDigest": (StorageFailed, _DAMAGED),
        "XAmzContentChecksumMismatch": (StorageFailed, _DAMAGED),
    }
)
