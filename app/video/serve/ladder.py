"""The renditions offered of a video: the bitrate ladder, limited by the measured encoding speed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

import msgspec
from sqlalchemy import delete, select, update

from app.db.engine import Database
from app.db.sql import insert_unless_known
from app.db.tables import encoders
from app.video.index.tracks import Track
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

    @classmethod
    def of(cls, source: Stream, quality: int) -> RenditionFormat:
        """The rendition of a video track with `quality` pixels on its shorter side."""
        scale = min(quality / min(source.width, source.height), 1)
        width, height = _even(source.width * scale), _even(source.height * scale)
        usual = PEAK_RATES[quality] * (1.5 if source.frame_rate > USUAL_FRAME_RATE else 1)
        peak = max(min(round(usual), source.mean_rate), LOWEST_PEAK_RATE)
        blocks = -(-width // 16) * -(-height // 16)
        blocks_a_second = blocks * max(source.frame_rate, USUAL_FRAME_RATE)
        # The lowest sufficient level, or the highest there is.
        level = next(
            (level for level, most, rate in _LEVELS if blocks <= most and blocks_a_second <= rate),
            _LEVELS[-1][0],
        )
        return cls(
            quality=quality,
            width=width,
            height=height,
            peak_rate=peak,
            mean_rate=round(peak * MEAN_SHARE),
            codecs=f"avc1.6400{level:02x}",
            frame_rate=source.frame_rate,
        )


def ladder(picture: Stream, capability: Capability | None) -> list[RenditionFormat]:
    """The renditions of a video track that this host can encode in real time, lowest first.

    They are smaller than the source; one of its size is added if some browsers cannot decode the
    source. The lowest is always offered, unless key frames are too rare. Empty without a
    capability: there is no encoder then.
    """
    side, lowest = min(picture.width, picture.height), min(PEAK_RATES)
    if capability is None or side < 2:
        return []
    if not is_decoded_in_time(picture.longest_group * picture.width * picture.height, capability):
        return []
    is_everywhere = (
        is_played_everywhere(picture.codecs)
        and picture.video_range == "SDR"
        and not picture.has_open_groups
    )
    formats = []
    for quality in PEAK_RATES:
        own_size = quality == side or (quality == lowest and side < lowest)
        if quality < side or (own_size and not is_everywhere):
            formats.append(RenditionFormat.of(picture, quality))
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


def _megapixels(width: int, height: int, frame_rate: float) -> float:
    """Megapixels per second."""
    return width * height * frame_rate / 1e6


def _even(pixels: float) -> int:
    return max(2 * round(pixels / 2), 2)


# ---- capability ----------------------------------------------------------------------------------

# The encoding speed of this host, measured by the background worker; decides which renditions are
# offered.
#
# Without a measurement there is no encoder, and no renditions are offered.


FILE = ".encoder.json"
"""In the media folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """A measurement and its conditions: another ffmpeg, machine or option is measured again."""

    encoder: str
    """The version of ffmpeg."""
    processors: int = 1
    options: str = ""
    """Options of the encoder."""
    megapixels_per_second: float
    """Encoding speed, with the options of segments."""


def read_capability(media: Path) -> Capability | None:
    """Returns the stored measurement; None if there is none, or if the file is damaged.

    `media` is the media folder. Costs one `stat` of the file.
    """
    path = media / FILE
    with suppress(FileNotFoundError, ValueError):
        return _read(path, path.stat().st_mtime_ns)
    return None


def write_capability(capability: Capability, media: Path, scratch: Path) -> None:
    """Store a measurement; `scratch` is a private folder on the same disk."""
    made = scratch / FILE
    with made.open("wb") as file:
        file.write(msgspec.json.encode(capability))
        file.flush()
        os.fsync(file.fileno())  # Otherwise a power cut may leave an empty file in its place.
    made.replace(media / FILE)


def discard_capability(media: Path) -> None:
    """Delete the measurement: there is no encoder any more."""
    (media / FILE).unlink(missing_ok=True)


@lru_cache(maxsize=1)
def _read(path: Path, _changed_at: int) -> Capability:
    return msgspec.json.decode(path.read_bytes(), type=Capability)


_DECODED = re.compile(
    r"avc[1-4]|ai[15][0-9pq]|hvc1|hev1|av01|vp0[89]|mp4v|m2v1|mp2v|mpg2|xd[v5].|hdv.|mx[345][np]|"
    r"ap(ch|cn|cs|co|4h|4x)|AVd[nh]|CFHD|dv(c |cp|pp|5n|5p|h.)|mjp[abg]|jpeg|png |rle |SVQ[13]|"
    r"cvid|2vuy|v210|[sh]263"
)
"""Video sample entries written by cameras and editors that every ffmpeg decodes."""


def is_decoded(picture: Track) -> bool:
    """Whether ffmpeg supports the codec; the track may still be damaged."""
    return _DECODED.fullmatch(picture.entry.fourcc) is not None


# ---- shared capability ---------------------------------------------------------------------------

# The encoding speed of the nodes of a fleet, so that all offer the same renditions: one row for
# each background worker.


FRESH_FOR = timedelta(minutes=15)
"""A worker that has not reported for this long is gone: each reports every five minutes."""

ASKED_SECONDS = 5.0
"""How often the other nodes' reports are read."""


@dataclass
class SharedCapability:
    """The capability of the slowest background worker, so that each is fast enough for any job.

    Segments from a different ffmpeg must match the others, or are rejected.
    """

    database: Database
    own: Callable[[], Capability | None]
    """This machine's measured capability."""
    clock: Callable[[], datetime]
    _found: Capability | None = None
    _ask_at: float = 0.0

    def __call__(self) -> Capability | None:
        """The capability; this machine's own until a worker has reported one."""
        if time.monotonic() >= self._ask_at:
            is_live = encoders.c.told_at >= self.clock() - FRESH_FOR
            with self.database.read() as connection:
                rows = connection.scalars(select(encoders.c.facts).where(is_live)).all()
            reported = [msgspec.json.decode(facts, type=Capability) for facts in rows]
            self._found = min(reported, key=lambda each: each.megapixels_per_second, default=None)
            self._ask_at = time.monotonic() + ASKED_SECONDS
        return self._found or self.own()

    def report(self, worker: str) -> None:
        """Report the capability of this machine's worker, if it is known.

        Deletes the rows of workers that are gone. A stopping worker may report at the same time as
        its successor of the same name.
        """
        if (own := self.own()) is None:
            return
        now, is_own = self.clock(), encoders.c.worker == worker
        is_old = ~is_own & (encoders.c.told_at < now - FRESH_FOR)
        facts = {"facts": msgspec.json.encode(own).decode(), "told_at": now}
        with self.database.write() as connection:
            connection.execute(delete(encoders).where(is_old))
            if not connection.execute(update(encoders).where(is_own).values(facts)).rowcount:
                insert_unless_known(connection, encoders, {"worker": worker, **facts})
