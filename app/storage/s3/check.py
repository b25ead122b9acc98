"""Tests whether a bucket behaves as the server requires, and reports differences.

Each probe uses its own names below `checks/` and removes its objects.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from tempfile import TemporaryFile

from app.core.errors import UploadError
from app.core.pieces import SMALLEST_PART_BYTES
from app.core.ranges import ByteRange
from app.storage.s3.bucket import Bucket
from app.storage.s3.caller import PartsDiffer, Refused
from app.storage.s3.connections import IDLE_SECONDS, Request, StoreUnreachable
from app.storage.s3.contents import SpoolSlice, crc32c_of

FOLDER = "checks"

SIGNED_SECONDS = 300


class Grade(StrEnum):
    """Severity of a finding."""

    FINE = "fine"
    DEGRADED = "degraded"
    """The server works, but something is slower or missing."""
    FATAL = "fatal"
    """Uploads would fail or could be lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one probe; `detail` is a sentence for the operator."""

    topic: str
    grade: Grade
    detail: str


Result = tuple[Grade, str]


def check_quickly(bucket: Bucket, token: str) -> Finding:
    """Tests whether objects can be stored, read and deleted; takes a handful of requests.

    `token` makes the names of this check unique.
    """
    return _finding("objects", bucket, f"{FOLDER}/{token}", _objects)


def check_all(bucket: Bucket, token: str, *, origin: str) -> Iterator[Finding]:
    """Yields all findings, but only the first if the bucket is unusable.

    `origin` is the origin of pages whose direct uploads the bucket should allow, such as
    `https://films.example`.
    """
    first, name = check_quickly(bucket, token), f"{FOLDER}/{token}"
    yield first
    if first.grade is not Grade.FATAL:
        yield _finding("parts", bucket, name, _parts)
        yield _finding("direct uploads", bucket, name, partial(_direct_uploads, origin))


def _finding(
    topic: str, bucket: Bucket, name: str, probe: Callable[[Bucket, str], Result]
) -> Finding:
    """Run a probe, whose objects have names below `name`. Errors become findings."""
    try:
        grade, detail = probe(bucket, name)
    except FileNotFoundError:
        grade, detail = Grade.FATAL, "An object that was just stored cannot be found."
    except (UploadError, StoreUnreachable) as error:
        grade, detail = Grade.FATAL, str(error) or "The object store cut the connection."
    with suppress(UploadError):
        bucket.delete(*(found.name for found in bucket.list_objects(f"{name}/")))
    return Finding(topic, grade, detail)


def _objects(bucket: Bucket, folder: str) -> Result:
    name, sent = f"{folder}/object", b"0123456789"
    bucket.put_object(name, sent)
    with bucket.open(name, ByteRange(2, 7), len(sent)) as file:
        has_read = file.read(5) == sent[2:7]
    is_listed = [found.name for found in bucket.list_objects(name)] == [name]
    bucket.delete(name)
    if not has_read or bucket.head(name) is not None:
        return Grade.FATAL, "An object reads back changed, or is still there once deleted."
    damaged = {"Body": b"damaged", "ChecksumCRC32C": crc32c_of(b"other bytes")}
    with suppress(Refused):
        bucket.caller.once(_soon(), "put_object", name, **damaged)
        return Grade.FATAL, (
            "The object store accepts bytes that do not match their checksum (CRC32C): it would "
            "keep data damaged in transit."
        )
    if not is_listed:
        return Grade.DEGRADED, "An object that was just stored is not listed."
    return Grade.FINE, (
        "Objects can be stored, read by range, listed and deleted; damaged bytes are refused."
    )


def _parts(bucket: Bucket, folder: str) -> Result:
    """Makes an object of a part that is stored and one that is copied."""
    name, source = f"{folder}/parts", f"{folder}/source"
    upload = bucket.create_multipart(name)
    with TemporaryFile() as file, ExitStack() as at_end:
        at_end.callback(bucket.abort_multipart, name, upload)
        os.ftruncate(file.fileno(), SMALLEST_PART_BYTES)
        body = SpoolSlice(file.fileno(), 0, SMALLEST_PART_BYTES)
        whole = bucket.put_object(source, body)
        stored = bucket.upload_part(name, upload, 1, body)
        copied = bucket.copy_part(name, upload, 2, source)
        if not copied.crc32c:
            for listed in bucket.list_parts(name, upload, first=2):
                copied = listed.stored
        if copied.crc32c not in {"", whole.crc32c}:
            return Grade.FATAL, "A copied part has different bytes."
        # Some stores do not complete a part without a checksum.
        parts = [(1, stored), (2, copied)] if copied.crc32c else [(1, stored)]
        try:
            length = len(parts) * SMALLEST_PART_BYTES
            bucket.complete_multipart(name, upload, parts, length=length)
        except PartsDiffer:
            return Grade.FATAL, "An object made of parts does not have all their bytes."
    if not copied.crc32c:
        return Grade.DEGRADED, (
            "Copied parts have no checksum (CRC32C), not even in the list of parts: the bytes of "
            "every long file pass through the server once more."
        )
    return Grade.FINE, "Parts can be stored, copied from objects, and completed to an object."


def _direct_uploads(origin: str, bucket: Bucket, folder: str) -> Result:
    address = bucket.caller.address
    url, _ = bucket.presign_put(f"{folder}/direct", 1, crc32c_of(b"x"), SIGNED_SECONDS)
    headers = {
        "host": address.authority,
        "origin": origin,
        "access-control-request-method": "PUT",
        "access-control-request-headers": "x-amz-checksum-crc32c",
    }
    preflight = Request("OPTIONS", url.removeprefix(address.origin), headers)
    with suppress(StoreUnreachable):
        reply = bucket.caller.connections.ask(preflight, _soon()).read()
        allowed = reply.headers.get("access-control-allow-origin")
        if reply.status < 300 and allowed in {"*", origin}:
            return Grade.FINE, f"The bucket's CORS rules let pages of {origin} send parts."
    return Grade.DEGRADED, (
        f"The bucket's CORS rules do not let pages of {origin} send parts: browsers will send "
        "them to the server. `flask --app wsgi storage cors ORIGIN` sets rules that do."
    )


def _soon() -> float:
    return time.monotonic() + IDLE_SECONDS
