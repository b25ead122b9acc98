"""Digest fields (RFC 9530): the digest of a request's bytes, as its sender computed it."""

from __future__ import annotations

import binascii
from base64 import b64decode

from app.domain.errors import InvalidRequest
from app.ingest.checksum import new_checksum
from app.ingest.source import BodySource, DigestSource

ALGORITHMS = {
    "sha-256": "sha256",
    "sha-512": "sha512",
    "sha": "sha1",
    "md5": "md5",
    "crc32c": "crc32c",
}
"""Names in the registry of RFC 9530, and ours. Unknown ones are ignored, as the RFC requires;
of several digests only one is checked, the first in this order."""


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
