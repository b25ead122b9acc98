"""Small videos with a few frames of a video, which ffmpeg decodes instead of all of it."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from app.core.ranges import ByteRange
from app.video.index.boxes import ReadAt
from app.video.index.muxing import film_of
from app.video.index.samples import Samples
from app.video.index.segments import is_independent, nal_length_size
from app.video.index.tracks import Track

MOST_BYTES = 128 << 20
"""Of one excerpt. If its key frames have more, every second one is left out, repeatedly."""

MOST_PARTS = 25
"""Of one excerpt, likewise: each part needs a decoder with its own memory."""

_HEVC_UNTIED, _HEVC_SPLICED = 21, 16  # CRA_NUT and BLA_W_LP (ITU-T H.265, table 7-1)
_LATER = 0.25  # seconds; ffmpeg ends a video at its last time, and drops a frame at exactly that


class ExcerptTooLarge(Exception):
    """Not even one frame fits an excerpt."""


@dataclass(frozen=True, slots=True)
class ExcerptPart:
    """Consecutive samples for one decoder; `begin` in seconds of the excerpt."""

    samples: Samples
    begin: float


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Samples of a track, and the times of the wanted frames."""

    track: Track
    parts: Sequence[ExcerptPart]
    rate: Fraction
    """Wanted frames per second of the excerpt."""
    starts: Sequence[Fraction]
    """Start of the time that each frame represents, in seconds of the video."""
    has_gaps: bool
    """Whether samples in between were left out."""

    @property
    def megapixels(self) -> float:
        """Megapixels to decode."""
        return sum(len(part.samples) for part in self.parts) * _pixels(self.track) / 1e6

    def write(self, read_at: ReadAt, folder: Path) -> Iterator[Path]:
        """Write the parts as MP4 files; `read_at` reads the video."""
        for number, part in enumerate(self.parts):
            path = folder / f"part-{number}.mp4"
            with path.open("wb") as target:
                for piece in film_of(self.track, part.samples):
                    target.write(self._bytes(piece, read_at))
            yield path

    def _bytes(self, piece: bytes | ByteRange, read_at: ReadAt) -> bytes:
        if not isinstance(piece, ByteRange):
            return piece
        samples = read_at(piece.start, piece.length)
        if self.has_gaps and self.track.is_hevc:
            return with_splices(samples, nal_length_size(self.track))
        return samples


def key_frames_near(track: Track, times: Iterable[Fraction]) -> list[int]:
    """Numbers of the key frames nearest to some times of the video, without duplicates."""
    return sorted({_key_frame_near(track, time) for time in times})


def _key_frame_near(track: Track, time: Fraction) -> int:
    samples, keys = track.samples, track.samples.key_frames
    tick = time * track.timescale - track.timeline.shift
    place = bisect_left(keys, bisect_left(samples.decode_times, tick))
    near = keys[max(place - 1, 0) : place + 1] or [0]
    return min(near, key=lambda number: abs(samples.decode_times[number] - tick))


def of_key_frames(track: Track, numbers: Sequence[int], read_at: ReadAt) -> Excerpt:
    """These key frames, or fewer, each shown for a second; raises `ExcerptTooLarge`."""
    sizes = track.samples.sizes
    while sum(sizes[number] for number in numbers) > MOST_BYTES:
        if len(numbers) == 1:
            raise ExcerptTooLarge("a single picture of it is too large")
        numbers = numbers[::2]
    while len(begins := _begins_of_parts(track, numbers, read_at)) > MOST_PARTS:
        numbers = numbers[::2]
    ends = [*begins[1:], len(numbers)]
    return Excerpt(
        track,
        [
            ExcerptPart(_a_second_each(track, numbers[begin:end]), begin + _LATER)
            for begin, end in zip(begins, ends, strict=True)
        ],
        Fraction(1),
        [Fraction(max(track.shown_at(number), 0), track.timescale) for number in numbers],
        has_gaps=True,
    )


def of_beginning(track: Track, count: int, *, pictures: int) -> Excerpt:
    """The first `count` samples, with `pictures` wanted frames evenly among them."""
    samples = track.samples.up_to(count)
    lasts = Fraction(max(samples.end - samples.decode_times[0], 1), track.timescale)
    return Excerpt(
        track,
        [ExcerptPart(samples, 0)],
        pictures / lasts,
        [number * lasts / pictures for number in range(pictures)],
        has_gaps=False,
    )


def count_within(track: Track, *, pixels: int) -> int:
    """Number of samples from the start within the limits `pixels` and `MOST_BYTES`."""
    count, left = 0, MOST_BYTES
    for size in track.samples.sizes[: pixels // max(_pixels(track), 1)]:
        left -= size
        if left < 0:
            break
        count += 1
    return count


def with_splices(samples: bytes, length_size: int) -> bytes:
    """Marks HEVC key frames as spliced: the frames before them are missing.

    A key frame in the middle of a video has its order relative to its neighbours; without those,
    decoders output it in the wrong order. This NAL unit type is for splicing (H.265, 3.15).
    """
    marked, start = bytearray(samples), 0
    while start + length_size < len(marked):
        unit = start + length_size
        if marked[unit] >> 1 & 0x3F == _HEVC_UNTIED:
            marked[unit] = _HEVC_SPLICED << 1 | marked[unit] & 1
        start = unit + int.from_bytes(marked[start:unit], "big")
    return bytes(marked)


def _begins_of_parts(track: Track, numbers: Sequence[int], read_at: ReadAt) -> list[int]:
    """Indexes in `numbers` where a new decoder is needed.

    H.264 has no type for splices: a key frame that is not independent (IDR) needs a new decoder.
    """
    later = range(1, len(numbers))
    return [0, *(place for place in later if not is_independent(track, numbers[place], read_at))]


def _a_second_each(track: Track, numbers: Sequence[int]) -> Samples:
    samples, count, second = track.samples, len(numbers), track.timescale
    return Samples(
        array("Q", (samples.offsets[number] for number in numbers)),
        array("I", (samples.sizes[number] for number in numbers)),
        array("q", range(0, count * second, second)),
        array("i", bytes(4 * count)),
        range(count),
        count * second,
    )


def _pixels(track: Track) -> int:
    return track.entry.width * track.entry.height
