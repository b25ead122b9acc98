"""Checksums as tus writes them, by the names in use."""

from __future__ import annotations

import hashlib
import zlib

from tests.conformance.tus_client import base64_of

ALGORITHMS = ("sha1", "md5", "sha256", "sha512", "crc32")
"""sha1 is the one that every server must have; the others are tried where they are announced."""


def checksum_of(algorithm: str, content: bytes) -> str:
    """The value of `Upload-Checksum`; a CRC is written with its most significant byte first."""
    if algorithm == "crc32":
        digest = zlib.crc32(content).to_bytes(4, "big")
    else:
        digest = hashlib.new(algorithm, content, usedforsecurity=False).digest()
    return f"{algorithm} {base64_of(digest)}"
