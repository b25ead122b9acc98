"""Builds new MP4 files and `moov` boxes from tracks of other files."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise

from app.video.index.boxes import (
    LARGEST_32_BIT,
    LARGEST_64_BIT,
    Box,
    big_endian,
    box,
    box_header,
    boxes_in,
    children,
    full_box,
)
from app.video.index.edits import Edit, edit_list
from app.video.index.sample_entries import plain_description
from app.video.index.samples import MOST_REORDERED, Samples
from app.video.index.tracks import Track
from app.video.index.virtual_file import Piece

# ---- moov boxes ----------------------------------------------------------------------------------

# A new `moov` box for tracks of a movie: all samples, some of them, or none for fragments.


LONGEST_HEAD = 1 << 30
"""Bytes before the media: more than the limits of `read_movie` allow."""

_UNITY_MATRIX = b"".join(
    number.to_bytes(4, "big") for number in (1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
)
_OWN_MEDIA = box(b"dinf", full_box(b"dref", 0, 0, b"\0\0\0\1", full_box(b"url ", 0, 1)))
_INFORMATION_HEADERS = frozenset(b"vmhd smhd nmhd sthd hmhd gmhd".split())


@dataclass(frozen=True, slots=True)
class SampleChunk:
    """Contiguous samples of a track in a file."""

    offset: int
    samples: int


def movie_box(timescale: int, duration: int, *boxes: bytes | memoryview) -> bytes:
    """A `moov` with a header and `boxes`; the duration is in ticks of `timescale`."""
    header = full_box(
        b"mvhd",
        1,
        0,
        bytes(16),  # creation and modification time
        timescale.to_bytes(4, "big"),
        _number(duration),
        b"\0\1\0\0\1\0\0\0",  # rate 1.0, volume 1.0
        bytes(8),
        _UNITY_MATRIX,
        bytes(24),
        b"\xff\xff\xff\xff",  # id of the next track: search for a free one
    )
    return box(b"moov", header, *boxes)


def track_box(
    track: Track,
    tables: bytes,
    *,
    durations: tuple[int, int],
    edits: Sequence[Edit],
    kept: frozenset[bytes] = frozenset(),
    new_id: int | None = None,
) -> bytes:
    """A `trak` box with new sample tables and the other boxes of the track.

    `durations` are in ticks of the movie's timescale and of the track's own. Boxes with metadata
    and references to other tracks are copied if their kind is in `kept`. Without a `new_id` the
    track keeps its id.
    """
    boxes = children(track.box.payload)
    media = children(boxes[b"mdia"].payload)
    information = boxes_in(media[b"minf"].payload)
    headers = (each.raw for each in information if each.kind in _INFORMATION_HEADERS)
    language = (media[b"elng"].raw,) if b"elng" in media else ()
    return box(
        b"trak",
        _track_header(boxes[b"tkhd"], durations[0], new_id),
        edit_list(edits),
        *(each.raw for each in boxes.values() if each.kind in kept),
        box(
            b"mdia",
            _media_header(media[b"mdhd"], track.timescale, durations[1]),
            *language,
            media[b"hdlr"].raw,
            box(b"minf", *headers, _OWN_MEDIA, tables),
        ),
    )


def _track_header(tkhd: Box, duration: int, new_id: int | None) -> bytes:
    """A copy with a new duration, and with a new id if given."""
    payload = bytes(tkhd.payload)
    is_long = payload[0] == 1
    times, rest = (payload[4:20], payload[36:]) if is_long else (_long(payload[4:12]), payload[24:])
    track_id = payload[20:28] if is_long else payload[12:20]  # and four reserved bytes
    if new_id is not None:
        track_id = new_id.to_bytes(4, "big") + bytes(4)
    return box(b"tkhd", b"\1", payload[1:4], times, track_id, _number(duration), rest)


def _media_header(mdhd: Box, timescale: int, duration: int) -> bytes:
    """A copy with a new timescale and duration."""
    payload = bytes(mdhd.payload)
    is_long = payload[0] == 1
    times, rest = (payload[4:20], payload[32:]) if is_long else (_long(payload[4:12]), payload[20:])
    ticks = timescale.to_bytes(4, "big")
    return box(b"mdhd", b"\1", payload[1:4], times, ticks, _number(duration), rest)


def _number(duration: int) -> bytes:
    """Encodes 64 bits; clamps too long and negative durations of damaged files."""
    return min(max(duration, 0), LARGEST_64_BIT).to_bytes(8, "big")


def _long(times: bytes) -> bytes:
    """Widens two 32-bit numbers to 64 bits."""
    return bytes(4) + times[:4] + bytes(4) + times[4:]


def sample_tables(
    description: memoryview, samples: Samples, chunks: Sequence[SampleChunk], *, is_wide: bool
) -> bytes:
    """An `stbl` box; `description` is its `stsd` box, and `chunks` hold the samples in order."""
    offsets, composition_table = samples.composition_offsets, b""
    if any(offsets):
        version = 1 if min(offsets) < 0 else 0
        composition_table = _table(b"ctts", version, _durations(offsets), 8)
    chunk_runs = array("I")  # first chunk, samples per chunk, index of the description
    for number, chunk in enumerate(chunks, 1):
        if not chunk_runs or chunk_runs[-2] != chunk.samples:
            chunk_runs.extend((number, chunk.samples, 1))
    return box(
        b"stbl",
        description,
        _table(b"stts", 0, _durations(samples.durations(0, len(samples))), 8),
        composition_table,
        b"" if len(samples.key_frames) == len(samples) else key_frame_table(samples.key_frames),
        full_box(
            b"stsz", 0, 0, bytes(4), len(samples).to_bytes(4, "big"), big_endian(samples.sizes)
        ),
        _table(b"stsc", 0, chunk_runs, 12),
        chunk_table((chunk.offset for chunk in chunks), is_wide=is_wide),
    )


def no_sample_tables(description: bytes) -> bytes:
    """An empty `stbl` box, for a track with its samples in fragments."""
    nothing = bytes(4)
    return box(
        b"stbl",
        description,
        *(full_box(kind, 0, 0, nothing) for kind in (b"stts", b"stsc", b"stco")),
        full_box(b"stsz", 0, 0, nothing, nothing),
    )


def chunk_table(offsets: Iterable[int], *, is_wide: bool) -> bytes:
    """A `co64` box if `is_wide`, else an `stco` box, whose offsets must be below 4 GiB."""
    if is_wide:
        return _table(b"co64", 0, array("Q", offsets), 8)
    return _table(b"stco", 0, array("I", offsets), 4)


def _table(kind: bytes, version: int, numbers: array[int], width: int) -> bytes:
    count = len(numbers) * numbers.itemsize // width
    return full_box(kind, version, 0, count.to_bytes(4, "big"), big_endian(numbers))


def _durations(values: Iterable[int]) -> array[int]:
    """Run-length encodes values as 32-bit pairs (count, value in two's complement)."""
    runs = ((sum(1 for _ in group), value & LARGEST_32_BIT) for value, group in groupby(values))
    return array("I", chain.from_iterable(runs))


def key_frame_table(numbers: Sequence[int]) -> bytes:
    """An `stss` box that names samples, counted from 0."""
    return _table(b"stss", 0, array("I", (number + 1 for number in numbers)), 4)


# ---- interleaved files ---------------------------------------------------------------------------

# A new video made of tracks of several files, as an unfragmented MP4 with its index first.


CHUNK_SECONDS = 1
"""Interleaving interval: a player has to read this far ahead."""

_FILE_TYPE = box(b"ftyp", b"isom", bytes(4), b"isomiso2avc1mp41")
_DESCRIPTIONS = frozenset((b"udta", b"meta"))


def interleaved(tracks: Sequence[Track], timescale: int) -> Iterator[Piece]:
    """Interleaves non-empty tracks into one MP4; its movie timescale is `timescale`.

    Sample offsets of all tracks refer to one address space, that of the yielded ranges.
    """
    intervals = [_intervals(track.samples, CHUNK_SECONDS * track.timescale) for track in tracks]
    order = sorted((start, place) for place, found in enumerate(intervals) for start in found)
    runs = [(place, *intervals[place][start]) for start, place in order]
    length = sum(sum(track.samples.sizes) for track in tracks)
    header = box_header(b"mdat", length)
    is_wide = length > LARGEST_32_BIT - LONGEST_HEAD

    def index(start: int) -> bytes:
        chunks: list[list[SampleChunk]] = [[] for _ in tracks]
        for place, first, last in runs:
            chunks[place].append(SampleChunk(start, last - first))
            start += sum(tracks[place].samples.sizes[first:last])
        traks = (
            _track(track, chunks[place], timescale, new_id=place + 1, is_wide=is_wide)
            for place, track in enumerate(tracks)
        )
        return movie_box(timescale, max(_duration(track, timescale) for track in tracks), *traks)

    yield _FILE_TYPE + index(len(_FILE_TYPE) + len(index(0)) + len(header)) + header
    for place, first, last in runs:
        yield from tracks[place].samples.extents(first, last)


def moved(track: Track, distance: int) -> Track:
    """The track with its sample offsets increased by `distance` bytes."""
    offsets = array("Q", map(distance.__add__, track.samples.offsets))
    return replace(track, samples=replace(track.samples, offsets=offsets))


def _intervals(samples: Samples, ticks: int) -> Mapping[int, tuple[int, int]]:
    """The samples decoded in each interval of `ticks`; intervals without samples are left out."""
    firsts = [0]
    while firsts[-1] < len(samples):
        stretch = samples.decode_times[firsts[-1]] // ticks
        firsts.append(bisect_left(samples.decode_times, (stretch + 1) * ticks, firsts[-1] + 1))
    return {samples.decode_times[first] // ticks: (first, last) for first, last in pairwise(firsts)}


def _track(
    track: Track, chunks: Sequence[SampleChunk], timescale: int, *, new_id: int, is_wide: bool
) -> bytes:
    stsd = children(track.tables)[b"stsd"].payload
    description = memoryview(box(b"stsd", plain_description(stsd, track.kind)))
    duration, shift = _duration(track, timescale), track.timeline.shift
    edits: Sequence[Edit] = ()
    if shift or track.timeline.end is not None:
        # ffmpeg assumes that an edit starts at the first frame.
        count = min(len(track.samples), MOST_REORDERED)
        first = max(min(track.samples.composition_times(0, count)), 0) if shift > 0 else -shift
        delay = math.ceil((shift + first) * timescale / track.timescale)
        shown = Edit(max(duration - delay, 1), first)
        edits = (Edit(delay, -1), shown) if delay else (shown,)
    return track_box(
        track,
        sample_tables(description, track.samples, chunks, is_wide=is_wide),
        durations=(duration, track.samples.end),
        edits=edits,
        kept=_DESCRIPTIONS,
        new_id=new_id,
    )


def _duration(track: Track, timescale: int) -> int:
    return math.ceil(track.duration * timescale)


# ---- excerpts ------------------------------------------------------------------------------------


_EXCERPT_TYPE = box(b"ftyp", b"isom", bytes(4), b"isomiso2mp41")


def mp4_of(track: Track, samples: Samples) -> Iterator[Piece]:
    """An MP4 with some samples of a track at their own times: a decoder reads nothing else."""
    length = sum(samples.sizes)
    header = box_header(b"mdat", length)
    is_wide = length > LARGEST_32_BIT - LONGEST_HEAD

    def index(start: int) -> bytes:
        chunks = [SampleChunk(start, len(samples))]
        tables = sample_tables(track.description, samples, chunks, is_wide=is_wide)
        trak = track_box(track, tables, durations=(samples.end, samples.end), edits=())
        return movie_box(track.timescale, samples.end, trak)

    yield _EXCERPT_TYPE + index(len(_EXCERPT_TYPE) + len(index(0)) + len(header)) + header
    yield from samples.extents(0, len(samples))
