"""The file to send: its name, its fingerprint, its bytes in slices."""

from __future__ import annotations

import errno
import hashlib
import os
import select
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluice_client.errors import FileChanged, FileProblem, Interrupted
from sluice_client.spans import Span

READ_BYTES = 256 * 1024

SEND_BYTES = 1024 * 1024
"""What is sent at once without reading it; progress is shown as often."""

UNFIT_FOR_SENDFILE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO}
"""Some file systems cannot send from the page cache, and a disk that fails says so when read."""

UNFIT_BYTES = 64 * 1024
"""Small enough to be sent within the timeout on a slow connection."""

SAMPLE_BYTES = 64 * 1024
SAMPLES = 8
"""The fingerprint reads this much of a file, spread over its length, and not all of a recording of
40 GB. Two recordings of one size, time and name that differ only between the samples are told
apart by the SHA-256 at the end."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A regular file as it was when its upload began. `name` is its name on the server."""

    path: Path
    name: str
    size: int
    modified_ns: int
    inode: int

    @classmethod
    def at(cls, path: Path, name: str | None = None) -> LocalFile:
        """The file at that path; raises `FileProblem` unless it is a regular one."""
        try:
            facts = path.stat()
        except OSError as error:
            raise FileProblem(f"{path}: {error.strerror}") from error
        if not stat.S_ISREG(facts.st_mode):
            raise FileProblem(f"{path}: {_kind(facts.st_mode)}")
        return cls(path, name or path.name, facts.st_size, facts.st_mtime_ns, facts.st_ino)

    @contextmanager
    def open(self) -> Iterator[int]:
        """A descriptor to read from; raises `FileProblem`."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise FileProblem(f"{self.path}: {error.strerror}") from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def check_unchanged(self) -> None:
        """Raise `FileChanged` if the file is no longer what it was."""
        try:
            facts = self.path.stat()
        except OSError as error:
            raise FileChanged(f"{self.path} is gone: {error.strerror}") from error
        now = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
        if now != (self.size, self.modified_ns, self.inode):
            raise FileChanged(f"{self.path} changed while it was sent.")

    def fingerprint(self, descriptor: int) -> str:
        """The same for the same file under the same name, on every run and every machine."""
        digest = hashlib.sha256(self.name.encode("utf-8", "surrogateescape"))
        step = max(SAMPLE_BYTES, (self.size - SAMPLE_BYTES) // (SAMPLES - 1))
        for start in range(0, self.size, step):
            digest.update(os.pread(descriptor, SAMPLE_BYTES, start))
        return f"client1-{self.size}-{self.modified_ns}-{digest.hexdigest()[:40]}"


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return f"is {kinds.get(stat.S_IFMT(mode), 'special')}, not a file with a size of its own"


class FileSlice:
    """A span of an open file as the body of a request; holds none of it in memory.

    `on_sent` gets the size of each block as it is sent; once `is_over`, no more are.
    """

    def __init__(
        self,
        descriptor: int,
        span: Span,
        *,
        is_over: Callable[[], bool],
        on_sent: Callable[[int], None],
    ) -> None:
        self._descriptor = descriptor
        self._span = span
        self._position = span.start
        self._is_over = is_over
        self._on_sent = on_sent

    def __len__(self) -> int:
        return self._span.length

    def __iter__(self) -> Iterator[bytes]:
        """Makes `requests` stream the body; it then calls `read`."""
        while block := self.read(READ_BYTES):
            yield block

    def send_to(self, connection: socket.socket) -> None:
        """Send everything from the page cache: the bytes do not pass through this program.

        Raises as `read` does, `TimeoutError` if the connection takes nothing for its timeout, and
        `OSError` if it breaks.
        """
        writable = select.poll()
        writable.register(connection, select.POLLOUT)
        seconds = connection.gettimeout()
        while self._position < self._span.end:
            if self._is_over():
                raise Interrupted("Stopped while sending.")
            wanted = min(SEND_BYTES, self._span.end - self._position)
            try:
                sent = os.sendfile(connection.fileno(), self._descriptor, self._position, wanted)
            except BlockingIOError:
                if not writable.poll(None if seconds is None else seconds * 1000):
                    raise TimeoutError("timed out") from None
                continue
            except OSError as error:
                if error.errno not in UNFIT_FOR_SENDFILE:
                    raise
                connection.sendall(self.read(UNFIT_BYTES))  # Or `read` says what is wrong.
                continue
            if not sent:
                raise _ended_at(self._position)
            self._position += sent
            self._on_sent(sent)

    def read(self, size: int = READ_BYTES) -> bytes:
        """The next bytes. Raises `Interrupted`, or `FileChanged` if the file ends early."""
        if self._is_over():
            raise Interrupted("Stopped while sending.")
        wanted = min(size, self._span.end - self._position)
        if wanted <= 0:
            return b""
        block = read_at(self._descriptor, wanted, self._position)
        self._position += len(block)
        self._on_sent(len(block))
        return block


def read_at(descriptor: int, size: int, position: int) -> bytes:
    """Some bytes, never none; raises `FileChanged` at the end of the file, or `FileProblem`."""
    try:
        block = os.pread(descriptor, size, position)
    except OSError as error:
        raise _unreadable(position, error) from error
    if not block:
        raise _ended_at(position)
    return block


def read_into(descriptor: int, buffer: memoryview, position: int) -> memoryview:
    """The part of the buffer that was filled; raises as `read_at` does."""
    try:
        count = os.preadv(descriptor, [buffer], position)
    except OSError as error:
        raise _unreadable(position, error) from error
    if not count:
        raise _ended_at(position)
    return buffer[:count]


def _unreadable(position: int, error: OSError) -> FileProblem:
    return FileProblem(f"The file cannot be read at byte {position}: {error.strerror}")


def _ended_at(position: int) -> FileChanged:
    return FileChanged(f"The file ends at byte {position}: it became shorter.")
