"""Reads ffprobe's output for files that cannot be indexed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, Self

from app.video.index.languages import shortest_code
from app.video.index.movie import FIRST_BOXES
from app.video.index.samples import MAX_TRACKS
from app.video.index.texts import MAX_CHAPTERS, MAX_TITLE_CHARACTERS
from app.video.serve.facts import Chapter, Facts, TrackFacts

LOWEST_SCORE = 10
"""Of 100: ffprobe takes noise for MP3 with a score of 1."""

TEXTS = frozenset(("subrip", "ass", "ssa", "webvtt", "mov_text", "text"))
"""Subtitles that ffmpeg converts to MP4. Others are bitmaps, or need additional libraries."""

_HDR = {"smpte2084": "PQ", "arib-std-b67": "HLG"}

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProbedTrack:
    """A track and its stream index in the file."""

    number: int
    facts: TrackFacts

    @classmethod
    def of(cls, stream: Values) -> Self | None:
        """A stream of ffprobe; None if players do not use its kind."""
        kind, number = _kind(stream), stream.get("index")
        if kind is None or not isinstance(number, int):
            return None
        tags = _mapping(stream.get("tags"))
        is_video = kind == "video"
        facts = TrackFacts(
            kind=kind,
            codec=str(stream.get("codec_name", "unknown")),
            language=shortest_code(str(tags.get("language", ""))),
            title=str(tags.get("title", ""))[:MAX_TITLE_CHARACTERS] or None,
            bit_rate=_whole(stream.get("bit_rate")),
            width=_whole(stream.get("width")) if is_video else None,
            height=_whole(stream.get("height")) if is_video else None,
            frame_rate=_rate(stream) if is_video else None,
            channels=_whole(stream.get("channels")),
            sample_rate=_whole(stream.get("sample_rate")),
        )
        return cls(number, facts)


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of a file, without covers and attachments."""

    facts: Facts
    tracks: Sequence[ProbedTrack]

    @property
    def picture(self) -> ProbedTrack | None:
        """The first video track."""
        return next((track for track in self.tracks if track.facts.kind == "video"), None)

    def of_kind(self, kind: str) -> list[ProbedTrack]:
        """The tracks of a kind, in file order."""
        return [track for track in self.tracks if track.facts.kind == kind]

    @property
    def has_media(self) -> bool:
        """Whether it has a video or audio track."""
        return self.picture is not None or bool(self.of_kind("audio"))


def contents_of(answer: Values) -> Contents:
    """Parses the result of `Ffmpeg.probe`. Invalid numbers are left out."""
    container = _mapping(answer.get("format"))
    streams = [_mapping(stream) for stream in _list(answer.get("streams"))]
    tracks = [track for stream in streams if (track := ProbedTrack.of(stream))][:MAX_TRACKS]
    if _number(container.get("probe_score", 100)) < LOWEST_SCORE:
        tracks = []
    picture = next((stream for stream in streams if _kind(stream) == "video"), {})
    # Display pixels, after rotation and pixel aspect.
    width, height = _whole(picture.get("width")), _whole(picture.get("height"))
    sides = map(_mapping, _list(picture.get("side_data_list")))
    turned = next((side["rotation"] for side in sides if "rotation" in side), 0)
    rotation = round(-_number(turned) / 90) * 90 % 360  # ffprobe counts counterclockwise
    if width is None or height is None:
        width = height = None
    else:
        width = round(width * (_fraction(picture.get("sample_aspect_ratio"), ":") or 1))
        if rotation % 180:
            width, height = height, width
    duration = _number(container.get("duration"))
    facts = Facts(
        container=str(container.get("format_name", "unknown")).partition(",")[0],
        duration=round(duration, 3) if duration > 0 else None,
        width=width,
        height=height,
        rotation=rotation,
        frame_rate=_rate(picture),
        hdr=_HDR.get(str(picture.get("color_transfer"))),
        tracks=tuple(track.facts for track in tracks),
        chapters=tuple(
            Chapter(
                round(max(_number(chapter.get("start_time")), 0), 3),
                str(_mapping(chapter.get("tags")).get("title", ""))[:MAX_TITLE_CHARACTERS],
            )
            for chapter in map(_mapping, _list(answer.get("chapters"))[:MAX_CHAPTERS])
        ),
    )
    return Contents(facts, tracks)


def _kind(stream: Values) -> str | None:
    """The kind of a track; subtitles that no player shows are "other"."""
    kind = stream.get("codec_type")
    if kind == "subtitle":
        return "text" if stream.get("codec_name") in TEXTS else "other"
    if kind == "video" and not _mapping(stream.get("disposition")).get("attached_pic"):
        return "video"
    return "audio" if kind == "audio" else None


def _rate(picture: Values) -> float | None:
    rate = _fraction(picture.get("avg_frame_rate"), "/")
    return round(float(rate), 3) if rate else None


def _fraction(text: Any, sign: str) -> Fraction | None:
    over, _, under = str(text).partition(sign)
    if not (over.isdecimal() and under.isdecimal() and int(under)):
        return None
    return Fraction(int(over), int(under)) or None


def _whole(value: Any) -> int | None:
    return int(_number(value)) or None


def _number(value: Any) -> float:
    """Parses a number; ffprobe prints some of them as text. 0 if it is not a number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) else 0.0


def _mapping(value: Any) -> Values:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


# ---- signatures ----------------------------------------------------------------------------------

# Detects file types by their first bytes, so that noise and archives cost no run of ffprobe.


HEAD_BYTES = 64 * 1024
"""Bytes of a file that are checked. DVB recordings may begin in the middle of a packet or frame."""

_OTHER_TYPES = (
    # ZIP, RAR, 7z, gzip, bzip2, xz, Zstandard, tar
    *((0, mark) for mark in (b"PK\3\4", b"Rar!\x1a\7", b"7z\xbc\xaf\x27\x1c", b"\x1f\x8b\x08")),
    *((0, mark) for mark in (b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")),
    (257, b"ustar"),
    # JPEG, PNG, GIF, TIFF, WebP, PDF, and programs
    *((0, mark) for mark in (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"II*\0", b"MM\0*")),
    *((8, b"WEBP"), (0, b"%PDF-"), (0, b"\x7fELF"), (0, b"MZ")),
)
"""Offsets and signatures of other file types, as in their specifications."""

_BEGINNINGS = (
    b"\x1a\x45\xdf\xa3",  # Matroska and WebM (RFC 8794)
    *(b"RIFF", b"RF64", b"BW64", b"RIFX", b"ON2 ", b"FORM", b"caff", b"fLaC", b"OggS", b"ID3"),
    b"riff\x2e\x91\xcf\x11",  # Wave64
    b"FLV",
    *(b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", b".RMF", b".ra\xfd"),  # ASF, RealMedia
    *(b"\xb7\xd8\x00\x20\x37\x49\xda\x11", b"DKIF", b"nut/multimedia"),  # WTV, IVF, NUT
    *(b"\0\0\0\0\1\xbc", b"\x1f\x07\0"),  # GXF, DV
    *(b"\x0b\x77", b"\x77\x0b"),  # AC-3 and E-AC-3
    *(b"\x7f\xfe\x80\x01", b"\xfe\x7f\x01\x80", b"\x1f\xff\xe8\x00", b"\xff\x1f\x00\xe8"),  # DTS
    *(b"\x64\x58\x20\x25", b"\x12\0"),  # DTS-HD, AV1 as OBUs
)

_UNMARKED_EXTENSIONS = (
    *(".y4m", ".mjpeg", ".mjpg", ".bik", ".bk2", ".smk", ".nuv", ".roq", ".h261", ".h263"),
    *(".wv", ".ape", ".au", ".amr", ".tta", ".mpc"),
)
"""Extensions of video and audio files without a signature above: they are rare, and always probed
with ffprobe. A file called .mp4 without a matching signature is not a video."""

_FIRST_BOXES = FIRST_BOXES | frozenset(b"junk pict udta ediw prfl meta emsg ssix prft pdin".split())
"""First boxes by which ffmpeg recognizes a file as MP4 or MOV."""

_ANYWHERE = (
    re.compile(rb"\x06\x0e\x2b\x34"),  # MXF, after a run-in of up to 64 KiB (SMPTE ST 377-1)
    # Start codes of MPEG-1, 2 and 4; of parameter sets, key frames and delimiters of H.264, HEVC.
    re.compile(
        rb"\x00\x00\x01[\xba\xb3\xb0\xb5\xb6\x00\x07\x09\x67\x47\x27\x65\x25\x40\x42\x44\x46\x26\x28\x2a]"
    ),
    # Packets of MPEG-TS: 188 bytes, perhaps with a time before them or a checksum after them.
    *(re.compile(rb"\x47(?:.{%d}\x47){4}" % (size - 1), re.DOTALL) for size in (188, 192, 204)),
)
"""One expression each: expressions that begin with a known byte take 50 us for 64 KiB."""

_FRAME = re.compile(rb"\xff[\xe2-\xff]")
"""The sync word of MPEG audio and ADTS frames, which also occurs in other data."""

_FRAMES_IN_A_ROW = 3

_MOST_FRAMES = 500
"""Candidate frame headers that are checked, in 0.4 ms: this runs in the thread that looks for all
work. 64 KiB of random bytes have thirty."""

_RATES = {
    (3, 1): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (3, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
}
"""kbit/s in MPEG-1, by version and layer bits, for layers III and II (ISO/IEC 11172-3, 2.4.2.3)."""

_LOWER_RATES = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
"""The same for MPEG-2 and 2.5, both layers (ISO/IEC 13818-3, 2.4.2.3)."""

_FREQUENCIES = (44100, 48000, 32000)
_DIVISORS = {3: 1, 2: 2, 0: 4}
"""Divisors of the frequencies, by version bits."""


def is_no_video(head: bytes, filename: str = "") -> bool:
    """Whether a file with these first `HEAD_BYTES` is not a video, so that it is not examined.

    One in a thousand files of random bytes is taken as a video. ffprobe takes an archive of songs
    as a song.
    """
    if filename.lower().endswith(_UNMARKED_EXTENSIONS):
        return False
    if any(head.startswith(mark, at) for at, mark in _OTHER_TYPES):
        return True
    return head[4:8] not in _FIRST_BOXES and not (
        head.lstrip(b"\0").startswith(_BEGINNINGS)
        or head.startswith(_BEGINNINGS)
        or any(expression.search(head) for expression in _ANYWHERE)
        or any(
            _are_frames(head, found.start())
            for found in islice(_FRAME.finditer(head), _MOST_FRAMES)
        )
    )


def _are_frames(head: bytes, at: int) -> bool:
    """Whether several audio frames of one kind follow each other from `at` on."""
    kind = head[at + 1] & 0xFE  # without the bit for a checksum
    for _ in range(_FRAMES_IN_A_ROW):
        if len(head) < at + 6 or head[at] != 0xFF or head[at + 1] & 0xFE != kind:
            return False
        length = _frame_bytes(head[at : at + 6])
        if length is None:
            return False
        at += length
    return True


def _frame_bytes(header: bytes) -> int | None:
    """The length of an MPEG audio or ADTS frame; None if this is not a valid header."""
    version, layer = header[1] >> 3 & 3, header[1] >> 1 & 3
    if layer == 0:  # ADTS (ISO/IEC 13818-7, 6.2)
        length = (header[3] & 3) << 11 | header[4] << 3 | header[5] >> 5
        return length if length > 7 and header[1] >= 0xF0 else None
    rate, frequency = header[2] >> 4, header[2] >> 2 & 3
    if version == 1 or layer == 3 or not 0 < rate < 15 or frequency == 3:
        return None
    bits = 1000 * _RATES.get((version, layer), _LOWER_RATES)[rate - 1]
    samples = 576 if layer == 1 and version != 3 else 1152
    return samples // 8 * bits // (_FREQUENCIES[frequency] // _DIVISORS[version]) + (
        header[2] >> 1 & 1
    )
