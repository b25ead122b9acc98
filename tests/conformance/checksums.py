"""Checksums as tus writes them, by the names in use."""

from __future__ import annotations

import hashlib
import zlib

from tests.conformance.tus_client import base64_of

ALGORITHMS = ("sha1", "md5", "sha256", "sha512", "crc32")
"""Every server must support sha1; the others are tested if they are announced."""


def checksum_of(algorithm: str, content: bytes) -> str:
    """The value of `Upload-Checksum`; a CRC is written with its most significant byte first."""
    if algorithm == "crc32":
        digest = zlib.crc32(content).to_bytes(4, "big")
    else:
        digest = hashlib.new(algorithm, content, usedforsecurity=False).digest()
    return f"{algorithm} {base64_of(digest)}"
