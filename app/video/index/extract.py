"""A small MP4 with a few samples of a track, so that a decoder reads nothing else of the film."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import compress
from math import floor
from operator import add

from app.video.index.boxes import LARGEST_32_BIT, box, media_header
from app.video.index.edits import Edit
from app.video.index.movie_boxes import Chunk, movie_box, sample_tables, track_box
from app.video.index.samples import Samples
from app.video.index.tracks import Track
from app.video.index.virtual_file import Piece

_FILE_TYPE = box(b"ftyp", b"isom", bytes(4), b"isomiso2mp41")
_LONGEST_HEAD = 1 << 30
"""Bytes; more than any that the limits of `read_movie` allow."""


def extract(track: Track, numbers: Sequence[int]) -> Iterator[Piece]:
    """An MP4 with the samples of these ascending numbers, at the times they have in the film.

    A key frame can be decoded alone, another picture after all since the last key frame. A sample
    lasts until the next one of `numbers`. Of key frames of H.264 in open groups, ffmpeg 5.1 decodes
    only some if several are in one file, as it does with the film itself and `-skip_frame nokey`.
    """
    samples = _chosen(track.samples, numbers)
    # ffmpeg takes the first picture for the beginning of what an edit shows.
    count = len(samples)
    first = min(samples.composition_times(0, count))
    ends = map(add, samples.composition_times(0, count), samples.durations(0, count))
    time = first + track.timeline.shift + track.samples.decode_times[numbers[0]]
    length, delay = max(ends) - first, max(time, 0)
    hidden = -time if 0 < -time < length else 0  # all of it is shown if the film shows none of it
    shown = Edit(length - hidden, first + hidden)
    return film_of(track, samples, (Edit(delay, -1), shown) if delay else (shown,))


def film_of(track: Track, samples: Samples, edits: Sequence[Edit] = ()) -> Iterator[Piece]:
    """An MP4 with samples of a track, at times of their own; `edits` are in the track's ticks."""
    header = media_header(sum(samples.sizes))
    size = len(_index(track, samples, edits, 0)) + len(_FILE_TYPE) + len(header)
    yield _FILE_TYPE + _index(track, samples, edits, size) + header
    yield from samples.extents(0, len(samples))


def key_frame_before(track: Track, time: Fraction) -> int:
    """The number of the last key frame that is shown at `time` seconds or earlier, or the first.

    0 for a track without key frames.
    """
    keys, tick = track.samples.key_frames, floor(time * track.timescale)
    if not keys:
        return 0
    return keys[max(bisect_right(keys, tick, key=track.shown_at) - 1, 0)]


def _chosen(samples: Samples, numbers: Sequence[int]) -> Samples:
    """The samples of these numbers, the first of them decoded at time 0."""
    begin, last = samples.decode_times[numbers[0]], numbers[-1]
    keys = samples.key_frames
    where = (bisect_left(keys, number) for number in numbers)
    are_keys = [
        place < len(keys) and keys[place] == n for place, n in zip(where, numbers, strict=True)
    ]
    return Samples(
        array("Q", (samples.offsets[number] for number in numbers)),
        array("I", (samples.sizes[number] for number in numbers)),
        array("q", (samples.decode_times[number] - begin for number in numbers)),
        array("i", (samples.composition_offsets[number] for number in numbers)),
        array("I", compress(range(len(numbers)), are_keys)),
        samples.decode_times[last] - begin + samples.duration(last),
    )


def _index(track: Track, samples: Samples, edits: Sequence[Edit], media_start: int) -> bytes:
    """The `moov` box for samples that lie one after the other from byte `media_start` on."""
    is_wide = sum(samples.sizes) > LARGEST_32_BIT - _LONGEST_HEAD
    chunks = [Chunk(media_start, len(samples))]
    tables = sample_tables(track.description, samples, chunks, is_wide=is_wide)
    duration = sum(edit.duration for edit in edits) or samples.end
    trak = track_box(track, tables, durations=(duration, samples.end), edits=edits)
    return movie_box(track.timescale, duration, trak)
