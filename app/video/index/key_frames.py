"""Key frames that are independent, so that any player can begin to decode at them.

In H.264 those are the IDR pictures. Others, as x264 and broadcasters write them at the beginning of
open groups, are followed by pictures that refer to the group before. Chromium gives up at these.

HEVC needs no such care: its decoders begin at every IRAP picture, and leave out the leading
pictures that refer to what is before it (RASL; ITU-T H.265, 8.3.1). AV1 and VP9 have no open
groups.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain, pairwise

from app.video.index.boxes import ReadAt
from app.video.index.samples import MOST_REORDERED, Samples
from app.video.index.tracks import Track

MOST_LOOKED_AT = 500
"""Key frames of a film of which the media is read. Each takes up to 64 reads, all of them 0.1 s;
in a bucket, a request for the block that it begins in, and seldom one for the next."""

_SAMPLED = 4
"""Key frames that stand for all of a film without leading pictures."""

_DEPENDENT_SLICES, _INDEPENDENT_SLICE = range(1, 5), 5  # ITU-T H.264, table 7-1
_MOST_UNITS = 64  # are looked at before the first slice of a picture
_MOST_BYTES = 64 << 10  # likewise: parameter sets and captions take a few KiB


def independent_key_frames(
    track: Track, read_at: ReadAt, most: int = MOST_LOOKED_AT
) -> Sequence[int]:
    """The key frames at which every player can begin; all of other codecs than H.264.

    `read_at` reads the film. Where more than `most` may be independent, some are left out, evenly.
    """
    keys = track.samples.key_frames
    if not track.is_h264 or len(keys) == len(track.samples):
        return keys
    possible = _without_leading(track.samples)
    sampled = _evenly(possible, _SAMPLED)
    if len(possible) == len(keys) and all(is_independent(track, key, read_at) for key in sampled):
        return keys
    looked_at = _evenly(possible, most)
    return array("I", (key for key in looked_at if is_independent(track, key, read_at)))


def is_independent(track: Track, number: int, read_at: ReadAt) -> bool:
    """Whether a key frame can be decoded without what is before it: of H.264, an IDR picture."""
    if not track.is_h264:
        return True
    length_size, position = nal_length_size(track), track.samples.offsets[number]
    end = position + min(track.samples.sizes[number], _MOST_BYTES)
    for _ in range(_MOST_UNITS):
        header = read_at(position, length_size + 1) if position < end else b""
        if len(header) <= length_size:
            break
        kind = header[-1] & 0x1F
        if kind in _DEPENDENT_SLICES or kind == _INDEPENDENT_SLICE:
            return kind == _INDEPENDENT_SLICE
        position += length_size + int.from_bytes(header[:length_size], "big")
    return True


def nal_length_size(track: Track) -> int:
    """Bytes before each unit of a sample that say how long it is (ISO/IEC 14496-15, 5.3, 8.3)."""
    kind, place = (b"hvcC", 21) if track.is_hevc else (b"avcC", 4)
    configuration = track.entry.box.partition(kind)[2]
    return (configuration[place] & 3) + 1 if len(configuration) > place else 4


def _without_leading(samples: Samples) -> Sequence[int]:
    """The key frames before which nothing is shown of what is decoded after them."""
    groups = pairwise(chain(samples.key_frames, (len(samples),)))
    return [key for key, end in groups if not _has_leading(samples, key, end)]


def _has_leading(samples: Samples, key: int, end: int) -> bool:
    last = min(end, key + MOST_REORDERED)
    return min(samples.composition_times(key, last)) < samples.composition_time(key)


def _evenly(numbers: Sequence[int], most: int) -> Sequence[int]:
    """The numbers, or so many of them."""
    if len(numbers) <= most:
        return numbers
    return [numbers[place * len(numbers) // most] for place in range(most)]
