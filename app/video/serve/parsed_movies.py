"""The movie that was read last: the steps of a film follow each other, and each needs its index."""

from __future__ import annotations

import os
from io import FileIO, RawIOBase

from app.video.index.boxes import ReadAt
from app.video.index.movie import Movie, read_movie
from app.video.serve.source import length_of, reader

MOST_KEPT_SAMPLES = 600_000
"""Of all tracks, as stored and as shown: two hours, in 15 MB. A longer movie is not kept."""

MOST_KEPT_BYTES = 16 << 20
"""Of its `moov` box."""


class ParsedMovies:
    """Reads movies, and keeps the last one as long as its file does not change.

    Files in a bucket are read each time.
    """

    def __init__(self) -> None:
        self._last: tuple[object, Movie] | None = None

    def read(self, file: RawIOBase, *, most_entries: int) -> tuple[Movie, ReadAt]:
        """The movie in an open file, and what reads it; raises as `read_movie` does."""
        read_at, key, last = reader(file), _identity(file), self._last
        if last is not None and key is not None and last[0] == key:
            return last[1], read_at
        movie = read_movie(read_at, length_of(file), most_entries=most_entries)
        if key is not None and _is_small(movie):
            self._last = key, movie
        return movie, read_at


def _identity(file: RawIOBase) -> object:
    """What differs between two files, and between a file before and after a change."""
    if not isinstance(file, FileIO):
        return None
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _is_small(movie: Movie) -> bool:
    tracks = (*movie.stored_tracks, *movie.tracks)
    samples = sum(len(track.samples) for track in {id(track): track for track in tracks}.values())
    return samples <= MOST_KEPT_SAMPLES and len(movie.box.raw) <= MOST_KEPT_BYTES
