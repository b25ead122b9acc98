"""Files that are made from videos, as those who keep them and those who read them know them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.domain.upload import UploadId


@dataclass(frozen=True, slots=True)
class Made:
    """A file as it was found. One that replaces it under its name has another `version`.

    `length` in bytes. The version is the same on every machine, and good for an entity tag.
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
    """The file beside which another one was to be kept has been discarded or replaced."""
