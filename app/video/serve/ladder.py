"""Which other qualities a film is offered in: the rungs of its ladder. Values; nothing is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.video.serve.capability import Capability
from app.video.serve.facts import Stream, is_played_everywhere

PEAK_RATES: Mapping[int, int] = {360: 1_100_000, 720: 3_500_000, 1080: 6_500_000}
"""The qualities, each by the shorter side of its picture in pixels, and the bits a second that no
segment exceeds, up to `USUAL_FRAME_RATE`; half as much again beyond it."""

USUAL_FRAME_RATE = 30

LOWEST_PEAK_RATE = 64_000
"""Below this, the headers of segments would count."""

MEAN_SHARE = 0.6
"""Of the peak rate, as an estimate before a rung is made: most films need less than their peak."""

REAL_TIME_SHARE = 0.75
"""Of what the host encodes: most films are harder than a test picture, and players load ahead."""

DECODED_AT_ONCE = 4
"""Pixels of the source that are decoded and scaled in the time in which one is encoded; measured
for H.264 of 1080p."""

LONGEST_DECODING_SECONDS = 30
"""On this host, from a key frame to the next one: a segment may need all of that to be decoded. A
film that needs longer is offered in no other quality."""

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
"""Levels of H.264, each with macroblocks in a picture and in a second (ITU-T H.264, table A-1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One quality of a film; `quality` is its name, too. Rates are bits a second."""

    quality: int
    width: int
    """Pixels as shown; even, like the height."""
    height: int
    peak_rate: int
    mean_rate: int
    codecs: str
    frame_rate: float

    @property
    def level(self) -> int:
        """The level of H.264 that its segments declare, times ten."""
        return int(self.codecs[-2:], 16)


def ladder(picture: Stream, capability: Capability | None) -> list[Rung]:
    """The rungs that this host can make of a picture as fast as it is watched, the lowest first.

    They are smaller than the picture; one of its size is added where some browsers cannot decode
    it. The lowest is always offered, unless key frames are too rare. None without a capability:
    there is no encoder then.
    """
    if capability is None:
        return []
    if not is_decoded_in_time(picture.longest_group * picture.width * picture.height, capability):
        return []
    rungs = [_rung(picture, quality) for quality in _qualities(picture)]
    source = _megapixels(picture.width, picture.height, picture.frame_rate) / DECODED_AT_ONCE
    return [
        rung
        for number, rung in enumerate(rungs)
        if number == 0
        or source + _megapixels(rung.width, rung.height, rung.frame_rate)
        <= capability.megapixels_per_second * REAL_TIME_SHARE
    ]


def is_decoded_in_time(pixels: int, capability: Capability) -> bool:
    """Whether as many pixels as there are between two key frames are decoded soon enough."""
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


def _rung(picture: Stream, quality: int) -> Rung:
    scale = min(quality / min(picture.width, picture.height), 1)
    width, height = _even(picture.width * scale), _even(picture.height * scale)
    usual = PEAK_RATES[quality] * (1.5 if picture.frame_rate > USUAL_FRAME_RATE else 1)
    peak = max(min(round(usual), picture.mean_rate), LOWEST_PEAK_RATE)
    level = _level(width, height, max(picture.frame_rate, USUAL_FRAME_RATE))
    return Rung(
        quality=quality,
        width=width,
        height=height,
        peak_rate=peak,
        mean_rate=round(peak * MEAN_SHARE),
        codecs=f"avc1.6400{level:02x}",
        frame_rate=picture.frame_rate,
    )


def _level(width: int, height: int, frame_rate: float) -> int:
    """The lowest level for such pictures, or the highest there is."""
    blocks = -(-width // 16) * -(-height // 16)
    for level, most, most_a_second in _LEVELS:
        if blocks <= most and blocks * frame_rate <= most_a_second:
            return level
    return _LEVELS[-1][0]


def _megapixels(width: int, height: int, frame_rate: float) -> float:
    """In a second."""
    return width * height * frame_rate / 1e6


def _even(pixels: float) -> int:
    return max(2 * round(pixels / 2), 2)
