"""Checksums, against published test vectors."""

import errno
import hashlib
from io import BytesIO, FileIO
from pathlib import Path
from zlib import crc32

import pytest

from app.core.errors import DigestMismatch, StorageFailed
from app.ingest.checksum import ALGORITHMS, FileTooShort, digest_of, new_checksum
from app.ingest.source import DigestSource, HashingSource, StreamSource
from tests.storage.sources import pattern

VECTORS = {
    # RFC 1321 (A.5), RFC 3174 (7.3), FIPS 180-4, and the check value of CRC-32/ISO-HDLC.
    ("md5", b"abc"): "900150983cd24fb0d6963f7d28e17f72",
    ("sha1", b"abc"): "a9993e364706816aba3e25717850c26c9cd0d89d",
    ("sha256", b"abc"): "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    ("crc32", b"123456789"): "cbf43926",
    ("crc32", b""): "00000000",
    ("crc32", b"a"): "e8b7be43",
    ("crc32", b"\0" * 4): "2144df1c",
    ("md5", b""): "d41d8cd98f00b204e9800998ecf8427e",
}


@pytest.mark.parametrize(("given", "expected"), VECTORS.items())
def test_checksums_match_known_values(given: tuple[str, bytes], expected: str) -> None:
    algorithm, data = given
    found = new_checksum(algorithm)
    found.update(memoryview(data))
    assert found.digest().hex() == expected
    assert found.digest_size == len(expected) // 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("step", [1, 7, 250, 1000])
def test_the_checksum_does_not_depend_on_the_pieces(algorithm: str, step: int) -> None:
    data, whole, pieces = pattern(0, 1000), new_checksum(algorithm), new_checksum(algorithm)
    whole.update(memoryview(data))
    for start in range(0, len(data), step):
        pieces.update(memoryview(data)[start : start + step])
    assert pieces.digest() == whole.digest()
    assert len(whole.digest()) == whole.digest_size


def test_a_crc_is_four_bytes_big_endian() -> None:
    found = new_checksum("crc32")
    found.update(memoryview(pattern(0, 5000)))
    assert int.from_bytes(found.digest(), "big") == crc32(pattern(0, 5000))


@pytest.mark.parametrize("name", ["", "SHA256", "sha-256", "shake_128", "blake2b", "crc32-c"])
def test_other_algorithm_names_are_unknown(name: str) -> None:
    with pytest.raises(ValueError, match="unknown checksum"):
        new_checksum(name)


@pytest.mark.parametrize("length", [0, 1, 999, 1000, 1900])
def test_the_digest_of_a_file_covers_its_next_bytes(tmp_path: Path, length: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(pattern(0, 2000))
    with FileIO(path) as file:
        file.seek(100)
        found = digest_of(file, "sha256", length, read_bytes=64)
    assert found == hashlib.sha256(pattern(100, 100 + length)).hexdigest()


def test_too_few_bytes_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(pattern(0, 1999))
    with FileIO(path) as file, pytest.raises(FileTooShort, match="1999 of 2000"):
        digest_of(file, "sha256", 2000)


def test_an_unreadable_disk_is_a_storage_error(tmp_path: Path) -> None:
    with FileIO(tmp_path / "written", "w") as unreadable, pytest.raises(StorageFailed):
        digest_of(_Failing(unreadable.fileno(), closefd=False), "sha256", 10)


class _Failing(FileIO):
    def readinto(self, _buffer: object) -> int:
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_source_is_checked_against_its_digest(algorithm: str) -> None:
    right = new_checksum(algorithm)
    right.update(memoryview(b"some bytes"))
    wrong = bytes([right.digest()[0] ^ 1]) + right.digest()[1:]
    read_all(DigestSource(StreamSource(BytesIO(b"some bytes"), 10), algorithm, right.digest()))
    for expected in (wrong, b"", right.digest()[:-1]):
        source = DigestSource(StreamSource(BytesIO(b"some bytes"), 10), algorithm, expected)
        with pytest.raises(DigestMismatch):
            read_all(source)


def test_a_source_returns_the_checksum_of_what_was_read() -> None:
    source = HashingSource(StreamSource(BytesIO(b"some bytes"), 10))
    source.readinto(memoryview(bytearray(4)))
    assert source.hexdigest() == hashlib.sha256(b"some").hexdigest()
    assert source.remaining == 6


def read_all(source: HashingSource) -> None:
    buffer = memoryview(bytearray(3))
    while source.readinto(buffer):
        pass
    source.finish()
