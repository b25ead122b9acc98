"""Where the media of a film is read: the file that its index is about."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from io import FileIO, RawIOBase
from pathlib import Path
from typing import BinaryIO

from app.core.errors import UploadGone
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId
from app.storage.base import BytesLost, Store
from app.video.index.boxes import ReadAt
from app.video.index.virtual_file import Piece
from app.video.serve.blocks import Blocks, read_fully
from app.video.serve.film_copies import FilmCopies
from app.video.serve.folder import MediaFolder

REMUXED = "source.mp4"
"""In the folder of a video: the same media as in an original that cannot be indexed."""

BLOCK_BYTES = 1 << 20


class MediaSource:
    """Opens a video's file, on disk or in a bucket.

    Where it is in a bucket, programs get copies that take `most_copied_bytes` at a time.
    """

    def __init__(self, store: Store, folder: MediaFolder, *, most_copied_bytes: int = 0) -> None:
        self._store = store
        self._folder = folder
        self._copies = FilmCopies(folder, most_copied_bytes)

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

    def beginning(self, upload_id: UploadId, count: int) -> bytes:
        """The first bytes of a published file, as it was sent; raises `FileNotFoundError`."""
        with closing(self._store.library.open(upload_id, ByteRange(0, 0))) as file:
            return read_fully(file, 0, count)

    @contextmanager
    def on_disk(self, file: RawIOBase, tell: Callable[[], None]) -> Iterator[Path]:
        """Path of an open file on this machine, for another program; may be a copy.

        Raises as `FilmCopies.whole` does.
        """
        if isinstance(file, FileIO):
            yield _path_of(file)
        else:
            with self._copies.whole(file, tell) as path:
                yield path

    @contextmanager
    def ends_on_disk(self, file: RawIOBase, tell: Callable[[], None]) -> Iterator[Path]:
        """The same; a copy may have only the film's beginning and end."""
        if isinstance(file, FileIO):
            yield _path_of(file)
        else:
            with self._copies.ends(file, tell) as path:
                yield path


def reader(file: RawIOBase) -> ReadAt:
    """Reads from an offset so many bytes of an open file; fewer at its end."""
    if isinstance(file, FileIO):
        return partial(read_fully, file)
    return Blocks(file).read_at


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


def _path_of(file: FileIO) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))
