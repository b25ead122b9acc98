"""Digest fields (RFC 9530): of a request's bytes, and of whole files."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any

from flask import request
from http_sfv.dictionary import Dictionary
from http_sfv.item import Item

from app.core.errors import InvalidRequest
from app.core.upload import Upload
from app.ingest.checksum import new_checksum
from app.ingest.source import BodySource, DigestSource

# ---- structured fields ---------------------------------------------------------------------------

# Header fields that are structured fields (RFC 9651).


MAX_FIELD_CHARACTERS = 8190
"""Longest field that is parsed: one header line. Parsing time grows with the square of the length:
10 ms for this one, a minute for the 800 KB that 100 lines can hold."""


def parse_item(text: str, name: str) -> Any:
    """The value in the field `name`; raises `InvalidRequest`."""
    item = Item()
    _parse(item, text, name)
    return item.value


def parse_dictionary(text: str, name: str) -> Any:
    """The Dictionary in the field `name`, empty for an empty field; raises `InvalidRequest`."""
    dictionary = Dictionary()
    if text.strip():  # An empty one counts as absent (RFC 9651, section 3.2).
        _parse(dictionary, text, name)
    return dictionary


def _parse(field: Item | Dictionary, text: str, name: str) -> None:
    if len(text) > MAX_FIELD_CHARACTERS:
        raise InvalidRequest(f"The {name} header is over {MAX_FIELD_CHARACTERS} characters.")
    try:
        field.parse(text.encode("latin-1"))
    except ValueError as error:
        raise InvalidRequest(f"The {name} header is malformed.") from error


# ---- digests -------------------------------------------------------------------------------------


SHA256 = "sha-256"
CRC32C = "crc32c"

ALGORITHMS = {
    SHA256: "sha256",
    "sha-512": "sha512",
    "sha": "sha1",
    "md5": "md5",
    CRC32C: "crc32c",
}
"""Names in the registry of RFC 9530, and ours. Unknown ones are ignored, as the RFC requires;
of several digests only the first in this order is checked. CRC32C detects damage in transit at a
tenth of the cost of SHA-256, but no attack."""


def parse_content_digest(header: str) -> tuple[str, bytes] | None:
    """The algorithm (hashlib's name) and digest in a header; None without a known algorithm."""
    given = dict(item.strip().partition("=")[::2] for item in header.split(","))
    for name, algorithm in ALGORITHMS.items():
        if name in given:
            return algorithm, _digest_bytes(given[name], new_checksum(algorithm).digest_size)
    return None


def _digest_bytes(text: str, size: int) -> bytes:
    try:
        if len(text) < 2 or text[0] != ":" or text[-1] != ":":
            raise ValueError("not a byte sequence")
        # RFC 9651 section 4.2.7: missing padding and non-zero pad bits are no errors.
        encoded = text[1:-1]
        digest = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (ValueError, binascii.Error) as error:
        raise InvalidRequest("The Content-Digest header is malformed.") from error
    if len(digest) != size:
        raise InvalidRequest(f"The digest in the Content-Digest header is not {size} bytes long.")
    return digest


def digest_source(source: BodySource, header: str | None) -> BodySource:
    """`source`, verified at its end against a Content-Digest value if there is one."""
    parsed = None if header is None else parse_content_digest(header)
    return source if parsed is None else DigestSource(source, *parsed)


def parse_repr_digest(text: str) -> str | None:
    """The digest of the whole file as `algorithm:hex`; None without a known algorithm."""
    given = parse_dictionary(text, "Repr-Digest")
    for name, algorithm in ALGORITHMS.items():
        if name not in given:
            continue
        digest = given[name].value
        if not isinstance(digest, bytes) or len(digest) != new_checksum(algorithm).digest_size:
            raise InvalidRequest(f"The Repr-Digest header has no {name} digest in it.")
        return f"{algorithm}:{digest.hex()}"
    return None


def known_digest(name: str, upload: Upload) -> bytes | None:
    """The recorded digest of a file; `name` is the algorithm's in the registry."""
    if name == SHA256 and upload.sha256 is not None:
        return bytes.fromhex(upload.sha256)
    if name == CRC32C and upload.crc32c is not None:
        return b64decode(upload.crc32c)
    return None


def write_repr_digest(name: str, digest: bytes) -> str:
    """The value of `Repr-Digest`; `name` is the algorithm's in the registry of RFC 9530."""
    dictionary = Dictionary()
    dictionary[name] = digest
    return str(dictionary)


def wanted_digests() -> list[str]:
    """Digests the request wants, the preferred first; a malformed preference counts as absent."""
    try:
        return parse_wanted_digests(request.headers.get("Want-Repr-Digest", ""))
    except InvalidRequest:
        return []


def wants_sha256() -> bool:
    """Whether the request wants the SHA-256 of a file, now or once it is known."""
    return SHA256 in wanted_digests()


def parse_wanted_digests(text: str) -> list[str]:
    """Names of known algorithms in `Want-Repr-Digest`, the preferred first (RFC 9530, 4)."""
    given = parse_dictionary(text, "Want-Repr-Digest")
    weights = {name: item.value for name, item in given.items()}
    if any(not isinstance(weight, int) for weight in weights.values()):
        raise InvalidRequest("The weights in the Want-Repr-Digest header must be whole numbers.")
    wanted = [name for name in weights if name in ALGORITHMS and weights[name] > 0]
    return sorted(wanted, key=lambda name: -weights[name])
