"""Values that describe files made from videos."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.core.upload import UploadId


@dataclass(frozen=True, slots=True)
class Made:
    """A file as it was found. A replacement of the same name has another `version`.

    `length` in bytes. The version is the same on every machine, and can serve as an entity tag.
    """

    upload_id: UploadId
    name: str
    length: int
    made_at: datetime
    version: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files that are discarded together; `used_at` in seconds since 1970, `size` in bytes."""

    upload_id: UploadId
    name: str
    size: int
    used_at: float


class Outdated(Exception):
    """The file that a new one belongs to has been discarded or replaced."""
