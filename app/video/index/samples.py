"""The samples of a track in columns, how they are read, and what reading an index costs.

A sample is one unit of decoder input: a video frame, an audio packet, a subtitle.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, compress, islice, pairwise, repeat
from operator import add, gt, mul, ne, sub

from app.core.ranges import ByteRange
from app.video.index.boxes import (
    LARGEST_32_BIT,
    Box,
    Fields,
    FileBox,
    LongIndex,
    NotIndexable,
    boxes_in,
    children,
    damaged,
    numbers,
)
from app.video.index.edits import read_edits

MAX_SAMPLES = 10_000_000
"""In all tracks: 40 hours, at 24 bytes of memory each. A video with more is not indexed."""

MOST_REORDERED = 64
"""The first shown frame is within this many samples of a key frame, or of the start of a file."""


def most_samples(length: int) -> int:
    """Maximum number of samples in a file of `length` bytes; a table that claims more is damaged.

    A sample has at least one byte of media, or it is empty and a table lists its size. Only a table
    with a common size of 0 could describe more samples than the file has bytes.
    """
    return min(MAX_SAMPLES, length)


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of a track in decode order, one column per property, all of the same length.

    Times are in ticks of the track's timescale, before its edits.
    """

    offsets: array[int]
    """Type Q: offsets into the file."""
    sizes: array[int]
    """Type I: bytes."""
    decode_times: array[int]
    """Type q, in non-descending order."""
    composition_offsets: array[int]
    """Type i: composition time minus decode time."""
    key_frames: Sequence[int]
    """Ascending numbers of the samples at which decoding can start."""
    end: int
    """End of the last sample, in decode time."""

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def ticks(self) -> int:
        """The sum of all durations."""
        return self.end - self.decode_times[0] if self.decode_times else 0

    @property
    def longest_group(self) -> int:
        """The most samples from a key frame, or the first sample, up to the next key frame."""
        begins, ends = chain((0,), self.key_frames), chain(self.key_frames, (len(self),))
        longest: int = max(map(sub, ends, begins))
        return longest

    def composition_time(self, number: int) -> int:
        """The time at which a sample is shown."""
        return self.decode_times[number] + self.composition_offsets[number]

    def composition_times(self, first: int, last: int) -> Iterator[int]:
        """Composition times of the samples from `first` up to, not including, `last`."""
        return map(add, self.decode_times[first:last], self.composition_offsets[first:last])

    def durations(self, first: int, last: int) -> Iterator[int]:
        """Ticks from each decode time to the next."""
        after = self.decode_times[first + 1 : last + 1]
        if last >= len(self):
            after.append(self.end)
        return map(sub, after, self.decode_times[first:last])

    def duration(self, number: int) -> int:
        """Ticks from the decode time of a sample to the next."""
        return next(self.durations(number, number + 1))

    def contiguous(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The samples from `first` up to `last`, as runs that are contiguous in the file."""
        begins = self._begins(first, last)
        return pairwise([*begins, last] if begins else [])

    def bounds(self, first: int, last: int) -> tuple[array[int], array[int]]:
        """Byte offsets of the samples from `first` up to `last`: starts and ends of runs."""
        begins = self._begins(first, last)
        finals = [*(begin - 1 for begin in begins[1:]), last - 1] if begins else []
        starts = array("Q", map(self.offsets.__getitem__, begins))
        final_starts = map(self.offsets.__getitem__, finals)
        ends = array("Q", map(add, final_starts, map(self.sizes.__getitem__, finals)))
        return starts, ends

    def _begins(self, first: int, last: int) -> list[int]:
        """The first sample of each run."""
        if first >= last:
            return []
        ends = map(add, self.offsets[first : last - 1], self.sizes[first : last - 1])
        are_apart = map(ne, self.offsets[first + 1 : last], ends)
        return [first, *compress(range(first + 1, last), are_apart)]

    def extents(self, first: int, last: int) -> Iterator[ByteRange]:
        """The same as `bounds`, as ranges."""
        return map(ByteRange, *self.bounds(first, last))

    def up_to(self, count: int) -> Samples:
        """The first `count` samples."""
        if count >= len(self):
            return self
        return Samples(
            self.offsets[:count],
            self.sizes[:count],
            self.decode_times[:count],
            self.composition_offsets[:count],
            self.key_frames[: bisect_left(self.key_frames, count)],
            self.decode_times[count],
        )

    def earlier(self, ticks: int) -> Samples:
        """The same samples, decoded `ticks` earlier."""
        times = array("q", map((-ticks).__add__, self.decode_times))
        return replace(self, decode_times=times, end=self.end - ticks)

    def finer(self, factor: int) -> Samples:
        """The same samples in ticks `factor` times as fine; raises `OverflowError`."""
        if factor == 1:
            return self
        return replace(
            self,
            decode_times=array("q", map(factor.__mul__, self.decode_times)),
            composition_offsets=array("i", map(factor.__mul__, self.composition_offsets)),
            end=factor * self.end,
        )

    def count_within(self, length: int) -> int:
        """Number of samples before the first one that ends beyond `length` bytes."""
        are_beyond = map(gt, map(add, self.offsets, self.sizes), repeat(length))
        return next(compress(range(len(self)), are_beyond), len(self))


# ---- sample tables -------------------------------------------------------------------------------

# Reads the sample tables of a `moov` (ISO/IEC 14496-12, sections 8.6 and 8.7) into columns.
#
# Uses only slices and iterators of the standard library: two hours of video and audio, half a
# million samples, take 0.2 CPU s.


_HIGHEST_DELTA = 1 << 31
"""Durations from here on are negative numbers, which some recorders write: they become 1."""

Tables = Mapping[bytes, Box]
"""The boxes of an `stbl`, by kind."""


def read_samples(tables: Tables, *, length: int, most: int, is_sound: bool) -> tuple[Samples, bool]:
    """The samples within the first `length` bytes, and whether others are missing.

    Raises `NotIndexable` if there are more than `most`. Audio with one tick per sample, which is
    how QuickTime stores PCM, is read as one sample per chunk.
    """
    sizes = _Sizes.read(tables)
    offsets = chunk_offsets(tables)
    chunk_count = len(offsets)
    # Offsets beyond any possible file would not fit the columns either.
    are_beyond = map(gt, offsets, repeat(length))
    del offsets[next(compress(range(chunk_count), are_beyond), chunk_count) :]
    times = _runs(tables.get(b"stts"), "I")
    chunks = _Chunks.read(tables, offsets)
    if is_sound and sizes.each and set(times[1]) == {1}:
        samples = chunks.as_samples(sizes.each, most=most)
        expected = chunk_count
    elif sizes.count > most:
        raise too_many_samples()
    else:
        column = sizes.column()
        offsets = chunks.sample_offsets(column)
        count = len(offsets)
        decode_times, end = _decode_times(*times, count=count)
        # Signed in version 0 too: many recorders write negative numbers there.
        shifts = array("i", islice(_expanded(*_runs(tables.get(b"ctts"), "i")), count))
        shifts.frombytes(bytes(4 * (count - len(shifts))))
        key_frames = _key_frames(tables.get(b"stss"), count=count)
        samples = Samples(offsets, column[:count], decode_times, shifts, key_frames, end)
        expected = sizes.count
    within = samples.up_to(samples.count_within(length))
    return within, len(within) < expected


def entries(box: Box, width: int) -> memoryview:
    """The table in a full box, preceded only by its count; `width` bytes per entry.

    A count that exceeds the box is reduced.
    """
    fields = Fields(box.payload)
    fields.version_and_flags()
    count = min(fields.unsigned(4), fields.remaining // width)
    return fields.take(count * width)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sample sizes: `each` for all of them, or one number for each of `count` (stsz, stz2)."""

    count: int
    each: int
    table: memoryview
    bits: int

    @classmethod
    def read(cls, tables: Tables) -> _Sizes:
        if b"stsz" in tables:
            fields = Fields(tables[b"stsz"].payload)
            fields.version_and_flags()
            each, bits = fields.unsigned(4), 32
        elif b"stz2" in tables:
            fields = Fields(tables[b"stz2"].payload)
            fields.version_and_flags()
            each, bits = 0, fields.unsigned(4) & 0xFF
        else:
            raise damaged("a track has no table of sizes")
        if bits not in {4, 8, 16, 32}:
            raise damaged("a table of sizes has an unknown form")
        count, table = fields.unsigned(4), fields.rest()
        return cls(count if each else min(count, len(table) * 8 // bits), each, table, bits)

    def column(self) -> array[int]:
        if self.each:
            return array("I", (self.each,)) * self.count
        table = self.table[: (self.count * self.bits + 7) // 8]
        if self.bits == 32:
            return numbers("I", table)
        if self.bits == 4:
            return array("I", chain.from_iterable((b >> 4, b & 15) for b in table))[: self.count]
        return array("I", numbers("H" if self.bits == 16 else "B", table))


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Offsets of chunks, and numbers of samples in them (stco, co64, stsc)."""

    offsets: array[int]
    runs: list[tuple[int, int, int]]
    """First chunk, end, and samples per chunk, of runs of equal chunks."""

    @classmethod
    def read(cls, tables: Tables, offsets: array[int]) -> _Chunks:
        """The chunks at these offsets."""
        if b"stsc" not in tables:
            raise damaged("a track has no table of chunks")
        table, count = numbers("I", entries(tables[b"stsc"], 12)), len(offsets)
        ends = chain(islice(table, 3, None, 3), (count + 1,))
        runs, begin = [], 1
        for first, samples, end in zip(table[::3], table[1::3], ends, strict=False):
            if first != begin or not samples or end < first <= count:
                raise damaged("chunks are not in order")
            if first <= count:
                runs.append((first - 1, min(end - 1, count), samples))
            begin = end
        return cls(offsets, runs)

    def as_samples(self, size: int, *, most: int) -> Samples:
        """Each chunk as one sample, of samples that have `size` bytes and last one tick."""
        if len(self.offsets) > most:
            raise NotIndexable("too_many_samples", "The audio has too many parts to be indexed.")
        if any(samples * size > LARGEST_32_BIT for _, _, samples in self.runs):
            raise damaged("a chunk is larger than any can be")
        in_runs = (repeat(samples, end - first) for first, end, samples in self.runs)
        counts = array("I", chain.from_iterable(in_runs))
        decode_times = array("q", accumulate(counts, initial=0))
        end = decode_times.pop()
        return Samples(
            self.offsets[: len(counts)],
            array("I", map(mul, counts, repeat(size))),
            decode_times,
            array("i", bytes(4 * len(counts))),
            range(len(counts)),
            end,
        )

    def sample_offsets(self, sizes: array[int]) -> array[int]:
        """Offset of each sample; samples without a chunk are left out."""
        offsets = array("Q")
        for first, end, samples in self.runs:
            if samples == 1:
                offsets.extend(self.offsets[first:end])
                continue
            for start in self.offsets[first:end]:
                number = len(offsets)
                if number >= len(sizes):
                    break
                sizes_before = sizes[number : number + samples - 1]
                offsets.extend(accumulate(sizes_before, initial=start))
        return offsets[: len(sizes)]


def chunk_offsets(tables: Tables) -> array[int]:
    """Offsets of a track's chunks in the file, from `stco` or `co64`."""
    if b"stco" in tables:
        return array("Q", numbers("I", entries(tables[b"stco"], 4)))
    if b"co64" in tables:
        return numbers("Q", entries(tables[b"co64"], 8))
    raise damaged("a track has no table of places")


def _runs(table: Box | None, code: str) -> tuple[array[int], array[int]]:
    """Counts and values of a run-length table; the values are of type `code`."""
    if table is None:
        return array("I"), array(code)
    stored = entries(table, 8)
    return numbers("I", stored)[::2], numbers(code, stored)[1::2]


def _expanded(counts: Iterable[int], values: Iterable[int]) -> Iterator[int]:
    return chain.from_iterable(map(repeat, values, counts))


def _decode_times(counts: array[int], deltas: array[int], *, count: int) -> tuple[array[int], int]:
    """Decode times, and the end of the last sample; extends a short table with its last delta."""
    if deltas and max(deltas) >= _HIGHEST_DELTA:
        deltas = array("I", (delta if delta < _HIGHEST_DELTA else 1 for delta in deltas))
    steps = chain(_expanded(counts, deltas), repeat(deltas[-1] if deltas else 0))
    times = array("q", islice(accumulate(steps, initial=0), count + 1))
    end = times.pop()
    return times, end


def _key_frames(table: Box | None, *, count: int) -> array[int] | range:
    """Numbers from 0; without a table every sample is a key frame (section 8.6.2)."""
    if table is None:
        return range(count)
    is_key = bytearray(count + 1)
    for number in numbers("I", entries(table, 4)):
        if number <= count:
            is_key[number] = 1
    return array("I", compress(range(count), memoryview(is_key)[1:]))


# ---- cost of an index ----------------------------------------------------------------------------

# Estimates the cost of an index before any of its tables is read.
#
# A table of 20 bytes can describe ten million samples, so neither the size of a file nor the size
# of its index predicts how long reading takes. An entry, such as a sample, stands for about 1 us of
# CPU time and 50 bytes of memory for everything that is made for players.


SHORT_INDEX = 400_000
"""Entries of a 40 minute video; 0.4 CPU s. Longer indexes are processed after shorter ones."""

LONG_INDEX = 2_500_000
"""Entries of a 4 hour video; 2 CPU s and 120 MB. A longer index is read by a process with resource
limits, except for renditions."""

MAX_ENTRIES = 4 * MAX_SAMPLES
"""A video whose index has more is not indexed."""

TOO_MANY_SAMPLES = "too_many_samples"
"""Error code of a file that claims to have more samples than it can have."""

MAX_TRACKS = 32
"""Further tracks are ignored, and left out of derived files."""

_BOX = 5
"""Entries that a box counts as: each top-level box is read on its own, and the boxes of a track are
iterated over for each lookup."""

_WALKED = frozenset(b"mvex udta trak edts tref mdia minf dinf stbl".split())
"""Boxes whose children are searched or replaced."""

_EDITED = 3
"""Additional entries per sample of a track that is cut by its edit list."""

_ROW_BYTES = {b"stts": 8, b"ctts": 8, b"stss": 4, b"stsc": 12, b"stco": 4, b"co64": 8, b"stsd": 2}
"""Bytes of a table that count as an entry. A sample description has a few hundred bytes, and a
descriptor in it may take only two (ISO/IEC 14496-1, section 7.2.2)."""


def require_at_most(
    most: int, moov: Box, fragments: Iterable[FileBox], *, length: int, arrived: int
) -> None:
    """Raise `LongIndex` if the index has more than `most` entries.

    `arrived` bytes of the `length` bytes of the file have been received. Raises `NotIndexable` if
    the tables of an incomplete file describe more samples than that, and for an index that is too
    long for any step. Samples of fragments that take no bytes of their own are not counted.
    """
    walked = islice(_walked(moov, _WALKED), most_boxes(most) + 1)
    boxes_entries = _BOX * sum(1 for _ in walked)
    refuse_beyond(most, boxes_entries)
    boxes = (box for box in boxes_in(moov.payload) if box.kind == b"trak")
    tracks = [_CountedTrack.of(trak) for trak in islice(boxes, MAX_TRACKS)]
    believed = [track for track in tracks if track.samples <= most_samples(length)]
    if arrived < length and sum(track.samples for track in tracks) > arrived:
        raise too_many_samples()
    entries = boxes_entries + sum(track.rows for track in tracks)
    entries += sum(track.samples * (1 + _EDITED * track.is_cut) for track in believed)
    entries += sum(_BOX + (box.end - box.start) // 4 for box in fragments)
    refuse_beyond(most, entries)


def refuse_beyond(most: int, entries: int) -> None:
    """Raise `LongIndex` above `most` entries, and `NotIndexable` if no step may read so many."""
    if entries > MAX_ENTRIES:
        raise too_many_samples()
    if entries > most:
        raise LongIndex(entries)


def too_many_samples() -> NotIndexable:
    """Returns the error for a video with too many samples."""
    return NotIndexable(TOO_MANY_SAMPLES, "The video has too many frames to be indexed.")


def most_boxes(most_entries: int) -> int:
    """How many top-level boxes may be read."""
    return most_entries // _BOX


def _walked(box: Box, inside: frozenset[bytes]) -> Iterator[Box]:
    """Yields the children of a box and, recursively, of its children of the kinds `inside`."""
    for each in boxes_in(box.payload):
        yield each
        if each.kind in inside:
            yield from _walked(each, inside - {each.kind})


@dataclass(frozen=True, slots=True)
class _CountedTrack:
    """Numbers of entries that the tables of a track claim."""

    samples: int = 0
    """As a table claims; a table that claims too many is not read."""
    rows: int = 0
    """Entries of the other tables."""
    is_cut: bool = False
    """Whether its edit list cuts off its beginning, or has several non-empty edits."""

    @classmethod
    def of(cls, trak: Box) -> _CountedTrack:
        boxes = children(trak.payload)
        media = children(boxes[b"mdia"].payload) if b"mdia" in boxes else {}
        information = children(media[b"minf"].payload) if b"minf" in media else {}
        tables = children(information[b"stbl"].payload) if b"stbl" in information else {}
        try:
            samples = 0 if _is_read_by_chunks(media, tables) else _Sizes.read(tables).count
            is_cut = _is_cut(boxes, media)
        except NotIndexable:  # A table is damaged: no others of this track are read.
            return cls()
        rows = sum(
            len(tables[kind].payload) // width
            for kind, width in _ROW_BYTES.items()
            if kind in tables
        )
        return cls(samples, rows, is_cut)


def _is_read_by_chunks(media: Mapping[bytes, Box], tables: Mapping[bytes, Box]) -> bool:
    """Whether `read_samples` reads one sample per chunk: it does if all samples last one tick.

    No file needs a second entry for that, and it may say something else: its samples are counted.
    """
    if b"stsz" not in tables or b"stts" not in tables or b"hdlr" not in media:
        return False
    each, times = bytes(tables[b"stsz"].payload[4:8]), bytes(tables[b"stts"].payload[4:16])
    is_sound = bytes(media[b"hdlr"].payload[8:12]) == b"soun"
    is_one_entry = times[:4] == times[8:] == b"\0\0\0\1"
    return is_sound and each != bytes(4) and is_one_entry


def _is_cut(boxes: Mapping[bytes, Box], media: Mapping[bytes, Box]) -> bool:
    edits = read_edits(boxes.get(b"edts"))
    shown = [edit for edit in edits if not edit.is_empty]
    if len(shown) > 1 or not shown or b"mdhd" not in media:
        return len(shown) > 1
    fields = Fields(media[b"mdhd"].payload)
    version, _ = fields.version_and_flags()
    fields.take(16 if version == 1 else 8)
    return shown[0].media_time > fields.unsigned(4)
