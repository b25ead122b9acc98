"""Makes real files of what the index only describes, so that ffmpeg can read them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from app.core.ranges import ByteRange
from app.video.index.fast_start import fast_start
from app.video.index.movie import Movie, read_movie
from app.video.index.segments import SegmentedTrack
from app.video.index.virtual_file import Piece
from app.video.serve.source import reader


def indexed(path: Path) -> Movie:
    """The movie in a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_movie(
            lambda offset, count: os.pread(descriptor, count, offset), path.stat().st_size
        )
    finally:
        os.close(descriptor)


def play_file(path: Path) -> Iterator[Piece]:
    """The pieces of a movie with its index first."""
    with path.open("rb", buffering=0) as file:
        read_at = reader(file)
        yield from fast_start(read_movie(read_at, path.stat().st_size), read_at)


def write(pieces: Iterable[Piece], source: Path, target: Path) -> Path:
    """A file of the pieces; the ranges among them are of `source`."""
    with source.open("rb") as original, target.open("wb") as file:
        for piece in pieces:
            if isinstance(piece, ByteRange):
                original.seek(piece.start)
                file.write(original.read(piece.length))
            else:
                file.write(piece)
    return target


def write_segments(segmented: SegmentedTrack, source: Path, target: Path) -> Path:
    """The initialization segment and all others, as one file."""
    pieces = (piece for segment in segmented.segments() for piece in segment.pieces)
    return write([segmented.initialization, *pieces], source, target)
