"""Parses and formats the header values of tus. Pure; every error is an `InvalidRequest`."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlsplit

from flask import request
from werkzeug.http import http_date

from app.core.errors import InvalidRequest, UploadNotFound
from app.core.numbers import parse_digits
from app.core.upload import UploadPart, parse_upload_id
from app.http.proxy import came_directly
from app.ingest.checksum import ALGORITHMS, new_checksum
from app.ingest.gunicorn_socket import trailers
from app.ingest.source import BodySource, DigestSource, TrailingDigestSource

PARTIAL = "partial"
_FINAL = "final;"

MAX_PARTS = 1000
"""Maximum parts of a final upload. 100 header lines could name 24,000 and take a minute."""

_REFERENCE = re.compile(r"( *[^ ]+)(?: |$)")
"""One space separates two references; further spaces stay with the one after them, because the
header must be returned as it was received."""

_METADATA_KEY = re.compile(r"[!-+\--~]+")
"""ASCII without spaces and commas."""


def parse_number(name: str, text: str | None) -> int:
    """The number of bytes in Upload-Offset or Upload-Length: digits only, no sign or space."""
    if text is None:
        raise InvalidRequest(f"The header {name} is missing.")
    number = parse_digits(text)
    if number is None:
        raise InvalidRequest(f"The header {name} is not a number of bytes.")
    return number


def parse_metadata(text: str) -> dict[str, bytes]:
    """The pairs of Upload-Metadata; a key may lack a value, but must be unique."""
    pairs: dict[str, bytes] = {}
    for item in text.split(",") if text else ():
        key, _, value = item.strip(" ").partition(" ")
        if not _METADATA_KEY.fullmatch(key) or key in pairs:
            raise InvalidRequest("The header Upload-Metadata has a malformed or repeated key.")
        pairs[key] = _decode("Upload-Metadata", value)
    return pairs


def file_name(metadata: dict[str, bytes]) -> str:
    """The file's name in the metadata; empty if there is none."""
    name = metadata.get("filename") or metadata.get("name") or b""
    return name.decode("utf-8", errors="replace")


def format_metadata(filename: str) -> str:
    """Upload-Metadata of an upload that was created in another protocol."""
    return f"filename {b64encode(filename.encode()).decode()}"


def parse_checksum(text: str) -> tuple[str, bytes]:
    """The algorithm and the digest of Upload-Checksum."""
    algorithm, _, encoded = text.partition(" ")
    if algorithm not in ALGORITHMS:
        raise InvalidRequest(f"The server does not know the checksum algorithm {algorithm!r}.")
    digest = _decode("Upload-Checksum", encoded)
    if len(digest) != new_checksum(algorithm).digest_size:
        raise InvalidRequest(f"A checksum of {len(digest)} bytes does not fit {algorithm}.")
    return algorithm, digest


def parse_concat(text: str) -> list[UploadPart] | None:
    """The parts of a final upload, or None for a partial one; `UploadNotFound` for a foreign URL.

    References may be whole URLs or paths; the id is the last segment.
    """
    if text == PARTIAL:
        return None
    if not text.startswith(_FINAL):
        raise InvalidRequest("The header Upload-Concat is neither partial nor final.")
    references = _REFERENCE.findall(text.removeprefix(_FINAL).rstrip())
    if not references:
        raise InvalidRequest("The header Upload-Concat names no uploads.")
    if len(references) > MAX_PARTS:
        raise InvalidRequest(f"A final upload has at most {MAX_PARTS} parts.")
    try:
        paths = [urlsplit(reference.strip()).path for reference in references]
    except ValueError as error:
        raise UploadNotFound("No upload has this URL.") from error
    return [
        UploadPart(parse_upload_id(path.rpartition("/")[2]), reference)
        for path, reference in zip(paths, references, strict=True)
    ]


def format_concat(parts: Sequence[UploadPart]) -> str:
    """Upload-Concat of a final upload, with the references as they were received."""
    return _FINAL + " ".join(part.reference for part in parts)


def format_date(moment: datetime) -> str:
    """Upload-Expires: an HTTP date (RFC 9110, section 5.6.7)."""
    return http_date(moment)


def _decode(name: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise InvalidRequest(f"The header {name} has a value that is not Base64.") from error


# ---- checksum ------------------------------------------------------------------------------------

# The digest that a client sends with a body: in a header, or in a trailer after it.


HEADER = "Upload-Checksum"


def checked(source: BodySource) -> BodySource:
    """`source`, verified at its end against the client's digest if there is one."""
    header = request.headers.get(HEADER)
    if header is not None:
        return DigestSource(source, *parse_checksum(header))
    if source.remaining is None:  # Only chunked bodies have trailers (RFC 9110, section 6.5.1).
        announced = request.headers.get("Trailer", "").lower().split(",")
        if HEADER.lower() in (name.strip() for name in announced):
            return TrailingDigestSource(source, _digest_in_trailer)
    return source


def can_see_trailers() -> bool:
    """Whether the trailers of a chunked request would reach this program."""
    return came_directly(request.environ) and trailers(request.environ) is not None


def _digest_in_trailer() -> tuple[str, bytes]:
    for name, value in trailers(request.environ) or ():
        if name.lower() == HEADER.lower():
            return parse_checksum(value)
    raise InvalidRequest("The announced Upload-Checksum trailer is missing.")
