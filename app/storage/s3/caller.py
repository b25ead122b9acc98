"""Signs and sends calls; retries transient failures until the time limit."""

from __future__ import annotations

import hashlib
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from app.storage.s3.address import BucketAddress
from app.storage.s3.answers import (
    MAX_ANSWER_BYTES,
    Document,
    Failure,
    Kind,
    busy,
    failure_of,
)
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

    def call_anew(self, new_call: Callable[[], Call]) -> tuple[Call, Reply]:
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
        for pause in _pauses():
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
            if time.monotonic() + pause >= deadline:
                break
            time.sleep(pause)
        log.error("the object store did not answer in time: %s: %s", call, reason)
        raise busy()

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


def _pauses() -> Iterator[float]:
    longest = FIRST_PAUSE_SECONDS
    while True:
        yield random.uniform(longest / 2, longest)  # noqa: S311 - no secret
        longest = min(longest * 2, MAX_PAUSE_SECONDS)
