"""A new film of tracks that come from several places, as a plain MP4 file with its index first."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from app.video.index.boxes import LARGEST_32_BIT, box, children, media_header
from app.video.index.edits import Edit
from app.video.index.movie_boxes import Chunk, movie_box, sample_tables, track_box
from app.video.index.sample_entries import plain_description
from app.video.index.samples import MOST_REORDERED, Samples
from app.video.index.tracks import Track
from app.video.index.virtual_file import Piece

CHUNK_SECONDS = 1
"""Of each track before the next one follows: what a player has to read ahead."""

_FILE_TYPE = box(b"ftyp", b"isom", bytes(4), b"isomiso2avc1mp41")
_LONGEST_HEAD = 1 << 30
_DESCRIPTIONS = frozenset((b"udta", b"meta"))

Run = tuple[int, int, int]
"""The place of a track among the tracks, its first sample, and the end of its samples."""


def interleaved(tracks: Sequence[Track], timescale: int) -> Iterator[Piece]:
    """The film of these tracks, of which none is empty; its own times are in ticks of `timescale`.

    The samples of all are in one space of bytes: that of the ranges.
    """
    runs = list(_runs(tracks))
    length = sum(sum(track.samples.sizes) for track in tracks)
    header = media_header(length)
    is_wide = length > LARGEST_32_BIT - _LONGEST_HEAD

    def index(start: int) -> bytes:
        chunks = _chunks(tracks, runs, start)
        traks = (
            _track(track, chunks[place], timescale, new_id=place + 1, is_wide=is_wide)
            for place, track in enumerate(tracks)
        )
        return movie_box(timescale, max(_duration(track, timescale) for track in tracks), *traks)

    yield _FILE_TYPE + index(len(_FILE_TYPE) + len(index(0)) + len(header)) + header
    for place, first, last in runs:
        yield from tracks[place].samples.extents(first, last)


def moved(track: Track, distance: int) -> Track:
    """The track with its samples so many bytes further on."""
    offsets = array("Q", map(distance.__add__, track.samples.offsets))
    return replace(track, samples=replace(track.samples, offsets=offsets))


def _runs(tracks: Sequence[Track]) -> Iterator[Run]:
    """All samples, in the order of the file."""
    bounds = [_bounds(track.samples, CHUNK_SECONDS * track.timescale) for track in tracks]
    for stretch, place in sorted((at, place) for place, found in enumerate(bounds) for at in found):
        yield place, *bounds[place][stretch]


def _bounds(samples: Samples, ticks: int) -> Mapping[int, tuple[int, int]]:
    """The samples that are decoded in each stretch of so many ticks in which there are any."""
    firsts = [0]
    while firsts[-1] < len(samples):
        stretch = samples.decode_times[firsts[-1]] // ticks
        firsts.append(bisect_left(samples.decode_times, (stretch + 1) * ticks, firsts[-1] + 1))
    return {samples.decode_times[first] // ticks: (first, last) for first, last in pairwise(firsts)}


def _chunks(tracks: Sequence[Track], runs: Sequence[Run], start: int) -> list[list[Chunk]]:
    """Where the samples of each track are in a film whose media begins at byte `start`."""
    chunks: list[list[Chunk]] = [[] for _ in tracks]
    for place, first, last in runs:
        chunks[place].append(Chunk(start, last - first))
        start += sum(tracks[place].samples.sizes[first:last])
    return chunks


def _track(
    track: Track, chunks: Sequence[Chunk], timescale: int, *, new_id: int, is_wide: bool
) -> bytes:
    stsd = children(track.tables)[b"stsd"].payload
    description = memoryview(box(b"stsd", plain_description(stsd, track.kind)))
    duration = _duration(track, timescale)
    return track_box(
        track,
        sample_tables(description, track.samples, chunks, is_wide=is_wide),
        durations=(duration, track.samples.end),
        edits=_edits(track, duration, timescale),
        kept=_DESCRIPTIONS,
        new_id=new_id,
    )


def _edits(track: Track, duration: int, timescale: int) -> Sequence[Edit]:
    """What a track's timeline says, as an edit list."""
    shift = track.timeline.shift
    if not shift and track.timeline.end is None:
        return ()
    # ffmpeg takes the first picture for the beginning of what an edit shows.
    count = min(len(track.samples), MOST_REORDERED)
    first = max(min(track.samples.composition_times(0, count)), 0) if shift > 0 else -shift
    delay = math.ceil((shift + first) * timescale / track.timescale)
    shown = Edit(max(duration - delay, 1), first)
    return (Edit(delay, -1), shown) if delay else (shown,)


def _duration(track: Track, timescale: int) -> int:
    return math.ceil(track.duration * timescale)
