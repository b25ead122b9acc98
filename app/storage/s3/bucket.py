"""The S3 client, with a method for each call that the server makes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from functools import cache
from io import RawIOBase
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from app.core.errors import StorageFailed
from app.core.pieces import Checksums, is_crc32c
from app.core.ranges import ByteRange
from app.storage.s3.address import AccessKey, BucketAddress
from app.storage.s3.caller import MultipartGone, PartsDiffer, Refused, S3Caller
from app.storage.s3.connections import Answer, Connections
from app.storage.s3.contents import (
    Body,
    ListedMultipart,
    ListedObject,
    ListedPart,
    ObjectHead,
    SpoolSlice,
    crc32c_of,
)
from app.storage.s3.reader import ObjectReader

if TYPE_CHECKING:
    from app.storage.s3.signing import Botocore

CALL_SECONDS = 60.0
"""Time limit of a call, retries included, unless `within` sets another."""

PAGE_ENTRIES = 1000
"""Most entries of a listing in one response."""

DELETED_AT_ONCE = 1000
"""Most names in one DeleteObjects."""

APPEARS_SECONDS = 5.0
SLOWEST_MADE_BYTES_PER_SECOND = 100_000_000
APPEARS_POLL_SECONDS = 0.5
"""How long a confirmed object may take to appear, by its length, and how often to look for it."""

OCTETS = "application/octet-stream"


class Bucket:
    """A client for one bucket; names are relative to the prefix of its address.

    Opens no connection before the first call. Threads and forked processes may share it. Every call
    raises `ServerBusy` if the store does not respond in time, `StorageFailed` if it refuses, and
    `NoRoom`. A call that raised `ServerBusy` may still have taken effect. `caller` makes calls that
    have no method here.
    """

    def __init__(self, caller: S3Caller, *, page_entries: int = PAGE_ENTRIES) -> None:
        self.caller = caller
        self._page_entries = page_entries

    @classmethod
    def at(
        cls,
        address: BucketAddress,
        *,
        key: Callable[[], AccessKey] | None = None,
        page_entries: int = PAGE_ENTRIES,
    ) -> Bucket:
        """Returns the bucket at an address; without a key, uses the one AWS's tools would find."""

        @cache
        def botocore() -> Botocore:
            from app.storage.s3.signing import Botocore  # noqa: PLC0415 - slow, see there

            return Botocore(address, key)

        connections = Connections(address.scheme, address.host, address.port)
        caller = S3Caller(address, botocore, connections, CALL_SECONDS)
        return cls(caller, page_entries=page_entries)

    def within(self, seconds: float) -> Bucket:
        """Returns the same bucket and connections with another time limit for each call."""
        return Bucket(self.caller.within(seconds), page_entries=self._page_entries)

    def probe(self) -> None:
        """List one name; raises like any call if the bucket cannot be used.

        HEAD cannot distinguish a missing bucket from a missing object.
        """
        self.caller.call("list_objects_v2", MaxKeys=1, Prefix=self._key(""))

    # ---- Objects ---------------------------------------------------------------------------------

    def put_object(self, name: str, body: Body) -> Checksums:
        """Store an object atomically."""
        return self._put(name, {}, {"content-type": OCTETS}, body)

    def head(self, name: str) -> ObjectHead | None:
        """Returns an object's metadata; None if there is no such object."""
        try:
            found = self.caller.call("head_object", name)
        except FileNotFoundError:
            return None
        return ObjectHead(_field(found, "ContentLength"), found.get("ETag", "").strip('"'))

    def open(self, name: str, span: ByteRange, length: int) -> RawIOBase:
        """Open an object of `length` bytes, unbuffered, positioned at `span.start`.

        Requests the span at once, but reads may continue beyond it. Raises `FileNotFoundError`.
        """
        return ObjectReader(lambda wanted: self._get(name, wanted, length), span, length)

    def delete(self, *names: str) -> None:
        """Remove objects; missing ones are ignored."""
        if len(names) == 1:
            with suppress(FileNotFoundError):
                self.caller.call("delete_object", names[0])
            return
        for start in range(0, len(names), DELETED_AT_ONCE):
            keys = [{"Key": self._key(name)} for name in names[start : start + DELETED_AT_ONCE]]
            response = self.caller.call("delete_objects", Delete={"Objects": keys, "Quiet": True})
            for error in response.get("Errors", ()):
                refused = Refused(200, error.get("Code", ""))
                with suppress(FileNotFoundError):
                    raise refused.error("delete_objects", is_object=True)

    def list_objects(self, prefix: str = "") -> Iterator[ListedObject]:
        """Yields objects whose names begin with `prefix`, sorted by name."""
        parameters = {"MaxKeys": self._page_entries, "Prefix": self._key(prefix)}
        marker = ("ContinuationToken", "NextContinuationToken")
        for page in self._pages("list_objects_v2", None, marker, parameters):
            for entry in page.get("Contents", ()):
                changed_at = _field(entry, "LastModified").astimezone(UTC)
                yield ListedObject(self._name(entry), _field(entry, "Size"), changed_at)

    # ---- Multipart uploads -----------------------------------------------------------------------

    def create_multipart(self, name: str) -> str:
        """Create a multipart upload; returns its id.

        An attempt whose response was lost may leave another multipart upload with this name.
        """
        return self.create_named_multipart(lambda: name)[1]

    def create_named_multipart(self, new_name: Callable[[], str]) -> tuple[str, str]:
        """Create a multipart upload, with a new name for each attempt; returns name and id.

        This way no name ever has two multipart uploads.
        """
        operation = "create_multipart_upload"

        def attempt(deadline: float) -> tuple[str, str]:
            name = new_name()
            response = self.caller.once(
                deadline, operation, name, ContentType=OCTETS, ChecksumAlgorithm="CRC32C"
            )
            return name, _field(response, "UploadId")

        return self.caller.retried(attempt, operation)

    def upload_part(self, name: str, multipart_id: str, number: int, body: SpoolSlice) -> Checksums:
        """Store a part, replacing an earlier one with this number. Raises `MultipartGone`."""
        query = {"partNumber": str(number), "uploadId": multipart_id}
        return self._put(name, query, {}, body)

    def copy_part(self, name: str, multipart_id: str, number: int, source_name: str) -> Checksums:
        """Copy another object into a part, inside the store. Raises `MultipartGone`.

        Garage refuses very short sources. `crc32c` is empty if the store reports none.
        """
        response = self.caller.call(
            "upload_part_copy",
            name,
            UploadId=multipart_id,
            PartNumber=number,
            CopySource={"Bucket": self.caller.address.bucket, "Key": self._key(source_name)},
        )
        stored = _checksums(response.get("CopyPartResult", {}))
        return stored if is_crc32c(stored.crc32c) else Checksums(stored.etag, "")

    def complete_multipart(
        self, name: str, multipart_id: str, parts: Sequence[tuple[int, Checksums]], *, length: int
    ) -> None:
        """Make an object of `length` bytes from parts given by number; returns once it is there.

        The response alone proves nothing: versitygw 1.8 confirms what another call has begun, even
        if the store was killed before that call made the object. Raises `PartsDiffer`, and
        `MultipartGone` if there is no such multipart upload and no such object.
        """
        listed = []
        for number, stored in sorted(parts, key=itemgetter(0)):
            checksum = {"ChecksumCRC32C": stored.crc32c} if stored.crc32c else {}
            listed.append({"PartNumber": number, "ETag": f'"{stored.etag}"', **checksum})
        try:
            self.caller.call(
                "complete_multipart_upload",
                name,
                UploadId=multipart_id,
                MultipartUpload={"Parts": listed},
            )
        except MultipartGone:
            if not self.has(name, length):  # Otherwise an earlier call has completed it.
                raise
            return
        deadline = time.monotonic() + APPEARS_SECONDS + length / SLOWEST_MADE_BYTES_PER_SECOND
        while not self.has(name, length):
            if time.monotonic() > deadline:
                raise PartsDiffer("The object store confirmed an object that it does not have.")
            time.sleep(APPEARS_POLL_SECONDS)

    def has(self, name: str, length: int) -> bool:
        """Whether there is an object of this name and length, in bytes."""
        found = self.head(name)
        return found is not None and found.length == length

    def abort_multipart(self, name: str, multipart_id: str) -> None:
        """Abort a multipart upload and drop its parts. Repeatable."""
        with suppress(MultipartGone, FileNotFoundError):
            self.caller.call("abort_multipart_upload", name, UploadId=multipart_id)

    def list_parts(
        self, name: str, multipart_id: str, *, first: int = 1, at_once: int | None = None
    ) -> Iterator[ListedPart]:
        """Yields the stored parts, ordered by number, from `first` on. Raises `MultipartGone`.

        Each request lists at most `at_once` of them.
        """
        parameters = {"UploadId": multipart_id, "MaxParts": at_once or self._page_entries}
        if first > 1:
            parameters["PartNumberMarker"] = first - 1
        marker = ("PartNumberMarker", "NextPartNumberMarker")
        for page in self._pages("list_parts", name, marker, parameters):
            for entry in page.get("Parts", ()):
                yield ListedPart(
                    _field(entry, "PartNumber"), _field(entry, "Size"), _checksums(entry)
                )

    def list_multiparts(self, prefix: str = "") -> Iterator[ListedMultipart]:
        """Yields unfinished multipart uploads whose names begin with `prefix`, in any order.

        May miss some if an object has several: pages continue after a name, since versitygw 1.8
        refuses the marker that distinguishes two uploads of one object.
        """
        parameters = {"MaxUploads": self._page_entries, "Prefix": self._key(prefix)}
        marker = ("KeyMarker", "NextKeyMarker")
        for page in self._pages("list_multipart_uploads", None, marker, parameters):
            for entry in page.get("Uploads", ()):
                started_at = _field(entry, "Initiated").astimezone(UTC)
                yield ListedMultipart(self._name(entry), _field(entry, "UploadId"), started_at)

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
        url = self.caller.address.url(name, query)
        return self.caller.botocore().presigned("GET", url, {}, seconds)

    def presign_put(
        self, name: str, length: int, crc32c: str, seconds: int
    ) -> tuple[str, dict[str, str]]:
        """Returns a URL that stores exactly these bytes as an object, and headers for its request.

        The request must also have their length, which clients send without being told.
        """
        headers = {"x-amz-checksum-crc32c": crc32c}
        signed = {"content-length": str(length), **headers}
        url = self.caller.address.url(name, {})
        return self.caller.botocore().presigned("PUT", url, signed, seconds), headers

    def let_pages_store(self, *origins: str) -> None:
        """Allow pages of these origins to store objects; replaces the bucket's CORS rules."""
        rule = {
            "AllowedOrigins": origins,
            "AllowedMethods": ["PUT"],
            "AllowedHeaders": ["x-amz-checksum-crc32c"],
            "MaxAgeSeconds": 3600,
        }
        self.caller.call("put_bucket_cors", CORSConfiguration={"CORSRules": [rule]})

    # ---- How calls are made ----------------------------------------------------------------------

    def _put(
        self, name: str, query: Mapping[str, str], headers: Mapping[str, str], body: Body
    ) -> Checksums:
        checksum = crc32c_of(body)
        headers = {**headers, "x-amz-checksum-crc32c": checksum}
        response = self.caller.put(name, query, headers, body)
        return Checksums(_field(response, "etag").strip('"'), checksum)

    def _get(self, name: str, span: ByteRange, length: int) -> Answer:
        """Returns the response with exactly this span of an object of `length` bytes."""
        answer = self.caller.get(name, span)
        wanted = f"bytes {span.start}-{span.end - 1}/{length}"
        if answer.status == 206 and answer.header("content-range") == wanted:
            return answer
        answer.close()
        raise StorageFailed("The object store sent a different range than was requested.")

    def _pages(
        self,
        operation: str,
        name: str | None,
        marker: tuple[str, str],
        parameters: Mapping[str, object],
    ) -> Iterator[dict[str, Any]]:
        """Yields each page of a listing; `marker` names our and the store's continuation field."""
        ours, theirs = marker
        following = parameters.get(ours)
        while True:
            continued = {} if following is None else {ours: following}
            page = self.caller.call(operation, name, **{**parameters, **continued})
            yield page
            if not _field(page, "IsTruncated"):
                return
            if page.get(theirs) in {None, "", following}:
                raise StorageFailed("The object store's list has no end.")
            following = page[theirs]

    def _key(self, name: str) -> str:
        return self.caller.address.prefix + name

    def _name(self, entry: Mapping[str, str]) -> str:
        return entry.get("Key", "").removeprefix(self.caller.address.prefix)


def _checksums(entry: Mapping[str, Any]) -> Checksums:
    return Checksums(_field(entry, "ETag").strip('"'), entry.get("ChecksumCRC32C", ""))


def _field(document: Mapping[str, Any], name: str) -> Any:
    """Returns a field of a response that every store sends."""
    if document.get(name) in {None, ""}:
        raise StorageFailed(f"The object store's answer has no {name}.")
    return document[name]


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
        self._bucket.put_object(MARK, text.encode("ascii"))
