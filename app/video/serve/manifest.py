"""The streams that the index made of a film, as they are kept for those who play it."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from app.core.ranges import ByteRange
from app.video.index.playlists import VideoRange
from app.video.serve.facts import known_members

_COLUMNS = ("ends", "durations", "reaches", "rung_durations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One track of the film, cut into segments.

    For each segment: `ends` is where it ends in its virtual file, `durations` how long it lasts in
    seconds, and `reaches` where the bytes end that it, or one before it, takes from the source.
    `rung_durations` are those of the segments in other qualities, where they are cut elsewhere.
    Rates are bits per second; what a kind of track does not have is 0.
    """

    name: str
    kind: str
    codecs: str
    peak_rate: int
    mean_rate: int
    ends: tuple[int, ...]
    durations: tuple[float, ...]
    reaches: tuple[int, ...]
    language: str = "und"
    title: str = ""
    width: int = 0
    height: int = 0
    frame_rate: float = 0.0
    video_range: VideoRange = "SDR"
    channels: int = 0
    file: str = ""
    """The made file that its bytes are in; empty for the original, or what was remuxed of it."""
    rung_durations: tuple[float, ...] = ()
    is_played: bool = True
    """Whether any browser decodes it; if not, only other qualities of it are offered."""
    has_open_groups: bool = False
    """Whether key frames of H.264 are not independent: Chromium gives up after a seek to one in
    HLS, and plays nothing of a film that begins with one."""
    longest_group: int = 0
    """The most pictures from a key frame up to the next one; 0 in manifests of earlier versions."""

    @property
    def rung_segments(self) -> tuple[float, ...]:
        """How long each segment lasts in other qualities, in seconds."""
        return self.rung_durations or self.durations

    def available(self, arrived: int) -> int:
        """How many segments can be played with the first `arrived` bytes of the source."""
        return bisect_right(self.reaches, arrived)

    def span(self, number: int) -> ByteRange | None:
        """Where a segment is in the virtual file, counted from 1; None if there is no such one."""
        if not 1 <= number <= len(self.ends):
            return None
        return ByteRange(self.ends[number - 2] if number > 1 else 0, self.ends[number - 1])


@dataclass(frozen=True, slots=True)
class Manifest:
    """All streams of a film: its picture, if it has one, first."""

    streams: Sequence[Stream]

    def stream(self, name: str) -> Stream | None:
        """The stream of that name."""
        return next((stream for stream in self.streams if stream.name == name), None)

    @property
    def picture(self) -> Stream | None:
        """The picture."""
        return next((stream for stream in self.streams if stream.kind == "video"), None)

    def to_json(self) -> bytes:
        """The stored form."""
        return json.dumps([asdict(stream) for stream in self.streams]).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """The manifest that `to_json` has written; members of a later version are ignored."""
        return cls([_stream(values) for values in json.loads(data)])


def _stream(values: dict[str, Any]) -> Stream:
    columns = {name: tuple(values.get(name, ())) for name in _COLUMNS}
    # Earlier versions looked at the first key frame only.
    values = {"has_open_groups": values.get("begins_tied", False), **values}
    return Stream(**{**known_members(Stream, values), **columns})
