"""The bitrate ladder: which renditions are offered of a video. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.video.serve.capability import Capability
from app.video.serve.facts import Stream, is_played_everywhere

PEAK_RATES: Mapping[int, int] = {360: 1_100_000, 720: 3_500_000, 1080: 6_500_000}
"""Renditions by their shorter side in pixels, with the bits per second that no segment exceeds, up
to `USUAL_FRAME_RATE`; 1.5 times as much above it."""

USUAL_FRAME_RATE = 30

LOWEST_PEAK_RATE = 64_000
"""Below this, the size of segment headers would matter."""

MEAN_SHARE = 0.6
"""Of the peak rate, as an estimate before a rendition is made: most videos stay below the peak."""

REAL_TIME_SHARE = 0.75
"""Of the measured speed: most videos are harder than a test image, and players prefetch."""

DECODED_AT_ONCE = 4
"""Source pixels that are decoded and scaled in the time that encoding one pixel takes; measured for
H.264 in 1080p."""

LONGEST_DECODING_SECONDS = 30
"""Time to decode from a key frame to the next one on this host, as a segment may need all of it. No
renditions are offered of a video that takes longer."""

_LEVELS = (
    (30, 1_620, 40_500),
    (31, 3_600, 108_000),
    (32, 5_120, 216_000),
    (40, 8_192, 245_760),
    (42, 8_704, 522_240),
    (50, 22_080, 589_824),
    (51, 36_864, 983_040),
    (52, 36_864, 2_073_600),
)
"""H.264 levels, each with macroblocks per frame and per second (ITU-T H.264, table A-1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenditionFormat:
    """A rendition of a video; `quality` is also its name. Rates are bits per second."""

    quality: int
    width: int
    """Display pixels; even, like the height."""
    height: int
    peak_rate: int
    mean_rate: int
    codecs: str
    frame_rate: float

    @property
    def level(self) -> int:
        """The H.264 level of its segments, times ten."""
        return int(self.codecs[-2:], 16)


def ladder(picture: Stream, capability: Capability | None) -> list[RenditionFormat]:
    """The renditions of a video track that this host can encode in real time, lowest first.

    They are smaller than the source; one of its size is added if some browsers cannot decode the
    source. The lowest is always offered, unless key frames are too rare. Empty without a
    capability: there is no encoder then.
    """
    if capability is None:
        return []
    if not is_decoded_in_time(picture.longest_group * picture.width * picture.height, capability):
        return []
    formats = [_format(picture, quality) for quality in _qualities(picture)]
    source = _megapixels(picture.width, picture.height, picture.frame_rate) / DECODED_AT_ONCE
    return [
        rendition
        for number, rendition in enumerate(formats)
        if number == 0
        or source + _megapixels(rendition.width, rendition.height, rendition.frame_rate)
        <= capability.megapixels_per_second * REAL_TIME_SHARE
    ]


def is_decoded_in_time(pixels: int, capability: Capability) -> bool:
    """Whether this many pixels, those between two key frames, can be decoded in time."""
    rate = capability.megapixels_per_second * DECODED_AT_ONCE
    return pixels / 1e6 <= rate * LONGEST_DECODING_SECONDS


def _qualities(picture: Stream) -> Iterator[int]:
    side = min(picture.width, picture.height)
    if side < 2:
        return
    is_everywhere = (
        is_played_everywhere(picture.codecs)
        and picture.video_range == "SDR"
        and not picture.has_open_groups
    )
    lowest = min(PEAK_RATES)
    for quality in PEAK_RATES:
        own_size = quality == side or (quality == lowest and side < lowest)
        if quality < side or (own_size and not is_everywhere):
            yield quality


def _format(picture: Stream, quality: int) -> RenditionFormat:
    scale = min(quality / min(picture.width, picture.height), 1)
    width, height = _even(picture.width * scale), _even(picture.height * scale)
    usual = PEAK_RATES[quality] * (1.5 if picture.frame_rate > USUAL_FRAME_RATE else 1)
    peak = max(min(round(usual), picture.mean_rate), LOWEST_PEAK_RATE)
    level = _level(width, height, max(picture.frame_rate, USUAL_FRAME_RATE))
    return RenditionFormat(
        quality=quality,
        width=width,
        height=height,
        peak_rate=peak,
        mean_rate=round(peak * MEAN_SHARE),
        codecs=f"avc1.6400{level:02x}",
        frame_rate=picture.frame_rate,
    )


def _level(width: int, height: int, frame_rate: float) -> int:
    """The lowest sufficient level, or the highest there is."""
    blocks = -(-width // 16) * -(-height // 16)
    for level, most, most_a_second in _LEVELS:
        if blocks <= most and blocks * frame_rate <= most_a_second:
            return level
    return _LEVELS[-1][0]


def _megapixels(width: int, height: int, frame_rate: float) -> float:
    """Megapixels per second."""
    return width * height * frame_rate / 1e6


def _even(pixels: float) -> int:
    return max(2 * round(pixels / 2), 2)
