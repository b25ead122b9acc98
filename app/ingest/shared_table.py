"""Memory that all worker processes share."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from functools import cached_property
from hashlib import blake2b
from pathlib import Path


def shared_table(file: Path, length: int) -> mmap.mmap:
    """Maps `length` bytes of a file, initially zeros, shared with other processes."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=0o600)
    try:
        os.ftruncate(descriptor, length)
        return mmap.mmap(descriptor, length)
    finally:
        os.close(descriptor)


def replace_table(file: Path, table: bytes | bytearray) -> None:
    """Replace the content of a table that one process writes and others read; raises `OSError`.

    Not through the mapping: on a full disk, the first write to a new page kills the process.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, mode=0o600)
    try:
        os.pwrite(descriptor, table, 0)
    finally:
        os.close(descriptor)


# ---- name digest ---------------------------------------------------------------------------------

# Digests of senders' names, for the reports that nodes exchange.


DIGEST_BYTES = 8


class NameDigest:
    """A keyed 64-bit digest of a name, the same on all nodes of a fleet.

    Keyed because addresses are few enough to try them all: computing a digest takes the nodes'
    secret. BLAKE2b with a key is a MAC (RFC 7693, section 1). `secret` is called with the first
    name, and may raise what reading it raises; on a single machine, which sends no reports, it
    returns an empty key.
    """

    def __init__(self, secret: Callable[[], bytes]) -> None:
        self._secret = secret

    def of(self, name: str) -> int:
        """The digest, as a number."""
        digest = blake2b(name.encode(), digest_size=DIGEST_BYTES, key=self._key).digest()
        return int.from_bytes(digest, "big")

    @cached_property
    def _key(self) -> bytes:
        """A key for this purpose alone: the secret signs other things, too."""
        secret = self._secret()
        return blake2b(secret, person=b"sluice senders").digest() if secret else b""


WITHOUT_SECRET = NameDigest(bytes)
"""A digest without a key, for a single machine."""
