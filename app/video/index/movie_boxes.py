"""A new `moov` box for tracks of a movie: whole ones, chosen samples, or none, for fragments."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from app.video.index.boxes import (
    LARGEST_32_BIT,
    LARGEST_64_BIT,
    Box,
    big_endian,
    box,
    boxes_in,
    children,
    full_box,
)
from app.video.index.edits import Edit, edit_list
from app.video.index.samples import Samples
from app.video.index.tracks import Track

_UNITY_MATRIX = b"".join(
    number.to_bytes(4, "big") for number in (1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
)
_OWN_MEDIA = box(b"dinf", full_box(b"dref", 0, 0, b"\0\0\0\1", full_box(b"url ", 0, 1)))
_INFORMATION_HEADERS = frozenset(b"vmhd smhd nmhd sthd hmhd gmhd".split())


@dataclass(frozen=True, slots=True)
class Chunk:
    """Samples of a track that follow each other in a file."""

    offset: int
    samples: int


def movie_box(timescale: int, duration: int, *boxes: bytes | memoryview) -> bytes:
    """A `moov` with a header and `boxes`; the duration is in ticks of `timescale`."""
    header = full_box(
        b"mvhd",
        1,
        0,
        bytes(16),  # when it was made and changed
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
    """A `trak` with sample tables of its own, and what else describes the track.

    It lasts `durations` in ticks of the movie's timescale and of its own. Of the boxes that
    describe it to people and link it to other tracks, those of the kinds `kept` remain. It keeps
    its id without a `new_id`.
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
    """A copy with another duration, and perhaps another id."""
    payload = bytes(tkhd.payload)
    is_long = payload[0] == 1
    times, rest = (payload[4:20], payload[36:]) if is_long else (_long(payload[4:12]), payload[24:])
    track_id = payload[20:28] if is_long else payload[12:20]  # and four reserved bytes
    if new_id is not None:
        track_id = new_id.to_bytes(4, "big") + bytes(4)
    return box(b"tkhd", b"\1", payload[1:4], times, track_id, _number(duration), rest)


def _media_header(mdhd: Box, timescale: int, duration: int) -> bytes:
    """A copy with another timescale and duration."""
    payload = bytes(mdhd.payload)
    is_long = payload[0] == 1
    times, rest = (payload[4:20], payload[32:]) if is_long else (_long(payload[4:12]), payload[20:])
    ticks = timescale.to_bytes(4, "big")
    return box(b"mdhd", b"\1", payload[1:4], times, ticks, _number(duration), rest)


def _number(duration: int) -> bytes:
    """64 bits; the nearest number where a damaged file lasts longer, or ends before it begins."""
    return min(max(duration, 0), LARGEST_64_BIT).to_bytes(8, "big")


def _long(times: bytes) -> bytes:
    """Two 32-bit numbers as 64-bit ones."""
    return bytes(4) + times[:4] + bytes(4) + times[4:]


def sample_tables(
    description: memoryview, samples: Samples, chunks: Sequence[Chunk], *, is_wide: bool
) -> bytes:
    """An `stbl` box; `description` is its `stsd`, and `chunks` hold the samples in order."""
    return box(
        b"stbl",
        description,
        _table(b"stts", 0, _runs(samples.durations(0, len(samples))), 8),
        _composition_table(samples),
        b"" if len(samples.key_frames) == len(samples) else key_frame_table(samples.key_frames),
        full_box(
            b"stsz", 0, 0, bytes(4), len(samples).to_bytes(4, "big"), big_endian(samples.sizes)
        ),
        _table(b"stsc", 0, _chunk_runs(chunks), 12),
        chunk_table((chunk.offset for chunk in chunks), is_wide=is_wide),
    )


def no_sample_tables(description: bytes) -> bytes:
    """An `stbl` box of a track whose samples are in fragments."""
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


def _runs(values: Iterable[int]) -> array[int]:
    """How often each value is repeated, and the value, as 32-bit numbers in two's complement."""
    runs = ((sum(1 for _ in group), value & LARGEST_32_BIT) for value, group in groupby(values))
    return array("I", chain.from_iterable(runs))


def _composition_table(samples: Samples) -> bytes:
    if not any(samples.composition_offsets):
        return b""
    version = 1 if min(samples.composition_offsets) < 0 else 0
    return _table(b"ctts", version, _runs(samples.composition_offsets), 8)


def key_frame_table(numbers: Sequence[int]) -> bytes:
    """An `stss` box that names samples, counted from 0."""
    return _table(b"stss", 0, array("I", (number + 1 for number in numbers)), 4)


def _chunk_runs(chunks: Sequence[Chunk]) -> array[int]:
    """First chunk, samples in each and description, of each run of chunks alike."""
    runs = array("I")
    for number, chunk in enumerate(chunks, 1):
        if not runs or runs[-2] != chunk.samples:
            runs.extend((number, chunk.samples, 1))
    return runs
