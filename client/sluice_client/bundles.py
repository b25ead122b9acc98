"""Small files as one multipart request, streamed from the disk."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from sluice_client.errors import FileChanged, Interrupted
from sluice_client.hashing import FileHash, in_transit
from sluice_client.local_file import READ_BYTES, LocalFile, read_at

BUNDLE_BYTES = 16 * 1024 * 1024
BUNDLE_FILES = 100
"""A dropped connection costs at most one bundle; bundles are small enough to occupy several
connections."""


@dataclass(slots=True)
class Bundle:
    """Files for one request, and the checksums of those that were read to their end."""

    files: list[LocalFile]
    checksums: dict[LocalFile, FileHash] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    def halves(self) -> list[Bundle]:
        """Two smaller ones."""
        middle = len(self.files) // 2
        return [Bundle(self.files[:middle]), Bundle(self.files[middle:])]


def make_bundles(files: Iterable[LocalFile]) -> list[Bundle]:
    """All files, in order, in bundles of bounded size and number."""
    bundles: list[Bundle] = []
    for file in files:
        last = bundles[-1] if bundles else None
        if (
            last is None
            or len(last.files) >= BUNDLE_FILES
            or (last.size + file.size > BUNDLE_BYTES)
        ):
            last = Bundle([])
            bundles.append(last)
        last.files.append(file)
    return bundles


class BundleBody:
    """The multipart body of a bundle, each file after its fingerprint and its length.

    Holds one block of one file in memory.
    """

    def __init__(
        self,
        bundle: Bundle,
        fingerprints: Mapping[LocalFile, str],
        *,
        is_over: Callable[[], bool],
        on_sent: Callable[[int], None],
    ) -> None:
        self._bundle = bundle
        self._is_over = is_over
        self._on_sent = on_sent
        self._boundary = f"sluice-{secrets.token_hex(16)}"
        self._heads = [self._head(file, fingerprints[file]) for file in bundle.files]
        self._tail = f"--{self._boundary}--\r\n".encode()
        self._blocks = self._all_blocks()
        self._rest = b""

    @property
    def content_type(self) -> str:
        """The header that goes with the body."""
        return f"multipart/form-data; boundary={self._boundary}"

    def __len__(self) -> int:
        frames = sum(len(head) + 2 for head in self._heads) + len(self._tail)
        return self._bundle.size + frames

    def __iter__(self) -> Iterator[bytes]:
        """Makes `requests` stream the body; it then calls `read`."""
        return self._blocks

    def read(self, size: int = READ_BYTES) -> bytes:
        """The next bytes; none at the end."""
        if not self._rest:
            self._rest = next(self._blocks, b"")
        block, self._rest = self._rest[:size], self._rest[size:]
        return block

    def _all_blocks(self) -> Iterator[bytes]:
        for head, file in zip(self._heads, self._bundle.files, strict=True):
            yield head
            yield from self._file_blocks(file)
            yield b"\r\n"
        yield self._tail

    def _file_blocks(self, file: LocalFile) -> Iterator[bytes]:
        running = FileHash(in_transit())
        file.check_unchanged()
        with file.open() as descriptor:
            position = 0
            while position < file.size:
                if self._is_over():
                    raise Interrupted("Stopped while sending.")
                wanted = min(READ_BYTES, file.size - position)
                block = _read_of(file, descriptor, wanted, position)
                running.update(block)
                position += len(block)
                self._on_sent(len(block))
                yield block
        self._bundle.checksums[file] = running

    def _head(self, file: LocalFile, fingerprint: str) -> bytes:
        return (
            f'--{self._boundary}\r\nContent-Disposition: form-data; name="fingerprint"\r\n\r\n'
            f"{fingerprint}\r\n"
            f'--{self._boundary}\r\nContent-Disposition: form-data; name="length"\r\n\r\n'
            f"{file.size}\r\n"
            f'--{self._boundary}\r\nContent-Disposition: form-data; name="file"; '
            f"{_filename(file.name)}\r\nContent-Type: application/octet-stream\r\n\r\n"
        ).encode()


def _read_of(file: LocalFile, descriptor: int, wanted: int, position: int) -> bytes:
    try:
        return read_at(descriptor, wanted, position)
    except FileChanged as error:
        raise FileChanged(f"{file.path} became shorter while it was sent.") from error


def _filename(name: str) -> str:
    """The parameter with the name: as it is if it is plain ASCII, otherwise by RFC 8187."""
    if name.isascii() and name.isprintable() and not set(name) & set('"\\%'):
        return f'filename="{name}"'
    return f"filename*=UTF-8''{quote(name, safe='/')}"
