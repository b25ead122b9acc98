"""What is in a file that cannot be indexed, from the answer of ffprobe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from app.video.index.entries import MAX_TRACKS
from app.video.index.languages import shortest_code
from app.video.index.texts import MAX_CHAPTERS, MAX_TITLE_CHARACTERS
from app.video.serve.facts import Chapter, Facts, TrackFacts

LOWEST_SCORE = 10
"""Of 100: ffprobe takes noise for MP3 with a score of 1."""

TEXTS = frozenset(("subrip", "ass", "ssa", "webvtt", "mov_text", "text"))
"""Subtitles that ffmpeg makes those of MP4. Others are pictures, or need libraries of their own."""

_HDR = {"smpte2084": "PQ", "arib-std-b67": "HLG"}

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProbedTrack:
    """A track, and its number in the file."""

    number: int
    facts: TrackFacts


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in a file. Covers and attachments are left out."""

    facts: Facts
    tracks: Sequence[ProbedTrack]

    @property
    def picture(self) -> ProbedTrack | None:
        """The first video track."""
        return next((track for track in self.tracks if track.facts.kind == "video"), None)

    def of_kind(self, kind: str) -> list[ProbedTrack]:
        """The tracks of a kind, in the order of the file."""
        return [track for track in self.tracks if track.facts.kind == kind]

    @property
    def is_film(self) -> bool:
        """Whether there is anything to see or to hear."""
        return self.picture is not None or bool(self.of_kind("audio"))


def contents_of(answer: Values) -> Contents:
    """The contents, from what `Ffmpeg.probe` returns. Numbers that make no sense are left out."""
    container = _mapping(answer.get("format"))
    streams = [_mapping(stream) for stream in _list(answer.get("streams"))]
    tracks = [track for stream in streams if (track := _track(stream))][:MAX_TRACKS]
    if _number(container.get("probe_score", 100)) < LOWEST_SCORE:
        tracks = []
    picture = next((stream for stream in streams if _kind(stream) == "video"), {})
    width, height, rotation = _shown(picture)
    facts = Facts(
        container=str(container.get("format_name", "unknown")).partition(",")[0],
        duration=_positive(container.get("duration")),
        width=width,
        height=height,
        rotation=rotation,
        frame_rate=_rate(picture),
        hdr=_HDR.get(str(picture.get("color_transfer"))),
        tracks=tuple(track.facts for track in tracks),
        chapters=_chapters(_list(answer.get("chapters"))),
    )
    return Contents(facts, tracks)


def _track(stream: Values) -> ProbedTrack | None:
    kind, number = _kind(stream), stream.get("index")
    if kind is None or not isinstance(number, int):
        return None
    tags = _mapping(stream.get("tags"))
    is_picture = kind == "video"
    facts = TrackFacts(
        kind=kind,
        codec=str(stream.get("codec_name", "unknown")),
        language=shortest_code(str(tags.get("language", ""))),
        title=str(tags.get("title", ""))[:MAX_TITLE_CHARACTERS] or None,
        bit_rate=_whole(stream.get("bit_rate")),
        width=_whole(stream.get("width")) if is_picture else None,
        height=_whole(stream.get("height")) if is_picture else None,
        frame_rate=_rate(stream) if is_picture else None,
        channels=_whole(stream.get("channels")),
        sample_rate=_whole(stream.get("sample_rate")),
    )
    return ProbedTrack(number, facts)


def _kind(stream: Values) -> str | None:
    """The kind of a track; subtitles of which players show none are "other"."""
    kind = stream.get("codec_type")
    if kind == "subtitle":
        return "text" if stream.get("codec_name") in TEXTS else "other"
    if kind == "video" and not _mapping(stream.get("disposition")).get("attached_pic"):
        return "video"
    return "audio" if kind == "audio" else None


def _shown(picture: Values) -> tuple[int | None, int | None, int]:
    """Width and height as they are shown, and by how many degrees the picture is turned."""
    width, height = _whole(picture.get("width")), _whole(picture.get("height"))
    rotation = _rotation(picture)
    if width is None or height is None:
        return None, None, rotation
    aspect = _fraction(picture.get("sample_aspect_ratio"), ":") or Fraction(1)
    width = round(width * aspect)
    return (height, width, rotation) if rotation % 180 else (width, height, rotation)


def _rotation(picture: Values) -> int:
    sides = map(_mapping, _list(picture.get("side_data_list")))
    turned = next((side["rotation"] for side in sides if "rotation" in side), 0)
    return round(-_number(turned) / 90) * 90 % 360  # ffprobe counts against the clock


def _rate(picture: Values) -> float | None:
    rate = _fraction(picture.get("avg_frame_rate"), "/")
    return round(float(rate), 3) if rate else None


def _chapters(found: Sequence[Any]) -> tuple[Chapter, ...]:
    chapters = map(_mapping, found[:MAX_CHAPTERS])
    return tuple(
        Chapter(
            round(max(_number(chapter.get("start_time")), 0), 3),
            str(_mapping(chapter.get("tags")).get("title", ""))[:MAX_TITLE_CHARACTERS],
        )
        for chapter in chapters
    )


def _fraction(text: Any, sign: str) -> Fraction | None:
    over, _, under = str(text).partition(sign)
    if not (over.isdecimal() and under.isdecimal() and int(under)):
        return None
    return Fraction(int(over), int(under)) or None


def _positive(value: Any) -> float | None:
    number = _number(value)
    return round(number, 3) if number > 0 else None


def _whole(value: Any) -> int | None:
    return int(_number(value)) or None


def _number(value: Any) -> float:
    """A number of ffprobe, which prints some of them as text; 0 for what is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) else 0.0


def _mapping(value: Any) -> Values:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []
