"""Compares the library's files with their records. No Flask."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from crc32c import crc32c

from app.core.access import Scope
from app.core.errors import StorageFailed, UploadGone, UploadNotFound
from app.core.ranges import ByteRange
from app.core.upload import Upload, parse_upload_id
from app.http.services import Services

READ_BYTES = 1024 * 1024


class Difference(StrEnum):
    """What can be wrong."""

    MISSING = "missing"
    """There is a record but no file."""
    WRONG_SIZE = "wrong_size"
    WRONG_DIGEST = "wrong_digest"
    UNREADABLE = "unreadable"
    """The disk cannot read the file."""
    NO_RECORD = "no_record"
    """There is a file but no record of it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A file that differs from its record; `name` is the upload's id, or the file's name."""

    name: str
    difference: Difference
    detail: str


@dataclass(slots=True)
class Verification:
    """One pass over the library; its counts are right once `run` has ended."""

    services: Services
    scope: Scope
    checked: int = 0
    without_digest: int = 0
    """Files too new to have a digest in their record: only their size was compared."""

    def run(self) -> Iterator[Finding]:
        """Everything that differs, as it is found."""
        known = set()
        for video in self.services.library.all(self.scope):
            known.add(video.id)
            self.checked += 1
            self.without_digest += video.sha256 is None and video.crc32c is None
            finding = self._check(video)
            if finding is not None and self._is_still_there(video.id):
                yield finding
        for name in self.services.inspection.published():
            if name not in known and not self._is_still_there(name):
                yield Finding(name, Difference.NO_RECORD, "the file has no record")

    def _check(self, video: Upload) -> Finding | None:
        try:
            length, sha256, checksum = self._read(video)
        except UploadGone:
            return Finding(video.id, Difference.MISSING, "the file is not there")
        except (OSError, StorageFailed) as error:
            return Finding(video.id, Difference.UNREADABLE, str(error))
        if length != video.length:
            detail = f"{length} bytes where the record says {video.length}"
            return Finding(video.id, Difference.WRONG_SIZE, detail)
        if video.sha256 not in {None, sha256}:
            detail = f"SHA-256 {sha256} where the record says {video.sha256}"
            return Finding(video.id, Difference.WRONG_DIGEST, detail)
        if video.crc32c not in {None, checksum}:
            detail = f"CRC32C {checksum} where the record says {video.crc32c}"
            return Finding(video.id, Difference.WRONG_DIGEST, detail)
        return None

    def _read(self, video: Upload) -> tuple[int, str, str]:
        """The file's true length, SHA-256 and CRC32C."""
        digest, checksum = hashlib.sha256(), 0
        length, buffer = 0, memoryview(bytearray(READ_BYTES))
        with self.services.library.open(video, ByteRange(0, video.known_length)) as file:
            while count := file.readinto(buffer):
                digest.update(buffer[:count])
                checksum = crc32c(buffer[:count], checksum)
                length += count
        return length, digest.hexdigest(), b64encode(checksum.to_bytes(4, "big")).decode()

    def _is_still_there(self, name: str) -> bool:
        """Whether the record still exists: the library changes while it is read."""
        try:
            self.services.uploads.get(self.scope, parse_upload_id(name))
        except (UploadNotFound, UploadGone):
            return False
        return True
