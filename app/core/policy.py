"""Rules for uploads and renditions. Pure: takes values, raises or returns them."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from posixpath import splitext
from typing import Protocol

from app.core.errors import ChunkMismatch, InvalidRequest, TooLarge, TypeNotAllowed
from app.core.ranges import ByteRange

MAX_FILENAME_CHARACTERS = 1024
"""Longer names are refused; a name may contain a folder path."""

MAX_KEY_CHARACTERS = 200
"""Longest client key or fingerprint; Dropzone's are 36 long."""

UNNAMED = "unnamed"
"""Name for unnamed files."""

_CLIENT_KEY = re.compile(r"[A-Za-z0-9._:-]+")


@dataclass(frozen=True, slots=True)
class RenditionPolicy:
    """Whether renditions are offered; `is_eager` encodes all of them in advance.

    `cache_bytes` is the maximum size of the cache, 0 for no limit.
    """

    is_on: bool
    is_eager: bool
    cache_bytes: int


@dataclass(frozen=True, slots=True)
class UploadPolicy:
    """The operator's limits. An empty `allowed_extensions` allows every type."""

    max_length: int
    allowed_extensions: frozenset[str] = frozenset()

    def within(self, length: int | None) -> UploadPolicy:
        """The limits for a sender who may send only files of up to `length` bytes."""
        if length is None or length >= self.max_length:
            return self
        return replace(self, max_length=length)

    def check_length(self, length: int) -> int:
        """`length` in bytes; `TooLarge` beyond the limit, `InvalidRequest` below zero."""
        if length < 0:
            raise InvalidRequest("The size of the file is negative.")
        if length > self.max_length:
            # `length` may be the bytes received so far, or just the first byte too many.
            raise TooLarge(f"The file has more than the {self.max_length} bytes it may have here.")
        return length

    def check_filename(self, filename: str) -> str:
        """The name to keep, `UNNAMED` if it cleans to nothing; raises as `clean_filename` does."""
        name = clean_filename(filename) or UNNAMED
        self.check_type(name)
        return name

    def check_type(self, filename: str) -> None:
        """Raise `TypeNotAllowed` where files of that name may not be kept."""
        if not self.allowed_extensions:
            return
        extension = extension_of(filename)
        if extension not in self.allowed_extensions:
            allowed = ", ".join(sorted(self.allowed_extensions))
            raise TypeNotAllowed(f"This server takes only files of these types: {allowed}.")


class Allowance(Protocol):
    """The limits of senders, checked before accepting bytes of unknown length or name."""

    def __call__(self, sender: str, filename: str | None, *, upload_id: str | None) -> int | None:
        """Maximum bytes of the file, None for no limit; raises the error that refuses it.

        `filename` is None for a part of a file, and `upload_id` for an upload not recorded yet.
        """
        ...


def no_allowance(sender: str, filename: str | None, *, upload_id: str | None) -> None:
    """An `Allowance` without limits for senders."""


def clean_filename(filename: str) -> str:
    """The name normalised (NFC), without folders such as `..`; empty if nothing is left.

    It is only displayed and sent in a header; no path on the server contains it. Raises
    `InvalidRequest` for a name that is too long or has control characters.
    """
    name = unicodedata.normalize("NFC", filename).replace("\\", "/").strip()
    if len(name) > MAX_FILENAME_CHARACTERS:
        raise InvalidRequest(f"The file name is over {MAX_FILENAME_CHARACTERS} characters.")
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in name):
        raise InvalidRequest("The file name has control characters in it.")
    return "/".join(part for part in name.split("/") if part not in {"", ".", ".."})


def extension_of(filename: str) -> str:
    """The extension of a name in lower case, without its dot; empty if it has none."""
    return splitext(filename)[1].lower().removeprefix(".")


def check_client_key(text: str) -> str:
    """A client's own name for its upload; `InvalidRequest` unless it is short and plain."""
    if len(text) > MAX_KEY_CHARACTERS or not _CLIENT_KEY.fullmatch(text):
        raise InvalidRequest(
            "The upload key must have 1 to 200 letters, digits, dots, colons, dashes or "
            "underscores."
        )
    return text


def check_fingerprint(text: str) -> str:
    """The fingerprint of a file on the client's side; `InvalidRequest` unless short and plain."""
    if not 0 < len(text) <= MAX_KEY_CHARACTERS or not text.isprintable():
        raise InvalidRequest("The fingerprint must have 1 to 200 printable characters.")
    return text


def check_chunk(chunk: ByteRange, length: int | None) -> None:
    """`ChunkMismatch` where the chunk reaches beyond the end of the file."""
    if length is not None and chunk.end > length:
        raise ChunkMismatch(f"The chunk ends at byte {chunk.end}, but the file has {length} bytes.")


# ---- media type ----------------------------------------------------------------------------------

# The content type of a stored file. Never the one its client declared.


PLAYABLE = {
    "mp4": "video/mp4",
    "m4v": "video/mp4",
    "mov": "video/quicktime",
    "webm": "video/webm",
    "mkv": "video/x-matroska",
    "ogv": "video/ogg",
    "mp3": "audio/mpeg",
    "m4a": "audio/mp4",
    "ogg": "audio/ogg",
    "oga": "audio/ogg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "wav": "audio/wav",
}
"""Types a browser shows in a player and nothing else: none of them can run as a page. HTML, SVG,
PDF and anything else not listed is served as a download."""

OPAQUE = "application/octet-stream"


def media_type(filename: str) -> str:
    """The Content-Type for a file name."""
    return PLAYABLE.get(extension_of(filename), OPAQUE)
