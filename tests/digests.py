"""Digests as RFC 9530's registry names them, computed without the server's code."""

from __future__ import annotations

import base64
import hashlib

from crc32c import crc32c

from app.http.digests import ALGORITHMS


def digest(name: str, data: bytes) -> bytes:
    """Of `data`, by the algorithm of that name in the registry."""
    if name == "crc32c":
        return crc32c(data).to_bytes(4, "big")
    return hashlib.new(ALGORITHMS[name], data).digest()


def digest_field(name: str, data: bytes) -> str:
    """As the value of a digest field."""
    return f"{name}=:{base64.b64encode(digest(name, data)).decode()}:"
