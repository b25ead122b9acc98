"""Lists of videos: search, order and pagination cursors. Pure.

Names are compared without case, accents and width: "ETE" finds "été.mp4". Records store both forms
of a name, so that the database needs no Unicode support.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from base64 import b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from app.core.errors import InvalidRequest, UploadNotFound
from app.core.numbers import parse_bounded
from app.core.upload import Upload, UploadId, parse_upload_id

MAX_SEARCH_CHARACTERS = 200
"""Longer searches are refused: each word is searched in every name."""

MAX_SORT_BYTES = 120
"""Names with a common prefix of this length are ordered by id, so that a cursor fits into a URL."""

MAX_CURSOR_CHARACTERS = 210
"""A binding, MAX_SORT_BYTES in base64, an id, the dots between them, and a small margin."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = re.compile("[0-9]+")


class Position(NamedTuple):
    """The place of a video in an order; videos with the same key are ordered by id."""

    key: Any
    """A datetime, a length in bytes, or a `sort_form`, depending on the order."""
    upload_id: UploadId


class VideoOrder(StrEnum):
    """The sort order; the values are those of the parameter `sort`."""

    NEWEST = "newest"
    OLDEST = "oldest"
    NAME = "name"
    NAME_REVERSED = "-name"
    SMALLEST = "size"
    LARGEST = "-size"

    @property
    def is_descending(self) -> bool:
        """Whether higher keys come first."""
        return self in {VideoOrder.NEWEST, VideoOrder.NAME_REVERSED, VideoOrder.LARGEST}

    @property
    def column(self) -> str:
        """The column with the key: `published_at`, `sort_name` or `length`."""
        return _COLUMNS[self]

    def position(self, video: Upload) -> Position:
        """The position of a complete upload."""
        if self.column == "sort_name":
            return Position(sort_form(video.filename), video.id)
        if self.column == "length":
            return Position(video.known_length, video.id)
        return Position(video.published_at or video.active_at, video.id)


_COLUMNS = {
    VideoOrder.NEWEST: "published_at",
    VideoOrder.OLDEST: "published_at",
    VideoOrder.NAME: "sort_name",
    VideoOrder.NAME_REVERSED: "sort_name",
    VideoOrder.SMALLEST: "length",
    VideoOrder.LARGEST: "length",
}


@dataclass(frozen=True, slots=True)
class VideoList:
    """The videos whose names contain every one of `words`, in an order."""

    words: tuple[str, ...] = ()
    """In `search_form`; none of them is empty."""
    order: VideoOrder = VideoOrder.NEWEST

    @classmethod
    def parse(cls, search: str, order: str) -> VideoList:
        """The list that a client requests; raises `InvalidRequest`."""
        if len(search) > MAX_SEARCH_CHARACTERS:
            raise InvalidRequest(f"The search is over {MAX_SEARCH_CHARACTERS} characters.")
        words = dict.fromkeys(search_form(search).split())
        if any(unicodedata.category(character) in {"Cc", "Cs"} for character in "".join(words)):
            raise InvalidRequest("The search has control characters in it.")
        try:
            return cls(tuple(words), VideoOrder(order))
        except ValueError as error:
            known = ", ".join(VideoOrder)
            raise InvalidRequest(f"Videos can be sorted by {known} only.") from error

    def has(self, filename: str) -> bool:
        """Whether a name contains all the words."""
        name = search_form(filename)
        return all(word in name for word in self.words)

    def cursor_after(self, video: Upload) -> str:
        """The cursor of the page that begins after a video; valid only for this list."""
        position = self.order.position(video)
        return f"{self._binding}.{_key_text(position.key)}.{position.upload_id}"

    def parse_cursor(self, text: str) -> Position:
        """The position of a cursor of this list; `InvalidRequest` for any other text."""
        try:
            binding, key, upload_id = text[:MAX_CURSOR_CHARACTERS].split(".")
            if binding == self._binding:
                return Position(self._parse_key(key), parse_upload_id(upload_id))
        except (ValueError, OverflowError, UploadNotFound) as error:
            raise InvalidRequest("The cursor is not one of this server's.") from error
        raise InvalidRequest("The cursor is of a list with another search or order.")

    @property
    def _binding(self) -> str:
        """Identifies the list; forging it only yields a page that begins elsewhere."""
        return hashlib.sha256(" ".join([self.order, *self.words]).encode()).hexdigest()[:8]

    def _parse_key(self, text: str) -> datetime | int | bytes:
        if self.order.column == "sort_name":
            return b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        number = parse_bounded(text)
        if number is None:
            raise ValueError("no number")
        if self.order.column == "length":
            return number
        return _EPOCH + timedelta(microseconds=number)


def _key_text(key: datetime | int | bytes) -> str:
    if isinstance(key, bytes):
        return urlsafe_b64encode(key).decode().rstrip("=")
    if isinstance(key, int):
        return str(key)
    return str((key - _EPOCH) // timedelta(microseconds=1))


def search_form(text: str) -> str:
    """A name or search term without case, accents and width, which the search ignores."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(character for character in folded if not unicodedata.combining(character))


def sort_form(filename: str) -> bytes:
    """A sort key for names, the same in every database (bytewise): "clip 2" before "clip 10"."""
    return _DIGITS.sub(_by_value, search_form(filename)).encode()[:MAX_SORT_BYTES]


def _by_value(digits: re.Match[str]) -> str:
    """A number that sorts by its value: prefixed with the count of its digits."""
    number = digits[0].lstrip("0")
    return chr(ord("0") + min(len(number), 15)) + number
