"""Opens the media file of a video: the file that its index refers to."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache, partial
from io import FileIO, RawIOBase
from pathlib import Path
from typing import BinaryIO

from app.core.errors import ServerBusy, UploadGone
from app.core.jobs import JobFailed
from app.core.lifecycle import UploadState
from app.core.playback import Made
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId
from app.storage.base import BytesLost, Store
from app.storage.local.folder import disk_errors
from app.video.index.boxes import ReadAt
from app.video.index.movie import Movie, read_movie
from app.video.index.virtual_file import Piece
from app.video.serve.derived_files import DerivedFiles

REMUXED = "source.mp4"
"""In the folder of a video: a remuxed copy of an original that cannot be indexed."""

BLOCK_BYTES = 1 << 20

ENDS_BYTES = 32 << 20
"""Bytes copied of the start and of the end of a file, where containers store metadata."""

TOO_LARGE = "larger_than_spool"
"""Code of a job that fails as its video may not be copied."""


class MediaSource:
    """Opens a video's file, on disk or in a bucket.

    For files in a bucket, programs get local copies of at most `most_copied_bytes` at a time.
    """

    def __init__(self, store: Store, files: DerivedFiles, *, most_copied_bytes: int = 0) -> None:
        self._store = store
        self._files = files
        self._free_bytes = self._most_bytes = most_copied_bytes
        self._changing = threading.Lock()

    def open(self, video: Upload) -> RawIOBase:
        """Opens the remuxed file if there is one, else the original; raises `UploadGone`.

        An incomplete upload is read from staging: missing parts read as zeros.
        """
        if self._files.find(video.id, REMUXED) is not None:
            with suppress(FileNotFoundError):
                return self._files.open(video.id, REMUXED)[1]
        return self._original(video)

    def open_found(self, video: Upload, remuxed: Made | None) -> RawIOBase:
        """The same file as was found; raises `FileNotFoundError` if it was replaced since."""
        return self._original(video) if remuxed is None else self._files.open_version(remuxed)

    def _original(self, video: Upload) -> RawIOBase:
        if video.state is not UploadState.COMPLETE:
            with suppress(BytesLost):  # Published since the record was read.
                return self._store.staging.open(video.id)
        try:
            return self._store.library.open(video.id, ByteRange(0, 0))
        except FileNotFoundError as error:
            raise UploadGone("The file of this video is no longer there.") from error

    def beginning(self, upload_id: UploadId, count: int) -> bytes:
        """The first bytes of the published original; raises `FileNotFoundError`."""
        with closing(self._store.library.open(upload_id, ByteRange(0, 0))) as file:
            return read_fully(file, 0, count)

    @contextmanager
    def on_disk(
        self, file: RawIOBase, on_block: Callable[[], None], *, only_ends: bool = False
    ) -> Iterator[Path]:
        """Path of an open file on this machine, for programs that can only read files.

        Of a file in a bucket it is a copy, in a scratch folder that is removed at the end; with
        `only_ends` a sparse one, of the same length, that has only the start and end of the file.
        `on_block` is called often during the copy, and may raise. Raises `JobFailed` for a file too
        large to ever be copied, `ServerBusy` while other copies use the space, and `NoRoom`.
        """
        if isinstance(file, FileIO):
            yield Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))
            return
        length = length_of(file)
        spans = [ByteRange(0, length)]
        if only_ends:
            begin = ByteRange(0, min(ENDS_BYTES, length))
            spans = [begin, ByteRange(max(begin.end, length - ENDS_BYTES), length)]
        size = sum(span.length for span in spans)
        with self._room(size), self._files.scratch.folder(size) as scratch:
            path = scratch / "video"
            with disk_errors(), path.open("xb") as target:
                target.truncate(length)
                for span in spans:
                    file.seek(span.start)
                    target.seek(span.start)
                    left = span.length
                    while left > 0 and (block := file.read(min(BLOCK_BYTES, left))):
                        on_block()
                        target.write(block)
                        left -= len(block)
            yield path

    @contextmanager
    def _room(self, size: int) -> Iterator[None]:
        if size > self._most_bytes:
            problem = (
                f"The video has {size / 1e9:.1f} GB, and a server may copy "
                f"{self._most_bytes / 1e9:.1f} GB of videos to its disk at a time "
                "(SLUICE_SPOOL_BYTES), which this needs."
            )
            raise JobFailed(TOO_LARGE, problem, is_final=True)
        with self._changing:
            if size > self._free_bytes:
                raise ServerBusy("Copies of other videos take the space that this one needs.")
            self._free_bytes -= size
        try:
            yield
        finally:
            with self._changing:
                self._free_bytes += size


def reader(file: RawIOBase) -> ReadAt:
    """Returns a function that reads bytes of an open file at an offset; fewer at its end."""
    if isinstance(file, FileIO):
        return partial(read_fully, file)
    return Blocks(file).read_at


def copy_pieces(pieces: Iterable[Piece], read_at: ReadAt, target: BinaryIO) -> None:
    """Write pieces to `target`, block by block; `read_at` reads their source."""
    for piece in pieces:
        if not isinstance(piece, ByteRange):
            target.write(piece)
            continue
        starts = range(piece.start, piece.end, BLOCK_BYTES)
        target.writelines(read_at(at, min(BLOCK_BYTES, piece.end - at)) for at in starts)


def length_of(file: RawIOBase) -> int:
    """Size of an open file in bytes."""
    return file.seek(0, os.SEEK_END)


# ---- blocks --------------------------------------------------------------------------------------

# Reads a remote file in blocks, and caches the last few.


CACHED_BLOCK_BYTES = 256 * 1024
"""Indexes are read in pieces of a few bytes to a few hundred KiB, mostly near each other."""

KEPT_BLOCKS = 16


class Blocks:
    """A reader of a file in a bucket; long reads bypass the cached blocks."""

    def __init__(self, file: RawIOBase) -> None:
        self._file = file
        # Not a bound method: the cycle would keep 4 MB until the next garbage collection.
        self._block = lru_cache(KEPT_BLOCKS)(partial(_read_block, file))

    def read_at(self, offset: int, count: int) -> bytes:
        """Reads `count` bytes; fewer at the end of the file."""
        if count > CACHED_BLOCK_BYTES:
            return read_fully(self._file, offset, count)
        found, end = b"", offset + count
        while offset < end:
            number, skipped = divmod(offset, CACHED_BLOCK_BYTES)
            piece = self._block(number)[skipped : skipped + end - offset]
            if not piece:
                break
            found, offset = found + piece, offset + len(piece)
        return found


def _read_block(file: RawIOBase, number: int) -> bytes:
    return read_fully(file, number * CACHED_BLOCK_BYTES, CACHED_BLOCK_BYTES)


def read_fully(file: RawIOBase, offset: int, count: int) -> bytes:
    """Reads `count` bytes at an offset, in as many reads as needed; fewer at the end."""
    file.seek(offset)
    blocks = []
    while count > 0 and (block := file.read(count)):
        blocks.append(block)
        count -= len(block)
    return b"".join(blocks)


# ---- parsed movies -------------------------------------------------------------------------------

# Cache of the last movie: the steps of a video follow each other, and each needs its index.


MOST_KEPT_SAMPLES = 600_000
"""Of all tracks, as stored and as played: two hours, in 15 MB. A longer movie is not cached."""

MOST_KEPT_BYTES = 16 << 20
"""Maximum size of its `moov` box."""


class ParsedMovies:
    """Reads movies, and caches the last one while its file does not change.

    Movies in a bucket are not cached.
    """

    def __init__(self) -> None:
        self._last: tuple[object, Movie] | None = None

    def read(self, file: RawIOBase, *, most_entries: int) -> tuple[Movie, ReadAt]:
        """The movie in an open file, and a reader of the file; raises like `read_movie`."""
        read_at, key, last = reader(file), None, self._last
        if isinstance(file, FileIO):
            found = os.fstat(file.fileno())
            key = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
        if last is not None and key is not None and last[0] == key:
            return last[1], read_at
        movie = read_movie(read_at, length_of(file), most_entries=most_entries)
        distinct = {id(track): track for track in (*movie.stored_tracks, *movie.tracks)}
        samples = sum(len(track.samples) for track in distinct.values())
        is_small = samples <= MOST_KEPT_SAMPLES and len(movie.box.raw) <= MOST_KEPT_BYTES
        if key is not None and is_small:
            self._last = key, movie
        return movie, read_at
