"""Tests whether a bucket behaves as the server requires, and reports differences.

Each probe uses its own names below `checks/` and removes its objects.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import Any

from app.core.errors import StorageFailed, UploadError
from app.core.ranges import ByteRange
from app.storage.s3.bucket import Bucket
from app.storage.s3.caller import Refused
from app.storage.s3.connections import IDLE_SECONDS, Request, StoreUnreachable
from app.storage.s3.contents import PromisedBytes, SpoolSlice, crc32c_of

FOLDER = "checks"

PART_BYTES = 5 * 1024 * 1024
"""The smallest part that S3 accepts, except for the last one."""

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


@dataclass(frozen=True, slots=True)
class Place:
    """Where probes store objects; their names begin with `name`."""

    bucket: Bucket
    name: str
    origin: str


Result = tuple[Grade, str]
Probe = Callable[[Place], Result]


def check_quickly(bucket: Bucket, token: str) -> Finding:
    """Tests whether objects can be stored, read and deleted; takes a handful of requests."""
    return run_probe("objects", Place(bucket, f"{FOLDER}/{token}", ""))


def check_all(bucket: Bucket, token: str, *, origin: str) -> Iterator[Finding]:
    """Yields the findings of all probes, in order; stops after the first if the bucket is unusable.

    `token` makes the names of this check unique. `origin` is the origin of pages whose direct
    uploads the bucket should allow, such as `https://films.example`.
    """
    place = Place(bucket, f"{FOLDER}/{token}", origin)
    for topic in PROBES:
        finding = run_probe(topic, place)
        yield finding
        if topic == "objects" and finding.grade is Grade.FATAL:
            return


def run_probe(topic: str, place: Place) -> Finding:
    """Run one probe; returns its finding. Errors become findings."""
    probe, grade_of_failure = PROBES[topic]
    try:
        grade, detail = probe(place)
    except FileNotFoundError:
        grade, detail = Grade.FATAL, "An object that was just stored cannot be found."
    except (UploadError, StoreUnreachable) as error:
        grade, detail = grade_of_failure, str(error) or "The object store cut the connection."
    with suppress(UploadError):
        place.bucket.delete(*(found.name for found in place.bucket.list_objects(place.name)))
    return Finding(topic, grade, detail)


def _objects(place: Place) -> Result:
    bucket, name, sent = place.bucket, f"{place.name}/object", b"0123456789"
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


def _parts(place: Place) -> Result:
    """Makes an object of a part that is stored and one that is copied."""
    bucket, name, source = place.bucket, f"{place.name}/parts", f"{place.name}/source"
    with _multipart(place, name) as upload, TemporaryFile() as file:
        os.ftruncate(file.fileno(), PART_BYTES + 1)
        whole = bucket.put_object(source, SpoolSlice(file.fileno(), 0, PART_BYTES + 1))
        stored = bucket.upload_part(name, upload, 1, SpoolSlice(file.fileno(), 0, PART_BYTES))
        copied = bucket.copy_part(name, upload, 2, source, ByteRange(0, PART_BYTES + 1))
        if copied.crc32c not in {"", whole.crc32c}:
            return Grade.FATAL, "A copied part has different bytes."
        # Some stores do not complete a part without a checksum.
        parts = [(1, stored), (2, copied)] if copied.crc32c else [(1, stored)]
        bucket.complete_multipart(name, upload, parts)
    found, length = bucket.head(name), PART_BYTES if len(parts) == 1 else 2 * PART_BYTES + 1
    if found is None or found.length != length:
        return Grade.FATAL, "An object made of parts does not have all their bytes."
    if not copied.crc32c:
        return Grade.DEGRADED, (
            "Copied parts have no checksum (CRC32C): joining files sends their bytes through the "
            "server."
        )
    return Grade.FINE, "Parts can be stored, copied from objects, and completed to an object."


def _direct_uploads(place: Place) -> Result:
    bucket, promised = place.bucket, PromisedBytes(1, crc32c_of(b"x"))
    url = bucket.presign_part(f"{place.name}/direct", "none", 1, promised, SIGNED_SECONDS)
    address = bucket.caller.address
    headers = {
        "host": address.authority,
        "origin": place.origin,
        "access-control-request-method": "PUT",
        "access-control-request-headers": "x-amz-checksum-crc32c",
    }
    preflight = Request("OPTIONS", url.removeprefix(address.origin), headers)
    reply = bucket.caller.connections.ask(preflight, _soon()).read()
    is_allowed = reply.headers.get("access-control-allow-origin") in {"*", place.origin}
    if reply.status >= 300 or not is_allowed:
        return Grade.DEGRADED, (
            f"The bucket's CORS rules do not let pages of {place.origin} send parts: browsers will "
            "send them to the server. `flask --app wsgi storage cors ORIGIN` sets rules that do."
        )
    return Grade.FINE, f"The bucket's CORS rules let pages of {place.origin} send parts."


def _lifecycle(place: Place) -> Result:
    rules = _setting(place, "get_bucket_lifecycle_configuration").get("Rules", ())
    if any("Expiration" in rule for rule in rules):
        return Grade.DEGRADED, (
            "A lifecycle rule deletes objects by age: make sure that it does not apply to those "
            "of this server."
        )
    return Grade.FINE, "No lifecycle rule that can be read deletes objects by age."


def _versions(place: Place) -> Result:
    if _setting(place, "get_bucket_versioning").get("Status") == "Enabled":
        return Grade.DEGRADED, (
            "The bucket keeps old versions: deleted files still cost storage, unless a lifecycle "
            "rule removes old versions."
        )
    return Grade.FINE, "The bucket keeps no old versions of objects, as far as can be read."


PROBES: Mapping[str, tuple[Probe, Grade]] = MappingProxyType(
    {
        "objects": (_objects, Grade.FATAL),
        "parts": (_parts, Grade.FATAL),
        "direct uploads": (_direct_uploads, Grade.DEGRADED),
        "lifecycle": (_lifecycle, Grade.FINE),
        "versions": (_versions, Grade.FINE),
    }
)
"""Each probe by its topic, with the severity of its failure."""


@contextmanager
def _multipart(place: Place, name: str) -> Iterator[str]:
    upload = place.bucket.create_multipart(name)
    try:
        yield upload
    finally:
        with suppress(UploadError):  # A failure here must not hide an error of the probe.
            place.bucket.abort_multipart(name, upload)


def _setting(place: Place, operation: str) -> Mapping[str, Any]:
    """Returns a setting of the bucket; empty if it has none, or the key may not read it."""
    try:
        return place.bucket.caller.once(_soon(), operation)
    except (Refused, StorageFailed):
        return {}


def _soon() -> float:
    return time.monotonic() + IDLE_SECONDS
