"""Tests whether a bucket behaves as the server requires.

A check uses its own names below `checks/` and removes its objects, and those of killed checks.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from app.core.errors import UploadError
from app.core.ranges import ByteRange
from app.storage.s3.bucket import Bucket
from app.storage.s3.caller import PartsDiffer, Refused
from app.storage.s3.connections import IDLE_SECONDS, StoreUnreachable
from app.storage.s3.contents import crc32c_of

CHECKS = "checks/"
"""Prefix of the objects of a check."""

KILLED_AFTER = timedelta(hours=1)
"""No check takes longer, even if the clocks of this machine and of the store differ."""

COPIED_BYTES = 64 * 1024
"""Garage refuses to copy very short objects."""


class Grade(StrEnum):
    """Severity of a finding."""

    FINE = "fine"
    DEGRADED = "degraded"
    """The server works, but something is slower or missing."""
    FATAL = "fatal"
    """Uploads would fail or could be lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check; `detail` is a sentence for the operator."""

    grade: Grade
    detail: str


def check(bucket: Bucket, token: str) -> Finding:
    """Test whether objects can be stored, read, made of copied parts and deleted.

    Takes a dozen small requests. `token` makes the names of this check unique.
    """
    folder = f"{CHECKS}{token}"
    try:
        return _objects(bucket, f"{folder}/object") or _parts(bucket, folder)
    except FileNotFoundError:
        detail = "An object that was just stored cannot be found."
    except (UploadError, StoreUnreachable) as error:
        detail = str(error) or "The object store cut the connection."
    finally:
        with suppress(UploadError):
            bucket.delete(*(f"{folder}/{name}" for name in ("object", "source", "parts")))
            _remove_old(bucket)
    return Finding(Grade.FATAL, detail)


def _remove_old(bucket: Bucket) -> None:
    """Remove what killed checks have left."""
    old = datetime.now(UTC) - KILLED_AFTER
    bucket.delete(*(found.name for found in bucket.list_objects(CHECKS) if found.changed_at < old))
    for begun in bucket.list_multiparts(CHECKS):
        if begun.started_at < old:
            bucket.abort_multipart(begun.name, begun.id)


def _objects(bucket: Bucket, name: str) -> Finding | None:
    """Returns what is wrong with objects; None if nothing is."""
    sent = b"0123456789"
    bucket.put_object(name, sent)
    with bucket.open(name, ByteRange(2, 7), len(sent)) as file:
        has_read = file.read(5) == sent[2:7]
    is_listed = [found.name for found in bucket.list_objects(name)] == [name]
    bucket.delete(name)
    if not has_read or bucket.head(name) is not None:
        detail = "An object reads back changed, or is still there once deleted."
        return Finding(Grade.FATAL, detail)
    if not is_listed:
        return Finding(Grade.DEGRADED, "An object that was just stored is not listed.")
    damaged = {"Body": b"damaged", "ChecksumCRC32C": crc32c_of(b"other bytes")}
    with suppress(Refused):
        bucket.caller.once(time.monotonic() + IDLE_SECONDS, "put_object", name, **damaged)
        return Finding(
            Grade.FATAL,
            "The object store accepts bytes that do not match their checksum (CRC32C): it would "
            "keep data damaged in transit.",
        )
    return None


def _parts(bucket: Bucket, folder: str) -> Finding:
    """Make an object of one part, which is copied from another object."""
    name, source, sent = f"{folder}/parts", f"{folder}/source", bytes(COPIED_BYTES)
    checksums, is_complete = bucket.put_object(source, sent), False
    upload = bucket.create_multipart(name)
    try:
        copied = bucket.copy_part(name, upload, 1, source)
        if not copied.crc32c:
            copied = next((part.stored for part in bucket.list_parts(name, upload)), copied)
        if copied.crc32c not in {"", checksums.crc32c}:
            return Finding(Grade.FATAL, "A copied part has different bytes.")
        if not copied.crc32c:
            return Finding(
                Grade.DEGRADED,
                "Copied parts have no checksum (CRC32C), not even in the list of parts: the bytes "
                "of every long file pass through the server once more.",
            )
        bucket.complete_multipart(name, upload, [(1, copied)], length=len(sent))
        is_complete = True
    except PartsDiffer:
        return Finding(Grade.FATAL, "An object made of parts does not have all their bytes.")
    finally:
        if not is_complete:
            with suppress(UploadError):
                bucket.abort_multipart(name, upload)
    return Finding(
        Grade.FINE,
        "Objects can be stored, read by range, copied into parts, listed and deleted; damaged "
        "bytes are refused.",
    )
