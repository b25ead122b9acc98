"""Where the media of a film is read: the file that its index is about."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO

from app.domain.errors import UploadGone
from app.domain.lifecycle import UploadState
from app.domain.ranges import ByteRange
from app.domain.upload import Upload
from app.media.film.folder import MadeFiles
from app.media.index.boxes import ReadAt
from app.media.index.virtual_file import Piece
from app.storage.base import BytesLost, Store

REMUXED = "source.mp4"
"""In the folder of a video: the same media as in an original that cannot be indexed."""

BLOCK_BYTES = 1 << 20


class MediaSource:
    """Opens the file, wherever it is."""

    def __init__(self, store: Store, folder: MadeFiles) -> None:
        self._store = store
        self._folder = folder

    def open(self, video: Upload) -> RawIOBase:
        """The remuxed film if there is one, else the original; raises `UploadGone`.

        An upload that has not arrived yet is read where it is received: what is missing of it
        reads as zeros.
        """
        with suppress(FileNotFoundError):
            return self._folder.open(video.id, REMUXED)[1]
        if video.state is not UploadState.COMPLETE:
            with suppress(BytesLost):  # Published since the record was read.
                return self._store.staging.open(video.id)
        try:
            return self._store.library.open(video.id, ByteRange(0, 0))
        except FileNotFoundError as error:
            raise UploadGone("The file of this video is no longer there.") from error


def reader(file: RawIOBase) -> Callable[[int, int], bytes]:
    """Reads from an offset so many bytes of an open file; fewer at its end."""

    def read_at(offset: int, count: int) -> bytes:
        file.seek(offset)
        blocks = []
        while count > 0 and (block := file.read(count)):
            blocks.append(block)
            count -= len(block)
        return b"".join(blocks)

    return read_at


def copy_pieces(pieces: Iterable[Piece], read_at: ReadAt, target: BinaryIO) -> None:
    """Write pieces of a file that `read_at` reads from, a block at a time."""
    for piece in pieces:
        if not isinstance(piece, ByteRange):
            target.write(piece)
            continue
        starts = range(piece.start, piece.end, BLOCK_BYTES)
        target.writelines(read_at(at, min(BLOCK_BYTES, piece.end - at)) for at in starts)


def length_of(file: RawIOBase) -> int:
    """Bytes in an open file."""
    return file.seek(0, os.SEEK_END)


def path_of(file: RawIOBase) -> Path:
    """Where another program finds an open file, which is on a disk of this machine."""
    return Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))
