"""Checksums of bytes as they pass: hashlib's algorithms, CRC-32 and CRC32C."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import new as new_hash
from io import RawIOBase
from typing import Protocol
from zlib import crc32

from crc32c import crc32c

from app.core.errors import StorageFailed
from app.ingest.stages import Stage

ALGORITHMS = ("md5", "sha1", "sha256", "sha384", "sha512", "crc32", "crc32c")
"""Algorithms of `new_checksum`. The weak ones are only for detecting damage in transit."""


READ_BYTES = 1024 * 1024


class FileTooShort(StorageFailed):
    """A file on the disk is shorter than its known length."""


class Checksum(Protocol):
    """A checksum in progress, as hashlib has them."""

    @property
    def digest_size(self) -> int:
        """Length of the digest in bytes."""
        ...

    def update(self, data: memoryview, /) -> None:
        """Add bytes."""
        ...

    def digest(self) -> bytes:
        """The sum of the bytes so far."""
        ...


class Crc32:
    """The CRC-32 of zlib and Ethernet; its digest is big-endian."""

    digest_size = 4

    def __init__(self) -> None:
        self._sum = 0

    def update(self, data: memoryview, /) -> None:
        """Add bytes."""
        self._sum = crc32(data, self._sum)

    def digest(self) -> bytes:
        """The sum of the bytes so far."""
        return self._sum.to_bytes(self.digest_size, "big")


class Crc32c:
    """Castagnoli's CRC, of iSCSI, ext4 and S3; its digest is big-endian."""

    digest_size = 4

    def __init__(self) -> None:
        self.value = 0

    def update(self, data: memoryview, /) -> None:
        """Add bytes."""
        self.value = crc32c(data, self.value)

    def digest(self) -> bytes:
        """The sum of the bytes so far."""
        return self.value.to_bytes(self.digest_size, "big")


def new_checksum(algorithm: str) -> Checksum:
    """Create a checksum; raises `ValueError` unless `algorithm` is one of `ALGORITHMS`."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"unknown checksum algorithm {algorithm!r}")
    own = _OWN.get(algorithm)
    return own() if own else new_hash(algorithm, usedforsecurity=False)


_OWN: dict[str, type[Crc32 | Crc32c]] = {"crc32": Crc32, "crc32c": Crc32c}


def is_comparable(digest: str) -> bool:
    """Whether `digest_of` can compute a digest like this one, such as "sha256:1f2e..."."""
    algorithm, _, hexadecimal = digest.partition(":")
    try:
        value = bytes.fromhex(hexadecimal)
        return len(value) == new_checksum(algorithm).digest_size and value.hex() == hexadecimal
    except ValueError:
        return False


def digest_of(file: RawIOBase, algorithm: str, length: int, *, read_bytes: int = READ_BYTES) -> str:
    """The digest, in hexadecimal, of the next `length` bytes of a file; raises as `digests_of`."""
    return digests_of(file, [algorithm], length, read_bytes=read_bytes)[0]


def digests_of(
    file: RawIOBase, algorithms: Sequence[str], length: int, *, read_bytes: int = READ_BYTES
) -> list[str]:
    """Digests, in hexadecimal, of the next `length` bytes of a file, which is read once.

    Raises `FileTooShort` where there are fewer, and `StorageFailed` where the disk fails.
    """
    checksums = [new_checksum(algorithm) for algorithm in algorithms]
    buffer = memoryview(bytearray(read_bytes))
    missing = length
    with Stage.HASH:
        while missing:
            try:
                count = file.readinto(buffer[: min(missing, read_bytes)])
            except OSError as error:
                raise StorageFailed(
                    f"The disk failed to read the file: {error.strerror}."
                ) from error
            if not count:
                raise FileTooShort(f"The file has only {length - missing} of {length} bytes.")
            for checksum in checksums:
                checksum.update(buffer[:count])
            missing -= count
    return [checksum.digest().hex() for checksum in checksums]
