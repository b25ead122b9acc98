"""Fast start, `play.mp4`: the index first, then the media, which is not copied."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import add

from app.core.ranges import ByteRange
from app.video.index.boxes import (
    LARGEST_32_BIT,
    ReadAt,
    big_endian,
    box_header,
    boxes_in,
    children,
    descend,
    numbers,
    rewritten,
)
from app.video.index.edits import fitted
from app.video.index.movie import Movie
from app.video.index.muxing import (
    LONGEST_HEAD,
    SampleChunk,
    chunk_table,
    key_frame_table,
    movie_box,
    sample_tables,
    track_box,
)
from app.video.index.samples import chunk_offsets
from app.video.index.segments import MOST_LOOKED_AT, independent_key_frames
from app.video.index.virtual_file import Piece

_DESCRIPTIONS = frozenset((b"tref", b"udta", b"tapt", b"meta"))
_PATH_TO_TABLES = (b"mdia", b"minf", b"stbl")
_CHUNK_TABLES = {b"stco": "I", b"co64": "Q"}

_OTHER_STARTS = frozenset((b"stps", b"sgpd", b"sbgp"))
"""Tables of sync points that are not independent: Chromium treats them as key frames, too. The
first is QuickTime's, the others are of section 10.4."""

_Starts = Mapping[int, Sequence[int]]

_BLOCK_BYTES = 1 << 20
"""The head of a file, up to 64 MiB, is copied in blocks of this size."""


def fast_start(movie: Movie, read_at: ReadAt) -> Iterator[Piece]:
    """The movie with its index first; the original file if it already is that way.

    A fragmented movie becomes an unfragmented one, and sizes have 32 bits. Samples beyond the end
    of the file and tracks too damaged to be used are left out. Seeks start at independent key
    frames if a track has any (section 8.6.2): `read_at` reads the file.
    """
    # Firefox does not support sizes in a `stz2` box (8.7.3.3).
    has_compact_sizes = any(b"stz2" in children(track.tables) for track in movie.stored_tracks)
    needs_tables = movie.is_truncated or movie.is_fragmented or has_compact_sizes
    starts = _starts(movie, read_at)
    if movie.starts_with_index and not needs_tables and not starts:
        yield ByteRange(0, movie.length)
        return
    media = _Media.of(movie)
    index = (_new_index if needs_tables else _moved_index)(movie, media, starts)
    # A large index is not copied again: joined here, adjusted in place, and yielded in blocks.
    head = bytearray().join((movie.file_type, *index, box_header(b"mdat", media.length)))
    _move_media(memoryview(head)[len(movie.file_type) :], by=len(head))
    for start in range(0, len(head), _BLOCK_BYTES):
        yield bytes(head[start : start + _BLOCK_BYTES])
    yield from media.extents


def _move_media(moov: memoryview, *, by: int) -> None:
    """Add `by` to all offsets in the tables of a `moov` box."""
    for trak in boxes_in(next(boxes_in(moov)).payload):
        tables = descend(trak.payload, *_PATH_TO_TABLES) if trak.kind == b"trak" else None
        for table in boxes_in(tables or memoryview(b"")):
            if table.kind in _CHUNK_TABLES:
                offsets = numbers(_CHUNK_TABLES[table.kind], table.payload[8:])
                moved = array(offsets.typecode, map(by.__add__, offsets))
                table.payload[8:] = big_endian(moved)


def _starts(movie: Movie, read_at: ReadAt) -> _Starts:
    """The samples where decoding may start, for tracks whose tables name other samples, too.

    At least one per track: without any, players treat all samples as key frames.
    """
    found: dict[int, Sequence[int]] = {}
    pictures = sum(track.is_h264 for track in movie.stored_tracks)
    for number, track in enumerate(movie.stored_tracks):
        keys = track.samples.key_frames
        starts = independent_key_frames(track, read_at, MOST_LOOKED_AT // max(pictures, 1))
        names_others = track.is_h264 and not _OTHER_STARTS.isdisjoint(children(track.tables))
        if len(starts) < len(keys) or names_others:
            found[number] = starts or keys[:1]
    return found


@dataclass(frozen=True, slots=True)
class _Media:
    """The parts of the file that become the media of the new file."""

    extents: Sequence[ByteRange]
    """Ascending."""

    @classmethod
    def of(cls, movie: Movie) -> _Media:
        """The used part of each `mdat` box; the whole file if a sample is outside of them."""
        whole_file = cls((ByteRange(0, movie.length),))
        boxes, used = movie.media, dict[int, ByteRange]()
        starts = [extent.start for extent in boxes]
        for samples in (track.samples for track in movie.stored_tracks if track.samples):
            runs = iter([(0, len(samples))])
            if len(boxes) > 1:
                runs = samples.contiguous(0, len(samples))
            for first, last in runs:
                ends = map(add, samples.offsets[first:last], samples.sizes[first:last])
                span = ByteRange(min(samples.offsets[first:last]), max(ends))
                number = bisect_right(starts, span.start) - 1
                if number < 0 or boxes[number].end < span.end:
                    return whole_file
                known = used.get(number, span)
                used[number] = ByteRange(min(known.start, span.start), max(known.end, span.end))
        return cls([used[number] for number in sorted(used)]) if used else whole_file

    @property
    def length(self) -> int:
        return sum(extent.length for extent in self.extents)

    @property
    def is_wide(self) -> bool:
        """Whether offsets in the new file need 64 bits."""
        return self.length > LARGEST_32_BIT - LONGEST_HEAD

    def moved(self, offsets: Sequence[int]) -> Iterator[int]:
        """Maps offsets in the file to the new media; offsets outside of it are clamped."""
        starts = [extent.start for extent in self.extents]
        lengths = (extent.length for extent in self.extents)
        new_starts = accumulate(lengths, initial=0)
        shifts = [new - old for new, old in zip(new_starts, starts, strict=False)]
        last = self.extents[-1].end
        if not offsets:
            return iter(())
        if len(shifts) == 1 and starts[0] <= min(offsets) and max(offsets) <= last:
            return map(shifts[0].__add__, offsets)
        known = (min(max(offset, starts[0]), last) for offset in offsets)
        return (offset + shifts[bisect_right(starts, offset) - 1] for offset in known)


def _moved_index(movie: Movie, media: _Media, starts: _Starts) -> list[bytes | memoryview]:
    """The original `moov` with offsets into the media and without unusable tracks, in pieces."""
    pieces: list[bytes | memoryview] = [
        each.raw for each in boxes_in(movie.box.payload) if each.kind != b"trak"
    ]
    for number, track in enumerate(movie.stored_tracks):
        offsets = media.moved(chunk_offsets(children(track.tables)))
        table = chunk_table(offsets, is_wide=media.is_wide)
        replacements = {b"stco": table, b"co64": table}
        if number in starts:
            replacements |= {b"stss": key_frame_table(starts[number])}
            replacements |= dict.fromkeys(_OTHER_STARTS, b"")
        pieces += rewritten(track.box, replacements, inside=frozenset(_PATH_TO_TABLES))
    return [box_header(b"moov", sum(map(len, pieces))), *pieces]


def _new_index(movie: Movie, media: _Media, starts: _Starts) -> list[bytes | memoryview]:
    """A `moov` with new tables of the samples that were found, and offsets into the media."""
    descriptions = (each.raw for each in boxes_in(movie.box.payload) if each.kind in _DESCRIPTIONS)
    durations = [math.ceil(track.duration * movie.timescale) for track in movie.stored_tracks]
    tracks = []
    for number, track in enumerate(movie.stored_tracks):
        samples = track.samples
        if number in starts:
            samples = replace(samples, key_frames=starts[number])
        runs = list(samples.contiguous(0, len(samples)))
        offsets = media.moved([samples.offsets[first] for first, _ in runs])
        chunks = [
            SampleChunk(offset, last - first)
            for offset, (first, last) in zip(offsets, runs, strict=True)
        ]
        new = track_box(
            track,
            sample_tables(track.description, samples, chunks, is_wide=media.is_wide),
            durations=(durations[number], track.media_end),
            edits=fitted(track.edits, durations[number]),
            kept=_DESCRIPTIONS,
        )
        tracks.append(new)
    return [movie_box(movie.timescale, max(durations), *tracks, *descriptions)]
