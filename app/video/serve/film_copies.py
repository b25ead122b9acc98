"""Local copies of films in a bucket, for programs that can only read files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO

from app.core.errors import ServerBusy
from app.core.jobs import JobFailed
from app.core.ranges import ByteRange
from app.storage.local.folder import disk_errors
from app.video.serve.folder import MediaFolder

READ_BYTES = 1 << 20

ENDS_BYTES = 32 << 20
"""Bytes copied of each end of a film, where containers keep their metadata."""

TOO_LARGE = "larger_than_spool"


class FilmCopies:
    """Holds at most `most_bytes` at a time, in scratch folders that are removed after use."""

    def __init__(self, folder: MediaFolder, most_bytes: int) -> None:
        self._folder = folder
        self._free_bytes = self._most_bytes = most_bytes
        self._changing = threading.Lock()

    @contextmanager
    def whole(self, film: RawIOBase, tell: Callable[[], None]) -> Iterator[Path]:
        """A copy of a film; `tell` is called often while it is made, and may raise.

        Raises `JobFailed` for a film that can never be copied, `ServerBusy` while others take
        the room, and `NoRoom`.
        """
        length = film.seek(0, os.SEEK_END)
        with self._copied(film, length, [ByteRange(0, length)], tell) as path:
            yield path

    @contextmanager
    def ends(self, film: RawIOBase, tell: Callable[[], None]) -> Iterator[Path]:
        """A file as long as the film, with only the beginning and the end filled in."""
        length = film.seek(0, os.SEEK_END)
        begin = ByteRange(0, min(ENDS_BYTES, length))
        end = ByteRange(max(begin.end, length - ENDS_BYTES), length)
        with self._copied(film, length, [begin, end], tell) as path:
            yield path

    @contextmanager
    def _copied(
        self, film: RawIOBase, length: int, spans: list[ByteRange], tell: Callable[[], None]
    ) -> Iterator[Path]:
        size = sum(span.length for span in spans)
        with self._room(size), self._folder.scratch_folder(size) as scratch:
            path = scratch / "film"
            with disk_errors(), path.open("xb") as target:
                target.truncate(length)
                for span in spans:
                    _copy(film, span, target, tell)
            yield path

    @contextmanager
    def _room(self, size: int) -> Iterator[None]:
        if size > self._most_bytes:
            raise JobFailed(TOO_LARGE, _too_large(size, self._most_bytes), is_final=True)
        with self._changing:
            if size > self._free_bytes:
                raise ServerBusy("Copies of other films take the room that this one needs.")
            self._free_bytes -= size
        try:
            yield
        finally:
            with self._changing:
                self._free_bytes += size


def _copy(film: RawIOBase, span: ByteRange, target: BinaryIO, tell: Callable[[], None]) -> None:
    film.seek(span.start)
    target.seek(span.start)
    left = span.length
    while left > 0 and (block := film.read(min(READ_BYTES, left))):
        tell()
        target.write(block)
        left -= len(block)


def _too_large(size: int, most: int) -> str:
    return (
        f"The film has {size / 1e9:.1f} GB, and a server may copy {most / 1e9:.1f} GB of films to "
        "its disk at a time (SLUICE_SPOOL_BYTES), which this needs."
    )
