"""Metadata of a video: stored with its record, and returned to players."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from itertools import accumulate
from operator import sub
from typing import Annotated, Any, Literal, Self, TypeVar

import msgspec

from app.core.errors import NotMade
from app.core.json_types import keywords
from app.core.playback import PlaybackProblem
from app.core.ranges import ByteRange
from app.video.index import texts
from app.video.index.movie import Movie
from app.video.index.tracks import Track

VideoRange = Literal["SDR", "PQ", "HLG"]

PICTURE_SUBTITLES = frozenset(("dvd_subtitle", "hdmv_pgs_subtitle", "dvb_subtitle", "xsub"))
"""ffmpeg's names of bitmap subtitles."""

_PICTURE_SUBTITLES = PlaybackProblem(
    "picture_subtitles",
    "Its subtitles are images, which browsers cannot show: they are only in the download.",
)
_TRUNCATED = PlaybackProblem(
    "truncated", "The file is damaged or cut off. It plays as far as it goes."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackFacts:
    """One track. Rates are per second."""

    kind: Annotated[str, keywords(enum=["video", "audio", "text", "other"])]
    """`other` is for tracks that players do not use."""
    codec: str
    """RFC 6381 name, such as `avc1.64001f`; ffmpeg's name if there is none."""
    language: str = "und"
    """BCP 47; `und` if the file does not say."""
    title: str | None = None
    bit_rate: int | None = None
    """Bits per second, on average."""
    width: int | None = None
    height: int | None = None
    frame_rate: float | None = None
    channels: int | None = None
    sample_rate: int | None = None
    """Hz."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """A chapter; `start` in seconds."""

    start: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Metadata of a file. Width and height are display pixels, after rotation and pixel aspect."""

    container: str
    """ffmpeg's name of the format, such as "mp4" or "matroska"."""
    duration: float | None
    """Seconds."""
    width: int | None = None
    height: int | None = None
    rotation: int = 0
    """Degrees clockwise by which the stored video is rotated."""
    frame_rate: float | None = None
    hdr: str | None = None
    """"PQ" or "HLG"; None for SDR."""
    is_truncated: bool = False
    tracks: tuple[TrackFacts, ...] = ()
    chapters: tuple[Chapter, ...] = ()

    @classmethod
    def of(cls, movie: Movie, chapters: Sequence[texts.ChapterMark] = ()) -> Self:
        """The metadata in the index of an MP4 or MOV file."""
        picture = movie.picture
        return cls(
            container="mov" if movie.brand.startswith("qt") else "mp4",
            duration=round(float(movie.duration), 3),
            width=picture.width if picture else None,
            height=picture.height if picture else None,
            rotation=picture.rotation if picture else 0,
            frame_rate=_rounded(picture.frame_rate) if picture else None,
            hdr=picture.entry.hdr and picture.entry.hdr.upper() if picture else None,
            is_truncated=movie.is_truncated,
            tracks=tuple(map(_track_facts, movie.tracks)),
            chapters=tuple(
                Chapter(round(float(chapter.start), 3), chapter.title) for chapter in chapters
            ),
        )

    def completed_by(self, made: Facts) -> Facts:
        """These facts of an original, completed with those of its indexed copy.

        Both have the same tracks, apart from chapters and tracks that are left out of the copy.
        """
        others = {kind: iter(made.of_kind(kind)) for kind in ("video", "audio", "text", "other")}
        tracks = (_completed(track, next(others[track.kind], None)) for track in self.tracks)
        known = _completed(self, made)
        chapters = self.chapters or made.chapters
        return replace(known, tracks=tuple(tracks), duration=made.duration, chapters=chapters)

    @property
    def problem(self) -> PlaybackProblem | None:
        """A problem that viewers should know about although the video plays."""
        if self.is_truncated:
            return _TRUNCATED
        if any(track.codec in PICTURE_SUBTITLES for track in self.tracks):
            return _PICTURE_SUBTITLES
        return None

    def of_kind(self, kind: str) -> list[TrackFacts]:
        """The tracks of a kind, in file order."""
        return [track for track in self.tracks if track.kind == kind]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Parses the output of `to_json`; members of later versions are ignored."""
        return msgspec.convert(values, cls)


_Described = TypeVar("_Described", Facts, TrackFacts)


def _completed(facts: _Described, other: _Described | None) -> _Described:
    """Fills the members that are None from `other`."""
    found = {field.name: getattr(facts, field.name) for field in fields(facts)}
    missing = [name for name, value in found.items() if value is None]
    return type(facts)(**found | {name: getattr(other, name, None) for name in missing})


def _track_facts(track: Track) -> TrackFacts:
    is_video = track.kind == "video"
    return TrackFacts(
        kind=track.kind,
        codec=track.codec,
        language=track.language,
        title=track.title or None,
        bit_rate=track.bit_rate or None,
        width=track.width if is_video else None,
        height=track.height if is_video else None,
        frame_rate=_rounded(track.frame_rate) if is_video else None,
        channels=track.entry.channels or None,
        sample_rate=track.sample_rate or None,
    )


def _rounded(rate: Fraction) -> float:
    return round(float(rate), 3)


# ---- manifest ------------------------------------------------------------------------------------

# The HLS streams of a video, as stored for players.


PLAY_FILE = "play.virtual"
MANIFEST = "hls.json"
SOUND_FILE = "sound.mp4"
"""Names of files in the folder of a video."""

_VIDEO_RANGES: Mapping[str | None, VideoRange] = {"pq": "PQ", "hlg": "HLG"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One track of the video, cut into segments.

    For each segment: `ends` is its end in its virtual file, `durations` its duration in seconds,
    and `reaches` the end of the source bytes that it or an earlier segment needs.
    `rung_durations` are the durations of segments of renditions, if they are cut differently.
    Rates are bits per second; values that do not apply to the kind of track are 0.
    """

    name: str
    kind: str
    codecs: str
    peak_rate: int
    mean_rate: int
    ends: tuple[int, ...] = ()
    durations: tuple[float, ...] = ()
    reaches: tuple[int, ...] = ()
    language: str = "und"
    title: str = ""
    width: int = 0
    height: int = 0
    frame_rate: float = 0.0
    video_range: VideoRange = "SDR"
    channels: int = 0
    file: str = ""
    """The derived file that contains its bytes; empty for the original or its remuxed copy."""
    rung_durations: tuple[float, ...] = ()
    is_played: bool = True
    """Whether any browser decodes it; if not, only its renditions are offered."""
    has_open_groups: bool = False
    """Whether H.264 key frames are not independent: Chromium stops with an error after a seek to
    one in HLS, and does not play a video that begins with one."""
    longest_group: int = 0
    """The most frames from a key frame up to the next one; 0 in manifests of earlier versions."""

    @classmethod
    def of(
        cls,
        name: str,
        track: Track,
        ends: Sequence[int],
        durations: Sequence[float],
        reaches: Sequence[int],
    ) -> Self:
        """The stream of a track that is cut into these segments; `reaches` of each on its own."""
        sizes = map(sub, ends, [0, *ends])
        rates = [_bit_rate(size, lasts) for size, lasts in zip(sizes, durations, strict=True)]
        mean = _bit_rate(ends[-1], sum(durations))
        return cls(
            name=name,
            kind=track.kind,
            codecs=track.codec,
            peak_rate=max(mean, *rates),
            mean_rate=mean,
            ends=tuple(ends),
            durations=tuple(durations),
            reaches=tuple(accumulate(reaches, max)),
            language=track.language,
            title=track.title,
            width=track.width,
            height=track.height,
            frame_rate=_rounded(track.frame_rate),
            video_range=_VIDEO_RANGES.get(track.entry.hdr, "SDR"),
            channels=track.entry.channels,
        )

    @property
    def rung_segments(self) -> tuple[float, ...]:
        """Duration of each segment of a rendition, in seconds."""
        return self.rung_durations or self.durations

    def available(self, arrived: int) -> int:
        """Number of segments that can be played with the first `arrived` bytes of the source."""
        return bisect_right(self.reaches, arrived)

    def span(self, number: int) -> ByteRange | None:
        """Range of a segment in the virtual file, counted from 1; None if it does not exist."""
        if not 1 <= number <= len(self.ends):
            return None
        return ByteRange(self.ends[number - 2] if number > 1 else 0, self.ends[number - 1])


def _bit_rate(size: int, seconds: float) -> int:
    """Bits per second; durations below 0.1 s count as 0.1 s."""
    return round(8 * size / max(seconds, 0.1))


@dataclass(frozen=True, slots=True)
class Manifest:
    """All streams of a video; the video stream, if any, is first."""

    streams: Sequence[Stream]

    def stream(self, name: str) -> Stream:
        """The stream of that name; raises `NotMade`."""
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise NotMade("The video has no stream of this name.")

    @property
    def picture(self) -> Stream | None:
        """The video stream."""
        return next((stream for stream in self.streams if stream.kind == "video"), None)

    def to_json(self) -> bytes:
        """The stored form."""
        return json.dumps([asdict(stream) for stream in self.streams]).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Parses the output of `to_json`; members of later versions are ignored."""
        streams = json.loads(data)  # Titles may have characters that msgspec's parser refuses.
        for values in streams:
            # Earlier versions checked only the first key frame.
            values.setdefault("has_open_groups", values.get("begins_tied", False))
        return cls(msgspec.convert(streams, list[Stream]))


# ---- browsers ------------------------------------------------------------------------------------

# Codecs that browsers decode. Players query the browser itself; this decides what is offered.
#
# Sources: caniuse.com's tables of H.264, HEVC, AV1, VP9, Opus, AC-3; the WebKit and Chromium lists
# of codecs that MP4 may contain.


_AVC = re.compile(r"avc[13]\.(42|4d|58|64)[0-9a-f]{4}", re.IGNORECASE)
"""Baseline, Main, Extended and High: 8 bits, 4:2:0. No browser plays High 10, 4:2:2 or 4:4:4."""

_SOME = re.compile(r"(hvc1|hev1|av01|vp08|vp09)(\.|$)", re.IGNORECASE)
"""Each is played by some browsers only: the playlist names the codec, and the browser selects."""

_AUDIO = re.compile(r"mp4a\.40\.(2|5|29|42)|mp4a\.(69|6b)|mp3|\.mp3|opus|flac", re.IGNORECASE)

_SEGMENTED_AUDIO = re.compile(r"mp4a\.40\.(2|5|29|42)|opus|flac", re.IGNORECASE)
"""Without MP3: Chromium does not support it in segments, and rejects the whole video."""

_WITHOUT_INDEX = re.compile(r"vp8|vp9|av1|opus|vorbis|flac|mp3|aac|pcm_[a-z0-9]+")
"""ffmpeg's names of codecs that browsers decode in WebM, Ogg, MP3, WAV and FLAC files. Browsers
have dropped Theora."""


def plays_without_index(*codecs: str) -> bool:
    """Whether browsers decode all these codecs in files that they play without an index."""
    return all(map(_WITHOUT_INDEX.fullmatch, codecs))


def plays_video(codec: str) -> bool:
    """Whether all or some browsers decode this video codec."""
    return is_played_everywhere(codec) or _SOME.match(codec) is not None


def is_played_everywhere(codec: str) -> bool:
    """Whether every browser decodes this video codec."""
    return _AVC.fullmatch(codec) is not None


def plays_audio(codec: str) -> bool:
    """Whether every browser decodes this audio codec."""
    return _AUDIO.fullmatch(codec) is not None


def plays_segmented_audio(codec: str) -> bool:
    """Whether every browser decodes this audio codec in segments."""
    return _SEGMENTED_AUDIO.fullmatch(codec) is not None
