"""Text tracks: subtitles as WebVTT, and chapters.

Formats: 3GPP TS 26.245 (tx3g), ISO/IEC 14496-30 (wvtt), QuickTime ("text", chapters), and the list
of chapters that Nero introduced (chpl).
"""

from __future__ import annotations

import codecs
import html
import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import dropwhile, islice, takewhile

from app.video.index.boxes import Fields, NotIndexable, ReadAt, boxes_in, children, descend
from app.video.index.movie import Movie
from app.video.index.tracks import Track

MOST_CHARACTERS = 4_000_000
"""In one file; the rest is left out. Two hours of speech are 100 000."""

CHARACTERS_OF_A_CUE = 50
"""Size of its times and line ends in the file, plus a margin."""

MAX_CUES = 100_000
"""Further cues are left out. Cues without text count, too: each takes only 8 bytes."""

MAX_CHAPTERS = 1000
"""Further chapters are left out. Those without text count, too: each is one request in a bucket."""

MAX_TEXT_BYTES = 16_384
"""Longer text samples are cut."""

MAX_TRACK_BYTES = 8 << 20
"""Read from one track, as all its samples may be at the same offset; the rest is left out."""

MAX_CHAPTER_BYTES = 1 << 20
"""Read from a chapter track, while other videos wait; the rest is left out."""

MAX_TITLE_CHARACTERS = 200
"""Longer chapter titles are cut."""

_SUBTITLES = frozenset(("tx3g", "text", "wvtt"))
_TICKS_OF_CHPL = 10_000_000
"""Per second: the list counts in units of 100 ns."""


@dataclass(frozen=True, slots=True)
class Cue:
    """A text and its display time, in seconds of the video."""

    start: Fraction
    end: Fraction
    text: str
    """WebVTT cue text; may contain WebVTT tags."""
    settings: str = ""
    """WebVTT cue settings, such as its position."""


@dataclass(frozen=True, slots=True)
class ChapterMark:
    """A chapter; `start` in seconds."""

    start: Fraction
    title: str


def subtitle_tracks(movie: Movie) -> list[Track]:
    """The text tracks that `read_cues` supports, except chapters."""
    chapters = {track.references.get(b"chap") for track in movie.tracks}
    return [track for track in movie.tracks if track.id not in chapters and _has_cues(track)]


def _has_cues(track: Track) -> bool:
    return track.kind == "text" and track.entry.fourcc in _SUBTITLES


def read_cues(
    track: Track, read_at: ReadAt, most_bytes: int = MAX_TRACK_BYTES, most: int = MAX_CUES
) -> Iterator[Cue]:
    """Yields the cues of a subtitle track that have text, in order; reads at most `most_bytes`.

    Only of the first `most` samples, and among the first `most` cues.
    """
    places = zip(track.samples.offsets, track.samples.sizes, strict=True)
    bytes_left, cues_left = most_bytes, most
    for number, (offset, size) in enumerate(islice(places, most)):
        count = min(size, MAX_TEXT_BYTES)
        bytes_left -= count
        if bytes_left < 0:
            return
        data, start = read_at(offset, count), track.shown_at(number)
        end = start + track.samples.duration(number)
        if end <= max(start, 0):
            continue
        times = Fraction(max(start, 0), track.timescale), Fraction(end, track.timescale)
        for text, settings in islice(_cue_texts(track.entry.fourcc, data), cues_left):
            cues_left -= 1
            if text:
                yield Cue(*times, text, settings)
        if cues_left == 0:
            return


def within_limit(cues: Iterable[Cue]) -> Iterator[Cue]:
    """Yields cues up to the size limit of a file."""
    left = MOST_CHARACTERS
    for cue in cues:
        left -= CHARACTERS_OF_A_CUE + len(cue.text) + len(cue.settings)
        if left < 0:
            return
        yield cue


def webvtt(cues: Iterable[Cue]) -> str:
    """A WebVTT file (https://www.w3.org/TR/webvtt1/)."""
    blocks = ["WEBVTT"]
    for cue in cues:
        times = f"{_timestamp(cue.start)} --> {_timestamp(cue.end)} {cue.settings}".rstrip()
        blocks.append(f"{times}\n{cue.text}")
    return "\n\n".join(blocks) + "\n"


def escaped(text: str) -> str:
    """Plain text escaped as cue text: without tags, and without blank lines, which end a cue."""
    return html.escape(without_blank_lines(text), quote=False)


def read_chapters(movie: Movie, read_at: ReadAt) -> tuple[ChapterMark, ...]:
    """The chapters of a movie, in order; most movies have none."""
    listed = descend(movie.box.payload, b"udta", b"chpl")
    if listed is not None:
        return tuple(islice(_listed_chapters(Fields(listed)), MAX_CHAPTERS))
    wanted = {track.references.get(b"chap") for track in movie.tracks}
    track = next((track for track in movie.tracks if track.id in wanted), None)
    if track is None or not _has_cues(track):
        return ()
    return tuple(
        ChapterMark(cue.start, html.unescape(cue.text).replace("\n", " ")[:MAX_TITLE_CHARACTERS])
        for cue in read_cues(track, read_at, MAX_CHAPTER_BYTES, MAX_CHAPTERS)
    )


def _cue_texts(fourcc: str, data: bytes) -> Iterator[tuple[str, str]]:
    """Yields text and settings of the cues in a sample; nothing for a pause."""
    if fourcc == "wvtt":
        for box in boxes_in(memoryview(data)):
            if box.kind == b"vttc":
                parts = {kind: bytes(part.payload) for kind, part in children(box.payload).items()}
                text = _decoded(parts.get(b"payl", b"")).replace("-->", "--&gt;")
                settings = " ".join(_decoded(parts.get(b"sttg", b"")).split())
                yield without_blank_lines(text), settings
        return
    length = int.from_bytes(data[:2], "big")
    if text := escaped(_decoded(data[2 : 2 + length])):
        yield text, ""


def _decoded(data: bytes) -> str:
    """Decodes UTF-8, or UTF-16 with a byte order mark."""
    is_wide = data.startswith((b"\xfe\xff", b"\xff\xfe"))
    return data.decode("utf-16" if is_wide else "utf-8", "replace").replace("\0", "")


def without_blank_lines(text: str) -> str:
    """Drops blank lines, which would end the cue."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _listed_chapters(fields: Fields) -> Iterator[ChapterMark]:
    try:
        version, _ = fields.version_and_flags()
        fields.take(4 if version else 0)
        for _ in range(fields.unsigned(1)):
            start, length = fields.unsigned(8), fields.unsigned(1)
            title = _decoded(bytes(fields.take(length)))[:MAX_TITLE_CHARACTERS]
            yield ChapterMark(Fraction(start, _TICKS_OF_CHPL), title)
    except NotIndexable:
        return  # A truncated list only loses its last entries.


def _timestamp(seconds: Fraction) -> str:
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}.{rest % 1000:03}"


# ---- subrip --------------------------------------------------------------------------------------

# Subtitles in separate files: SubRip (SRT) and WebVTT. Any other file has no cues.
#
# SubRip has no standard; for WebVTT it is https://www.w3.org/TR/webvtt1/.


_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMING = re.compile(rf"\s{{0,8}}{_TIME}[ \t]{{0,8}}-->[ \t]{{0,8}}{_TIME}(?:[ \t]+(.{{0,200}}))?")
_SETTING = re.compile(r"(?:vertical|line|position|size|align):[\w.,%-]{1,20}")
_PLAIN_TAG = re.compile(r"&lt;(/?[biu])&gt;", re.IGNORECASE)
_DOUBLED_RETURN = re.compile(r"(?<!\r)\r+\n")
"""A line end in files that were converted twice."""
_OTHER_MARKUP = re.compile(r"</?font[^<>]{0,200}>|\{\\[^{}]{0,200}\}", re.IGNORECASE)
"""Colours, and SubStation positions."""


def decoded(data: bytes) -> str:
    """Decodes a text file of unknown encoding; it may be cut off.

    Tries UTF-16 with a byte order mark, then UTF-8, then Windows-1252.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(data)
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def cues_of(text: str) -> list[Cue]:
    """The cues of a SubRip or WebVTT file, sorted by start.

    A cue is a line with times and the lines after it, up to an empty line or the next cue. Some
    SubRip writers put an empty line after the times, or none between two cues.
    """
    is_webvtt = text.startswith("WEBVTT")
    lines = _DOUBLED_RETURN.sub("\n", text.replace("\0", "")).splitlines()
    arrows = ((number, line) for number, line in enumerate(lines) if "-->" in line)
    begun = [(number, timing) for number, line in arrows if (timing := _TIMING.match(line))]
    # A cue begins with its number, if it has one, else with its times.
    ends = [
        number - 1 if number > 0 and lines[number - 1].strip().isdecimal() else number
        for number, _ in begun[1:]
    ]
    found: list[Cue] = []
    for (number, timing), end in zip(begun, [*ends, len(lines)], strict=False):
        *times, settings = timing.groups()
        start, stop = _seconds(times[:4]), _seconds(times[4:])
        body = (line.strip() for line in lines[number + 1 : end])
        shown = "\n".join(takewhile(bool, body if is_webvtt else dropwhile(operator.not_, body)))
        if is_webvtt:
            shown = without_blank_lines(shown.replace("-->", "--&gt;"))
        else:  # Keeps <b>, <i> and <u>, which are the same in WebVTT; drops other markup.
            shown = escaped(_OTHER_MARKUP.sub("", shown))
            shown = _PLAIN_TAG.sub(lambda tag: f"<{tag[1].lower()}>", shown)
        if shown and start < stop:
            found.append(Cue(start, stop, shown, " ".join(_SETTING.findall(settings or ""))))
            if len(found) == MAX_CUES:
                break
    return sorted(found, key=lambda cue: cue.start)


def _seconds(parts: list[str | None]) -> Fraction:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return Fraction(1000 * whole + int(fraction.ljust(3, "0")), 1000)
