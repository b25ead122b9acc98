"""Computes the checksums of a whole file during the transfer instead of after it."""

from __future__ import annotations

import hashlib
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice_client.errors import ContentMismatch, Interrupted, SluiceError
from sluice_client.local_file import READ_BYTES, read_at

Crc32c = Callable[[bytes, int], int]
"""CRC32C of bytes after others with that CRC32C."""


def find_crc32c() -> Crc32c | None:
    """A function that continues a CRC32C over more bytes; None if `crc32c` is not installed.

    Pure Python would be a hundred times slower than a fast connection.
    """
    try:
        from crc32c import crc32c  # noqa: PLC0415 - optional
    except ImportError:
        return None
    return crc32c


def in_base64(crc32c: int) -> str:
    """As S3 and the server write it: base64 of four bytes, the highest first."""
    return b64encode(crc32c.to_bytes(4, "big")).decode()


@dataclass(frozen=True, slots=True)
class Checksums:
    """Of a whole file; `crc32c` is None where that package is not installed."""

    sha256: str
    crc32c: str | None

    def compare(self, document: Mapping[str, Any], name: str) -> bool:
        """Whether the server's document has a checksum that is known here.

        Raises `ContentMismatch` if it does not match.
        """
        here = {"SHA-256": self.sha256, "CRC32C": self.crc32c}
        there = {"SHA-256": document.get("sha256"), "CRC32C": document.get("crc32c")}
        known = [kind for kind in here if here[kind] and there[kind]]
        for kind in known:
            if here[kind] != there[kind]:
                raise ContentMismatch(
                    f"{name}: {kind} is {here[kind]} here, {there[kind]} on the server."
                )
        return bool(known)


def has_checksum(document: Mapping[str, Any]) -> bool:
    """Whether the server knows one. Files that came straight to its bucket have no SHA-256."""
    return bool(document.get("sha256") or document.get("crc32c"))


class FileHash:
    """Checksums of bytes in a row."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._crc32c = find_crc32c()
        self._value = 0

    def update(self, block: bytes) -> None:
        """The next bytes."""
        self._sha256.update(block)
        if self._crc32c is not None:
            self._value = self._crc32c(block, self._value)

    def checksums(self) -> Checksums:
        """Of all bytes so far."""
        crc32c = None if self._crc32c is None else in_base64(self._value)
        return Checksums(self._sha256.hexdigest(), crc32c)


def checksums_of(path: Path, stop: threading.Event) -> Checksums:
    """Of a file on the disk; raises `OSError`, or `Interrupted`."""
    running = FileHash()
    with path.open("rb", buffering=0) as file:
        while block := file.read(READ_BYTES):
            if stop.is_set():
                raise Interrupted("Stopped while computing the checksum.")
            running.update(block)
    return running.checksums()


class BackgroundHash:
    """Hashes a file in its own thread, never beyond the byte it may read.

    An upload lets it read slightly ahead of what is being sent, so that each byte is read from the
    disk once and from the page cache the second time. A download lets it read what has arrived.
    """

    def __init__(self, descriptor: int, length: int, stop: threading.Event) -> None:
        self._descriptor = descriptor
        self._length = length
        self._stop = stop
        self._allowed = 0
        self._hash = FileHash()
        self._error: SluiceError | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="sha256", daemon=True)
        self._thread.start()

    def allow(self, position: int) -> None:
        """Bytes before `position` may be read."""
        with self._changed:
            self._allowed = max(self._allowed, min(position, self._length))
            self._changed.notify()

    def result(self) -> Checksums:
        """The checksums, once everything is read; raises any error of reading."""
        self.allow(self._length)
        while self._thread.is_alive():
            self._thread.join(0.1)
            if self._stop.is_set():
                raise Interrupted("Stopped while computing the checksum.")
        if self._error is not None:
            raise self._error
        return self._hash.checksums()

    def close(self) -> None:
        """End the thread, whose descriptor is about to be closed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
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
