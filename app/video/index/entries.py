"""Estimates the cost of an index before any of its tables is read.

A table of 20 bytes can describe ten million samples, so neither the size of a file nor the size of
its index predicts how long reading takes. An entry, such as a sample, stands for about 1 us of CPU
time and 50 bytes of memory for everything that is made for players.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from app.video.index.boxes import Box, Fields, FileBox, LongIndex, NotIndexable, boxes_in, children
from app.video.index.edits import read_edits
from app.video.index.samples import MAX_SAMPLES, most_samples

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
            samples = 0 if _is_read_by_chunks(media, tables) else _sample_count(tables)
            is_cut = _is_cut(boxes, media)
        except NotIndexable:  # A table ends early: the track is not used.
            return cls()
        rows = sum(
            len(tables[kind].payload) // width
            for kind, width in _ROW_BYTES.items()
            if kind in tables
        )
        return cls(samples, rows, is_cut)


def _sample_count(tables: Mapping[bytes, Box]) -> int:
    if b"stsz" in tables:
        fields = Fields(tables[b"stsz"].payload)
        fields.version_and_flags()
        each, count = fields.unsigned(4), fields.unsigned(4)
        return count if each else min(count, fields.remaining // 4)
    if b"stz2" in tables:
        return min(_count_in(tables[b"stz2"], skipped=4), 2 * len(tables[b"stz2"].payload))
    return 0


def _count_in(box: Box, *, skipped: int = 0) -> int:
    fields = Fields(box.payload)
    fields.version_and_flags()
    fields.take(skipped)
    return fields.unsigned(4)


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
