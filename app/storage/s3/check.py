"""Tests whether a bucket behaves as the server requires, and reports differences.

Each probe uses its own names below `checks/` and removes its objects.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from tempfile import TemporaryFile
from types import MappingProxyType
from urllib.parse import urlsplit

from app.core.errors import UploadError
from app.core.ranges import ByteRange
from app.storage.s3.bucket import Bucket
from app.storage.s3.caller import Call, Reply, read_whole
from app.storage.s3.connections import IDLE_SECONDS, Request, StoreUnreachable
from app.storage.s3.contents import PromisedBytes, SpoolSlice, crc32c_of

FOLDER = "checks"

PART_BYTES = 5 * 1024 * 1024
"""The smallest part that S3 accepts, except for the last one."""

CUT_SECONDS = 0.5
"""How long a probe withholds the second half of a body while it waits for the store to react."""

ALLOWED_CLOCK_DIFFERENCE = timedelta(minutes=5)
"""S3 refuses signatures that are 15 minutes off; URLs signed for a minute fail earlier."""

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
    if not is_listed:
        return Grade.DEGRADED, "An object that was just stored is not listed."
    return Grade.FINE, "Objects can be stored, read by range, listed and deleted."


def _parts(place: Place) -> Result:
    bucket, name = place.bucket, f"{place.name}/parts"
    with _multipart(place, name) as upload, _zeros() as descriptor:
        bucket.upload_part(name, upload, 1, SpoolSlice(descriptor, 0, 10))
        first = bucket.upload_part(name, upload, 1, SpoolSlice(descriptor, 0, PART_BYTES))
        last = bucket.upload_part(name, upload, 4, SpoolSlice(descriptor, 0, 1))
        bucket.complete_multipart(name, upload, [(1, first), (4, last)])
        facts = bucket.head(name)
    if facts is None or facts.length != PART_BYTES + 1:
        return Grade.FATAL, "An object made of parts does not have all their bytes."
    return Grade.FINE, "Parts can be stored, replaced, left out, and completed to an object."


def _copying(place: Place) -> Result:
    """Copies an object that was stored whole, and one that was made of parts."""
    bucket, source = place.bucket, f"{place.name}/source"
    with _zeros() as descriptor:
        bucket.put_object(source, SpoolSlice(descriptor, 0, PART_BYTES + 1))
        has_checksum = _is_copied_right(place, source)
        with _multipart(place, source) as upload:
            first = bucket.upload_part(source, upload, 1, SpoolSlice(descriptor, 0, PART_BYTES))
            last = bucket.upload_part(source, upload, 2, SpoolSlice(descriptor, 0, 1))
            bucket.complete_multipart(source, upload, [(1, first), (2, last)])
        has_checksum_of_parts = _is_copied_right(place, source)
    if False in (has_checksum, has_checksum_of_parts):
        return Grade.FATAL, "A copied part has different bytes."
    if has_checksum is None:
        return Grade.DEGRADED, (
            "Copied parts have no checksum (CRC32C): joining files sends their bytes through the "
            "server."
        )
    if has_checksum_of_parts is None:
        return Grade.FINE, (
            "Parts can be copied from other objects, but have no checksum (CRC32C) if those were "
            "made of parts: joining long files sends their bytes through the server."
        )
    return Grade.FINE, "Parts can be copied from other objects: joining files sends no bytes."


def _is_copied_right(place: Place, source: str) -> bool | None:
    """Whether an object made from a copied range has the right bytes; None without a checksum.

    The server does not complete a part without a checksum: some stores refuse it.
    """
    bucket, name = place.bucket, f"{place.name}/copy"
    with _multipart(place, name) as upload:
        copied = bucket.copy_part(name, upload, 1, source, ByteRange(2, 7))
        if not copied.crc32c:
            return None
        bucket.complete_multipart(name, upload, [(1, copied)])
        with bucket.open(name, ByteRange(0, 5), 5) as file:
            return file.read(5) == b"\0\0\0\0\0"


def _checksums(place: Place) -> Result:
    name = f"{place.name}/damaged"
    headers = {"x-amz-checksum-crc32c": crc32c_of(b"other bytes")}
    with _multipart(place, name) as upload:
        part = {"partNumber": "1", "uploadId": upload}
        for query in ({}, part):
            reply = _ask(place, Call("PUT", name, query, headers, b"damaged"))
            if reply.status < 300:
                return Grade.FATAL, (
                    "The object store accepts bytes that do not match their checksum (CRC32C): it "
                    "would keep data damaged in transit."
                )
    return Grade.FINE, "Bytes that do not match their checksum (CRC32C) are refused."


def _cut(place: Place) -> Result:
    bucket, name = place.bucket, f"{place.name}/cut"
    with _multipart(place, name) as upload, _zeros() as descriptor:
        whole = SpoolSlice(descriptor, 0, PART_BYTES)
        headers = {"x-amz-checksum-crc32c": crc32c_of(whole)}
        for query in ({}, {"partNumber": "1", "uploadId": upload}):
            call = Call("PUT", name, query, headers, whole)
            half = replace(whole, length=PART_BYTES // 2)
            request = replace(bucket.caller.request(call), body=half, idle_seconds=CUT_SECONDS)
            with suppress(StoreUnreachable):
                bucket.caller.connections.ask(request, _soon()).close()
        time.sleep(CUT_SECONDS)
        kept = bucket.head(name) is not None or any(bucket.list_parts(name, upload))
    if kept:
        return Grade.FATAL, "A request that is cut off leaves an object or a part."
    return Grade.FINE, "A request that is cut off leaves nothing."


def _conditions(place: Place) -> Result:
    name = f"{place.name}/condition"
    place.bucket.put_object(name, b"first")
    reply = _ask(place, Call("PUT", name, {}, {"if-none-match": "*"}, b"second"))
    what = "honours" if reply.status == 412 else "ignores"
    return Grade.FINE, f"The object store {what} If-None-Match, which the server does without."


def _overrides(place: Place) -> Result:
    bucket, name = place.bucket, f"{place.name}/type"
    bucket.put_object(name, b"0123456789", content_type="text/html")
    url = bucket.presign_get(
        name, SIGNED_SECONDS, content_type="video/mp4", disposition="attachment"
    )
    missing = []
    for what, extra in (("whole files", {}), ("ranges", {"range": "bytes=2-6"})):
        reply = _unsigned(place, "GET", url, extra)
        wanted = {"content-type": "video/mp4", "content-disposition": "attachment"}
        if reply.status >= 300 or not wanted.items() <= reply.headers.items():
            missing.append(what)
    if missing:
        return Grade.DEGRADED, (
            f"Signed URLs cannot set the type and name of {' and '.join(missing)}: browsers get "
            "those that the file was stored with."
        )
    return Grade.FINE, "Signed URLs can set the type and name of what they return."


def _direct_uploads(place: Place) -> Result:
    promised = PromisedBytes(1, crc32c_of(b"x"))
    url = place.bucket.presign_part(f"{place.name}/direct", "none", 1, promised, SIGNED_SECONDS)
    asked = {
        "origin": place.origin,
        "access-control-request-method": "PUT",
        "access-control-request-headers": "x-amz-checksum-crc32c",
    }
    reply = _unsigned(place, "OPTIONS", url, asked)
    allowed = reply.headers.get("access-control-allow-origin") in {"*", place.origin}
    if reply.status >= 300 or not allowed:
        return Grade.DEGRADED, (
            f"The bucket's CORS rules do not let pages of {place.origin} send parts: browsers will "
            "send them to the server. `flask --app wsgi storage cors ORIGIN` sets rules that do."
        )
    return Grade.FINE, f"The bucket's CORS rules let pages of {place.origin} send parts."


def _clock(place: Place) -> Result:
    reply = _ask(place, Call("GET", None, {"list-type": "2", "max-keys": "1"}))
    try:
        theirs = parsedate_to_datetime(reply.headers.get("date", ""))
    except ValueError:
        return Grade.DEGRADED, "The object store's answers have no Date."
    difference = abs(theirs - place.bucket.caller.signer.now())
    if difference > ALLOWED_CLOCK_DIFFERENCE:
        minutes = difference // timedelta(minutes=1)
        return Grade.DEGRADED, (
            f"The clocks of this server and of the object store are {minutes} "
            "minutes apart; beyond 15, the store refuses everything."
        )
    return Grade.FINE, "The clocks of this server and of the object store agree."


def _lifecycle(place: Place) -> Result:
    reply = _ask(place, Call("GET", None, {"lifecycle": ""}))
    if reply.status >= 300:
        return Grade.FINE, (
            "The lifecycle rules cannot be read. The server aborts abandoned multipart uploads "
            "itself; a rule that also does, after 14 days, is a good safety net."
        )
    rules = reply.document
    if rules.everywhere("Expiration"):
        return Grade.DEGRADED, (
            "A lifecycle rule deletes objects by age: make sure that it does not apply to those "
            "of this server."
        )
    days = [text for text in rules.everywhere("DaysAfterInitiation") if text.isdecimal()]
    if not days:
        return Grade.FINE, "No lifecycle rule aborts abandoned multipart uploads; the server does."
    return Grade.FINE, f"A lifecycle rule aborts multipart uploads after {min(days, key=int)} days."


def _versions(place: Place) -> Result:
    reply = _ask(place, Call("GET", None, {"versioning": ""}))
    if reply.status >= 300:
        return Grade.FINE, "Whether the bucket keeps old versions cannot be read with this key."
    if reply.document.text("Status") == "Enabled":
        return Grade.DEGRADED, (
            "The bucket keeps old versions: deleted files still cost storage, unless a lifecycle "
            "rule removes old versions."
        )
    return Grade.FINE, "The bucket keeps no old versions of objects."


PROBES: Mapping[str, tuple[Probe, Grade]] = MappingProxyType(
    {
        "objects": (_objects, Grade.FATAL),
        "parts": (_parts, Grade.FATAL),
        "checksums": (_checksums, Grade.FATAL),
        "cut requests": (_cut, Grade.FATAL),
        "copying": (_copying, Grade.FATAL),
        "conditions": (_conditions, Grade.FINE),
        "overrides": (_overrides, Grade.DEGRADED),
        "direct uploads": (_direct_uploads, Grade.DEGRADED),
        "clock": (_clock, Grade.DEGRADED),
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


@contextmanager
def _zeros() -> Iterator[int]:
    with TemporaryFile() as file:
        os.ftruncate(file.fileno(), PART_BYTES + 1)
        yield file.fileno()


def _ask(place: Place, call: Call) -> Reply:
    """Returns the response to a call, with any status, without retries."""
    caller = place.bucket.caller
    return read_whole(caller.connections.ask(caller.request(call), _soon()))


def _unsigned(place: Place, method: str, url: str, headers: Mapping[str, str]) -> Reply:
    parts = urlsplit(url)
    request = Request(method, f"{parts.path}?{parts.query}", {"host": parts.netloc, **headers})
    return read_whole(place.bucket.caller.connections.ask(request, _soon()))


def _soon() -> float:
    return time.monotonic() + IDLE_SECONDS
