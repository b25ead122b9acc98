"""Computes the checksum of a whole file during the transfer instead of after it.

CRC32C finds damage on the way, at a tenth of the cost of SHA-256. Whether a file is another one is
told by SHA-256 alone.
"""

from __future__ import annotations

import hashlib
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from sluice_client.errors import ContentMismatch, Interrupted, SluiceError
from sluice_client.local_file import READ_BYTES, read_at, read_into

Crc32c = Callable[[bytes | memoryview, int], int]
"""CRC32C of bytes after others with that CRC32C."""


def find_crc32c() -> Crc32c | None:
    """A function that continues a CRC32C over more bytes; None if `crc32c` is not installed.

    Pure Python would be a hundred times slower than a fast connection.
    """
    try:
        from crc32c import crc32c  # noqa: PLC0415 - there is no wheel for some machines
    except ImportError:
        return None
    return crc32c


class Kind(StrEnum):
    """Of a checksum: the name of its member in what the server says of a file."""

    SHA256 = "sha256"
    CRC32C = "crc32c"


_TITLES = {Kind.SHA256: "SHA-256", Kind.CRC32C: "CRC32C"}


def in_transit() -> Kind:
    """The checksum that is compared after a transfer: the cheapest that is installed."""
    return Kind.SHA256 if find_crc32c() is None else Kind.CRC32C


def compare(kind: Kind, here: str, document: Mapping[str, Any], name: str) -> None:
    """Raise `ContentMismatch` unless the server's document, which has one, has that checksum."""
    there = document[kind]
    if here != there:
        raise ContentMismatch(f"{name}: {_TITLES[kind]} is {here} here, {there} on the server.")


class FileHash:
    """The checksum of bytes in a row. `crc32c` is its value, None if it is a SHA-256."""

    def __init__(self, kind: Kind, *, crc32c: int = 0) -> None:
        self.kind = kind
        self._sha256 = hashlib.sha256()
        self._continue = find_crc32c() if kind is Kind.CRC32C else None
        self.crc32c = None if self._continue is None else crc32c

    def update(self, block: bytes | memoryview) -> None:
        """The next bytes."""
        if self._continue is None or self.crc32c is None:
            self._sha256.update(block)
        else:
            self.crc32c = self._continue(block, self.crc32c)

    def result(self) -> str:
        """Of all bytes so far, as the server writes it."""
        return self._sha256.hexdigest() if self.crc32c is None else self.base64()

    def base64(self) -> str:
        """Of all bytes so far."""
        if self.crc32c is None:
            return b64encode(self._sha256.digest()).decode()
        return b64encode(self.crc32c.to_bytes(4, "big")).decode()

    def is_in(self, document: Mapping[str, Any]) -> bool:
        """Whether the server's document has this checksum."""
        return bool(document.get(self.kind) == self.result())

    def digest_field(self) -> str:
        """As the value of `Content-Digest` (RFC 9530)."""
        name = {Kind.SHA256: "sha-256", Kind.CRC32C: "crc32c"}[self.kind]
        return f"{name}=:{self.base64()}:"


def hash_of(
    descriptor: int, start: int, end: int, kind: Kind, *, stop: threading.Event | None = None
) -> FileHash:
    """Of a file's bytes from `start` to before `end`; raises `Interrupted` once `stop` is set."""
    running, position = FileHash(kind), start
    buffer = memoryview(bytearray(min(READ_BYTES, end - start)))
    while position < end:
        if stop is not None and stop.is_set():
            raise Interrupted("Stopped while computing the checksum.")
        block = read_into(descriptor, buffer[: end - position], position)
        running.update(block)
        position += len(block)
    return running


class BackgroundHash:
    """Hashes a file in its own thread, never beyond the byte it may read.

    An upload lets it read slightly ahead of what is being sent, so that each byte is read from the
    disk once and from the page cache the second time. A download lets it read what has arrived. The
    thread begins with the first byte that it may read.
    """

    def __init__(self, descriptor: int, length: int, kind: Kind, stop: threading.Event) -> None:
        self._descriptor = descriptor
        self._length = length
        self._stop = stop
        self._allowed = 0
        self._hash = FileHash(kind)
        self._error: SluiceError | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def kind(self) -> Kind:
        """Of the checksum."""
        return self._hash.kind

    def allow(self, position: int) -> None:
        """Bytes before `position` may be read."""
        with self._changed:
            self._allowed = max(self._allowed, min(position, self._length))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="checksum", daemon=True)
                self._thread.start()
            self._changed.notify()

    def result(self) -> FileHash:
        """The checksum, once everything is read; raises any error of reading."""
        self.allow(self._length)
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(0.1)
            if self._stop.is_set():
                raise Interrupted("Stopped while computing the checksum.")
        if self._error is not None:
            raise self._error
        return self._hash

    def close(self) -> None:
        """End the thread, whose descriptor is about to be closed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        position = 0
        try:
            while position < self._length:
                end = self._await_allowance(position)
                if end is None:
                    return
                block = read_at(self._descriptor, min(READ_BYTES, end - position), position)
                self._hash.update(block)
                position += len(block)
        except SluiceError as error:
            self._error = error

    def _await_allowance(self, position: int) -> int | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._allowed > position)
            return None if self._is_closed else self._allowed
