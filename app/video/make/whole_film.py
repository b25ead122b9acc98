"""Puts a whole film together: the segments of a rung, and the film's sound as it is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from app.core.jobs import JobFailed
from app.video.index.boxes import ReadAt
from app.video.index.entries import MAX_ENTRIES
from app.video.index.errors import NotIndexable
from app.video.index.interleaved import interleaved, moved
from app.video.index.movie import read_movie
from app.video.index.tracks import Track
from app.video.make.rung_maker import SEGMENTS_LOST, TOO_LARGE, RungMaker
from app.video.serve.browsers import plays_audio, plays_segmented_audio
from app.video.serve.film_files import SOUND_FILE, encoded_sounds
from app.video.serve.rungs import initialization_file, segment_file
from app.video.serve.source import copy_pieces, reader


@dataclass(frozen=True, slots=True)
class RenditionFile:
    """All segments of a rung but those left out, and the film's sound; not written yet."""

    tracks: Sequence[Track]
    read_at: ReadAt

    @classmethod
    def of(cls, maker: RungMaker) -> Self:
        """Raises `JobFailed` if a segment is missing."""
        files, numbers = _Joined(), _numbers(maker)
        with _as_lost():
            for name in _names(maker, numbers):
                files.add(*_readable(maker, name))
            picture = read_movie(files.read_at, files.length, most_entries=MAX_ENTRIES).picture
            if picture is None:
                raise FileNotFoundError
            begin = maker.cuts.starts[numbers[0] - 1]
            found = cls([_begun(picture, begin), *_sounds(maker, files)], files.read_at)
        if found.size > files.length:  # Samples may overlap in a hostile film.
            problem = "The sound of the film would take more room than the film itself."
            raise JobFailed(TOO_LARGE, problem, is_final=True)
        return found

    @property
    def size(self) -> int:
        """Bytes that it takes on the disk, besides its index."""
        return sum(sum(track.samples.sizes) for track in self.tracks)

    def write(self, made: Path, beat: Callable[[], None]) -> None:
        """Write it; `beat` is called often, and may raise."""

        def read_at(offset: int, count: int) -> bytes:
            beat()
            return self.read_at(offset, count)

        with _as_lost(), made.open("xb") as target:
            copy_pieces(interleaved(self.tracks, self.tracks[0].timescale), read_at, target)


@contextmanager
def _as_lost() -> Iterator[None]:
    try:
        yield
    except (NotIndexable, FileNotFoundError) as error:
        raise JobFailed(*SEGMENTS_LOST) from error


def _begun(picture: Track, begin: int) -> Track:
    """The picture from its tick `begin` of the film on; what is read of fragments begins at 0."""
    timeline = replace(picture.timeline, shift=picture.timeline.shift + begin)
    return replace(picture, timeline=timeline)


def _sounds(maker: RungMaker, files: _Joined) -> Iterator[Track]:
    """The film's sound, encoded where browsers do not play it; adds the files that it is in."""
    encoded = encoded_sounds(maker.movie, maker.tools.folder, maker.video_id)
    start = files.add(maker.read_at, maker.movie.length)
    others_start = files.add(*_readable(maker, SOUND_FILE)) if encoded else 0
    for track in maker.movie.sounds:
        if plays_segmented_audio(track.codec):
            yield moved(track, start)
        elif other := encoded.get(track.id):
            yield moved(other, others_start)
        elif plays_audio(track.codec):
            yield moved(track, start)


def _numbers(maker: RungMaker) -> list[int]:
    """The segments that the film consists of."""
    wanted = range(1, len(maker.cuts) + 1)
    numbers = [number for number in wanted if maker.has(number)]
    if not numbers or not maker.left_out.issuperset(set(wanted).difference(numbers)):
        raise JobFailed(*SEGMENTS_LOST)
    return numbers


def _names(maker: RungMaker, numbers: Iterable[int]) -> list[str]:
    quality = maker.rung.quality
    return [initialization_file(quality), *(segment_file(quality, number) for number in numbers)]


def _readable(maker: RungMaker, name: str) -> tuple[ReadAt, int]:
    """A function that reads a made file, and the file's length in bytes.

    It opens the file for each read, since a film has thousands of segments.
    """
    folder = maker.tools.folder
    found = folder.find(maker.video_id, name)
    if found is None:
        raise FileNotFoundError(name)

    def read_at(offset: int, count: int) -> bytes:
        _, file = folder.open(maker.video_id, name)
        with closing(file):
            return reader(file)(offset, count)

    return read_at, found.length


class _Joined:
    """Files one after the other, as one space of bytes."""

    def __init__(self) -> None:
        self._files: list[ReadAt] = []
        self._starts: list[int] = []
        self.length = 0

    def add(self, read_at: ReadAt, length: int) -> int:
        """Add a file at the end; where it begins."""
        self._files.append(read_at)
        self._starts.append(self.length)
        self.length += length
        return self._starts[-1]

    def read_at(self, offset: int, count: int) -> bytes:
        """So many bytes, which may be of several files."""
        found = b""
        while count > 0 and offset < self.length:
            place = bisect_right(self._starts, offset) - 1
            end = self._starts[place + 1] if place + 1 < len(self._starts) else self.length
            block = self._files[place](offset - self._starts[place], min(count, end - offset))
            if not block:
                break
            found, offset, count = found + block, offset + len(block), count - len(block)
        return found
