"""The S3 client, with a method for each call that the server makes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from io import RawIOBase
from operator import itemgetter
from urllib.parse import quote
from xml.sax.saxutils import escape

from app.core.cells import Stamp, is_crc32c
from app.core.errors import StorageFailed
from app.core.ranges import ByteRange
from app.storage.s3.address import UNRESERVED, AccessKey, BucketAddress
from app.storage.s3.caller import Call, Document, Failure, Kind, MultipartGone, Reply, S3Caller
from app.storage.s3.connections import Answer, Connections
from app.storage.s3.contents import (
    Body,
    ListedMultipart,
    ListedObject,
    ListedPart,
    ObjectHead,
    PromisedBytes,
    SpoolSlice,
    base64_of,
    crc32c_of,
)
from app.storage.s3.reader import ObjectReader
from app.storage.s3.signing import AmbientKeys, Signer

CALL_SECONDS = 60.0
"""Time limit of a call, retries included, unless `within` sets another."""

PAGE_ENTRIES = 1000
"""Most entries of a listing in one response."""

DELETED_AT_ONCE = 1000
"""Most names in one DeleteObjects."""

COPIED_BYTES = 1024 * 1024
"""Block size of reads: costs 0.30 CPU s/GB; 256 KiB costs 0.48."""

OCTETS = "application/octet-stream"
CHECKED = {"x-amz-checksum-algorithm": "CRC32C"}
"""Headers of a multipart upload whose parts come with their checksums."""


def utc_now() -> datetime:
    """Returns the time for signatures."""
    return datetime.now(UTC)


class Bucket:
    """A client for one bucket; names are relative to the prefix of its address.

    Opens no connection before the first call. Threads and forked processes may share it. Every call
    raises `ServerBusy` if the store does not respond in time, `StorageFailed` if it refuses, and
    `NoRoom`. A call that raised `ServerBusy` may still have taken effect. `caller` makes calls that
    have no method here.
    """

    def __init__(self, caller: S3Caller, *, page_entries: int = PAGE_ENTRIES) -> None:
        self.caller = caller
        self._page_entries = str(page_entries)

    @classmethod
    def at(
        cls,
        address: BucketAddress,
        *,
        key: Callable[[], AccessKey] | None = None,
        clock: Callable[[], datetime] = utc_now,
        page_entries: int = PAGE_ENTRIES,
    ) -> Bucket:
        """Returns the bucket at an address; without a key, uses the one AWS's tools would find."""
        signer = Signer(address.region, key or AmbientKeys(), clock)
        connections = Connections(address.scheme, address.host, address.port)
        return cls(S3Caller(address, signer, connections, CALL_SECONDS), page_entries=page_entries)

    def within(self, seconds: float) -> Bucket:
        """Returns the same bucket and connections with another time limit for each call."""
        return Bucket(self.caller.within(seconds), page_entries=int(self._page_entries))

    def probe(self) -> None:
        """List one name; raises like any call if the bucket cannot be used.

        HEAD cannot distinguish a missing bucket from a missing object.
        """
        query = {"list-type": "2", "max-keys": "1", "prefix": self._key("")}
        self.caller.call(Call("GET", None, query))

    # ---- Objects ---------------------------------------------------------------------------------

    def put_object(
        self, name: str, body: Body, *, content_type: str = OCTETS, disposition: str = ""
    ) -> Stamp:
        """Store an object atomically."""
        headers = _described(content_type, disposition)
        return self._put(Call("PUT", name, headers=headers, body=body))

    def head(self, name: str) -> ObjectHead | None:
        """Returns an object's metadata; None if there is no such object."""
        try:
            headers = self.caller.call(Call("HEAD", name)).headers
        except FileNotFoundError:
            return None
        return ObjectHead(_whole_number(headers.get("content-length")), _etag(headers))

    def open(self, name: str, span: ByteRange, length: int) -> RawIOBase:
        """Open an object of `length` bytes, unbuffered, positioned at `span.start`.

        Requests the span at once, but reads may continue beyond it. Raises `FileNotFoundError`.
        """
        return ObjectReader(lambda wanted: self._get(name, wanted, length), span, length)

    def copy_into(self, name: str, span: ByteRange, descriptor: int, *, at: int) -> None:
        """Write a span of an object into an open file at the offset `at`.

        Raises `FileNotFoundError`, and `OSError` if writing fails.
        """
        buffer = memoryview(bytearray(min(COPIED_BYTES, span.length)))
        with ObjectReader(lambda wanted: self._get(name, wanted), span, span.end) as source:
            while count := source.readinto(buffer):
                block = buffer[:count]
                while block:
                    written = os.pwrite(descriptor, block, at)
                    block, at = block[written:], at + written

    def delete(self, *names: str) -> None:
        """Remove objects; missing ones are ignored."""
        if len(names) == 1:
            with suppress(FileNotFoundError):
                self.caller.call(Call("DELETE", names[0]))
            return
        for start in range(0, len(names), DELETED_AT_ONCE):
            keys = (escape(self._key(name)) for name in names[start : start + DELETED_AT_ONCE])
            entries = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
            body = f"<Delete><Quiet>true</Quiet>{entries}</Delete>".encode()
            reply = self._send_document("POST", {"delete": ""}, body)
            for error in reply.document.all("Error"):
                failure = Failure(200, error.get("Code", ""))
                if failure.kind is not Kind.MISSING:
                    raise failure.error("DELETE of several objects", is_object=False)

    def list_objects(self, prefix: str = "") -> Iterator[ListedObject]:
        """Yields objects whose names begin with `prefix`, sorted by name."""
        query = {"list-type": "2", "max-keys": self._page_entries, "prefix": self._key(prefix)}
        for page in self._pages(query, ("continuation-token", "NextContinuationToken")):
            for entry in page.all("Contents"):
                length = _whole_number(entry.get("Size"))
                yield ListedObject(self._name(entry), length, _moment(entry, "LastModified"))

    # ---- Multipart uploads -----------------------------------------------------------------------

    def create_multipart(
        self, name: str, *, content_type: str = OCTETS, disposition: str = ""
    ) -> str:
        """Create a multipart upload; returns its id.

        An attempt whose response was lost may leave another multipart upload with this name.
        """
        headers = {**_described(content_type, disposition), **CHECKED}
        reply = self.caller.call(Call("POST", name, {"uploads": ""}, headers))
        return _required(reply.document.text("UploadId"))

    def create_named_multipart(self, new_name: Callable[[], str]) -> tuple[str, str]:
        """Create a multipart upload, with a new name for each attempt; returns name and id.

        This way no name ever has two multipart uploads.
        """
        headers = {**_described(OCTETS, ""), **CHECKED}
        call, reply = self.caller.call_with_new(
            lambda: Call("POST", new_name(), {"uploads": ""}, headers, is_repeatable=False)
        )
        return _required(call.name), _required(reply.document.text("UploadId"))

    def upload_part(self, name: str, multipart_id: str, number: int, body: SpoolSlice) -> Stamp:
        """Store a part, replacing an earlier one with this number. Raises `MultipartGone`."""
        return self._put(Call("PUT", name, _part(multipart_id, number), body=body))

    def copy_part(
        self, name: str, multipart_id: str, number: int, source_name: str, span: ByteRange
    ) -> Stamp:
        """Copy bytes of another object into a part, inside the store. Raises `MultipartGone`.

        S3 and Garage refuse sources of 5 MiB or less. `crc32c` is empty if the store reports none.
        """
        source = f"/{self.caller.address.bucket}/{self._key(source_name)}"
        headers = {
            "x-amz-copy-source": quote(source, safe=UNRESERVED),
            "x-amz-copy-source-range": f"bytes={span.start}-{span.end - 1}",
        }
        call = Call("PUT", name, _part(multipart_id, number), headers, is_slow=True)
        document = self.caller.call(call).document
        etag = _required(document.text("ETag").strip('"'))
        checksum = document.text("ChecksumCRC32C")
        return Stamp(etag, checksum if is_crc32c(checksum) else "")

    def complete_multipart(
        self, name: str, multipart_id: str, parts: Sequence[tuple[int, Stamp]]
    ) -> str:
        """Complete a multipart upload from parts given by number; returns the object's ETag.

        Raises `PartsDiffer`, and `MultipartGone`, also if an earlier call has completed it.
        """
        body = ""
        for number, stored in sorted(parts, key=itemgetter(0)):
            checksum = f"<ChecksumCRC32C>{stored.crc32c}</ChecksumCRC32C>" if stored.crc32c else ""
            etag = escape(f'"{stored.etag}"')
            body += f"<Part>{checksum}<ETag>{etag}</ETag><PartNumber>{number}</PartNumber></Part>"
        call = Call(
            "POST",
            name,
            {"uploadId": multipart_id},
            {"content-type": "application/xml"},
            f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode(),
            is_slow=True,
        )
        return _required(self.caller.call(call).document.text("ETag").strip('"'))

    def abort_multipart(self, name: str, multipart_id: str) -> None:
        """Abort a multipart upload and drop its parts. Repeatable."""
        with suppress(MultipartGone, FileNotFoundError):
            self.caller.call(Call("DELETE", name, {"uploadId": multipart_id}))

    def list_parts(
        self, name: str, multipart_id: str, *, first: int = 1, at_once: int | None = None
    ) -> Iterator[ListedPart]:
        """Yields the stored parts, ordered by number, from `first` on. Raises `MultipartGone`.

        Each request lists at most `at_once` of them.
        """
        query = {"uploadId": multipart_id, "max-parts": str(at_once or self._page_entries)}
        if first > 1:
            query["part-number-marker"] = str(first - 1)
        marker = "part-number-marker", "NextPartNumberMarker"
        for page in self._pages(query, marker, name=name):
            for entry in page.all("Part"):
                stored = Stamp(entry.get("ETag", "").strip('"'), entry.get("ChecksumCRC32C", ""))
                length = _whole_number(entry.get("Size"))
                yield ListedPart(_whole_number(entry.get("PartNumber")), length, stored)

    def list_multiparts(self, prefix: str = "") -> Iterator[ListedMultipart]:
        """Yields unfinished multipart uploads whose names begin with `prefix`, in any order.

        May miss some if an object has several: pages continue after a name, since versitygw 1.8
        refuses the marker that distinguishes two uploads of one object.
        """
        query = {"uploads": "", "max-uploads": self._page_entries, "prefix": self._key(prefix)}
        for page in self._pages(query, ("key-marker", "NextKeyMarker")):
            for entry in page.all("Upload"):
                started = _moment(entry, "Initiated")
                yield ListedMultipart(self._name(entry), _required(entry.get("UploadId")), started)

    # ---- For others to call ----------------------------------------------------------------------

    def presign_get(
        self, name: str, seconds: int, *, content_type: str = "", disposition: str = ""
    ) -> str:
        """Returns a URL that serves an object with this content type and disposition."""
        overrides = {
            "response-content-type": content_type,
            "response-content-disposition": disposition,
        }
        query = {field: text for field, text in overrides.items() if text}
        return self.caller.url(Call("GET", name, query), seconds)

    def presign_part(
        self, name: str, multipart_id: str, number: int, promised: PromisedBytes, seconds: int
    ) -> str:
        """Returns a URL that stores exactly these bytes as a part.

        The request must have the header `x-amz-checksum-crc32c` as given here.
        """
        call = Call("PUT", name, _part(multipart_id, number), promised.headers)
        return self.caller.url(call, seconds)

    def let_pages_store(self, *origins: str) -> None:
        """Allow pages of these origins to store parts; replaces the bucket's CORS rules."""
        allowed = "".join(f"<AllowedOrigin>{escape(origin)}</AllowedOrigin>" for origin in origins)
        rule = (
            f"{allowed}<AllowedMethod>PUT</AllowedMethod>"
            f"<AllowedHeader>x-amz-checksum-crc32c</AllowedHeader><MaxAgeSeconds>3600</MaxAgeSeconds>"
        )
        body = f"<CORSConfiguration><CORSRule>{rule}</CORSRule></CORSConfiguration>".encode()
        self._send_document("PUT", {"cors": ""}, body)

    # ---- How calls are made ----------------------------------------------------------------------

    def _put(self, call: Call) -> Stamp:
        checksum = crc32c_of(call.body)
        headers = {**call.headers, "x-amz-checksum-crc32c": checksum}
        reply = self.caller.call(replace(call, headers=headers))
        return Stamp(_required(_etag(reply.headers)), checksum)

    def _get(self, name: str, span: ByteRange, length: int | None = None) -> Answer:
        """Returns the response with exactly this span of an object; checks `length` if given."""
        last = span.end - 1
        answer = self.caller.stream(
            Call("GET", name, headers={"range": f"bytes={span.start}-{last}"})
        )
        sent, _, total = answer.header("content-range").partition("/")
        has_length = length is None or total == str(length)
        if answer.status == 206 and sent == f"bytes {span.start}-{last}" and has_length:
            return answer
        answer.close()
        raise StorageFailed("The object store sent a different range than was requested.")

    def _send_document(self, method: str, query: Mapping[str, str], body: bytes) -> Reply:
        """Send XML to the bucket, with the MD5 that S3 requires."""
        headers = {
            "content-type": "application/xml",
            "content-md5": base64_of(hashlib.md5(body, usedforsecurity=False).digest()),
        }
        return self.caller.call(Call(method, None, query, headers, body))

    def _pages(
        self, query: Mapping[str, str], marker: tuple[str, str], *, name: str | None = None
    ) -> Iterator[Document]:
        """Yields each page of a listing; `marker` names our and the store's continuation field."""
        asked = dict(query)
        while True:
            page = self.caller.call(Call("GET", name, asked)).document
            yield page
            following = page.text(marker[1])
            if page.text("IsTruncated") != "true":
                return
            if following in {"", asked.get(marker[0])}:
                raise StorageFailed("The object store's list has no end.")
            asked[marker[0]] = following

    def _key(self, name: str) -> str:
        return self.caller.address.prefix + name

    def _name(self, entry: Mapping[str, str]) -> str:
        return entry.get("Key", "").removeprefix(self.caller.address.prefix)


def _described(content_type: str, disposition: str) -> dict[str, str]:
    headers = {"content-type": content_type}
    return {**headers, "content-disposition": disposition} if disposition else headers


def _part(multipart_id: str, number: int) -> dict[str, str]:
    return {"partNumber": str(number), "uploadId": multipart_id}


def _etag(headers: Mapping[str, str]) -> str:
    return headers.get("etag", "").strip('"')


def _required(text: str | None) -> str:
    if not text:
        raise StorageFailed("The object store's answer lacks a required element.")
    return text


def _whole_number(text: str | None) -> int:
    if not (text and text.isascii() and text.isdecimal()):
        raise StorageFailed("The object store's answer lacks a number.")
    return int(text)


def _moment(entry: Mapping[str, str], name: str) -> datetime:
    try:
        return datetime.fromisoformat(_required(entry.get(name))).astimezone(UTC)
    except ValueError as error:
        raise StorageFailed("The object store's answer lacks a date.") from error


# ---- mark ----------------------------------------------------------------------------------------

# The mark in a bucket identifies the library that its files belong to.


MARK = ".sluice-library"
"""The name of the object. Stores that keep objects as files cannot have an object where another
library's prefix is a folder, so this is a name that no library uses as its prefix."""

MARK_BYTES = 64
"""Most bytes read of the mark. A foreign object with this name may have any length."""


class BucketMark:
    """Stores a short text in an object; raises the bucket's errors."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def read(self) -> str | None:
        """Returns the text; None if there is no such object."""
        self._bucket.probe()  # A missing bucket must not look like a missing object.
        known = self._bucket.head(MARK)
        if known is None:
            return None
        span = ByteRange(0, min(known.length, MARK_BYTES))
        try:
            with self._bucket.open(MARK, span, known.length) as opened:
                return (opened.read(span.length) or b"").decode("ascii", "replace")
        except FileNotFoundError:  # It was removed just now.
            return None

    def write(self, text: str) -> None:
        """Replace the text."""
        self._bucket.put_object(MARK, text.encode("ascii"), content_type="text/plain")
