"""Writes HLS playlists (RFC 8216)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

VERSION = 7
"""The protocol version that fragmented MP4 with separate audio needs (RFC 8216, section 7)."""

MediaType = Literal["AUDIO", "SUBTITLES"]
VideoRange = Literal["SDR", "PQ", "HLG"]
AUDIO_GROUP, SUBTITLES_GROUP = "audio", "subtitles"


@dataclass(frozen=True, slots=True)
class Variant:
    """A video rendition, with audio."""

    uri: str
    bandwidth: int
    """Peak bits per second, over any segment."""
    average_bandwidth: int
    codecs: Sequence[str]
    """Of the video and the audio tracks."""
    width: int = 0
    height: int = 0
    frame_rate: Fraction = Fraction()
    video_range: VideoRange = "SDR"


@dataclass(frozen=True, slots=True)
class Alternative:
    """An audio or subtitle track that a viewer may select."""

    media_type: MediaType
    uri: str
    name: str
    language: str
    is_default: bool
    channels: int = 0


def master_playlist(variants: Iterable[Variant], alternatives: Sequence[Alternative] = ()) -> str:
    """The master playlist, which lists all media playlists."""
    groups = {alternative.media_type for alternative in alternatives}
    lines = ["#EXTM3U", f"#EXT-X-VERSION:{VERSION}"]
    lines += [_alternative(each, name) for each, name in _named(alternatives)]
    for variant in variants:
        lines += [_variant(variant, groups), variant.uri]
    return "\n".join((*lines, ""))


def segment_lines(durations: Iterable[float]) -> list[str]:
    """The entry of each segment in a media playlist; durations in seconds, with six decimals.

    Segments are `1.m4s`, `2.m4s` and so on, in the folder of `init.mp4`.
    """
    return [f"#EXTINF:{lasts:.6f},\n{number}.m4s" for number, lasts in enumerate(durations, 1)]


def media_playlist(lines: Sequence[str], longest: float, *, available: int | None = None) -> str:
    """The playlist of a rendition with these `segment_lines`; `longest` is a duration in seconds.

    During an upload, only the first `available` segments are listed, and players reload the
    playlist.
    """
    is_growing = available is not None
    head = [
        "#EXTM3U",
        f"#EXT-X-VERSION:{VERSION}",
        f"#EXT-X-TARGETDURATION:{max(math.ceil(longest), 1)}",
        "#EXT-X-MEDIA-SEQUENCE:1",
        f"#EXT-X-PLAYLIST-TYPE:{'EVENT' if is_growing else 'VOD'}",
        # Otherwise players start near the end of a growing playlist.
        *(("#EXT-X-START:TIME-OFFSET=0",) if is_growing else ()),
        '#EXT-X-MAP:URI="init.mp4"',
    ]
    end = () if is_growing else ("#EXT-X-ENDLIST",)
    return "\n".join((*head, *lines[:available], *end, ""))


def whole_file_playlist(uri: str, seconds: float) -> str:
    """The playlist of a rendition that is one file, such as subtitles (RFC 8216, section 3.5).

    Without X-TIMESTAMP-MAP the times of cues are media times, which begin at 0.
    """
    lines = [
        "#EXTM3U",
        f"#EXT-X-VERSION:{VERSION}",
        f"#EXT-X-TARGETDURATION:{max(math.ceil(seconds), 1)}",
        "#EXT-X-PLAYLIST-TYPE:VOD",
        f"#EXTINF:{seconds:.6f},",
        uri,
        "#EXT-X-ENDLIST",
    ]
    return "\n".join((*lines, ""))


def _variant(variant: Variant, groups: set[MediaType]) -> str:
    attributes = [
        f"BANDWIDTH={variant.bandwidth}",
        f"AVERAGE-BANDWIDTH={variant.average_bandwidth}",
        f'CODECS="{",".join(dict.fromkeys(variant.codecs))}"',
    ]
    if variant.height:
        attributes.append(f"RESOLUTION={variant.width}x{variant.height}")
    if variant.frame_rate:
        attributes.append(f"FRAME-RATE={float(variant.frame_rate):.3f}")
    if variant.height:
        attributes.append(f"VIDEO-RANGE={variant.video_range}")
    if "AUDIO" in groups:
        attributes.append(f'AUDIO="{AUDIO_GROUP}"')
    if "SUBTITLES" in groups:
        attributes.append(f'SUBTITLES="{SUBTITLES_GROUP}"')
    return "#EXT-X-STREAM-INF:" + ",".join((*attributes, "CLOSED-CAPTIONS=NONE"))


def _alternative(alternative: Alternative, name: str) -> str:
    group = AUDIO_GROUP if alternative.media_type == "AUDIO" else SUBTITLES_GROUP
    attributes = [
        f"TYPE={alternative.media_type}",
        f'GROUP-ID="{group}"',
        f'NAME="{name}"',
        f"DEFAULT={'YES' if alternative.is_default else 'NO'}",
        "AUTOSELECT=YES",
    ]
    if alternative.language and alternative.language != "und":
        attributes.append(f'LANGUAGE="{_quotable(alternative.language)}"')
    if alternative.channels:
        attributes.append(f'CHANNELS="{alternative.channels}"')
    return "#EXT-X-MEDIA:" + ",".join((*attributes, f'URI="{alternative.uri}"'))


def _named(alternatives: Sequence[Alternative]) -> list[tuple[Alternative, str]]:
    """Gives each a name that is unique in its group (RFC 8216, section 4.3.4.1.1)."""
    taken: set[tuple[str, str]] = set()
    named = []
    for each in alternatives:
        language = each.language if each.language != "und" else ""
        base = _quotable(each.name or language) or each.media_type.capitalize()
        name, number = base, 2
        while (each.media_type, name) in taken:
            name, number = f"{base} {number}", number + 1
        taken.add((each.media_type, name))
        named.append((each, name))
    return named


def _quotable(text: str) -> str:
    """Text that is valid in a quoted string (RFC 8216, section 4.2)."""
    return "".join("'" if character == '"' else character for character in text if character >= " ")
