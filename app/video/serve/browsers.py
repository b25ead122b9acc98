"""What browsers decode. They say so themselves once a player asks; this decides what is offered.

Sources: caniuse.com's tables of H.264, HEVC, AV1, VP9, Opus, AC-3; the WebKit and Chromium lists of
codecs that MP4 may contain.
"""

from __future__ import annotations

import re

_AVC = re.compile(r"avc[13]\.(42|4d|58|64)[0-9a-f]{4}", re.IGNORECASE)
"""Baseline, Main, Extended and High: 8 bits, 4:2:0. High 10, 4:2:2 and 4:4:4 play nowhere."""

_SOME = re.compile(r"(hvc1|hev1|av01|vp08|vp09)(\.|$)", re.IGNORECASE)
"""Each played by some browsers only: the playlist names the codec, and the browser chooses."""

_AUDIO = re.compile(r"mp4a\.40\.(2|5|29|42)|mp4a\.(69|6b)|mp3|\.mp3|opus|flac", re.IGNORECASE)

_SEGMENTED_AUDIO = re.compile(r"mp4a\.40\.(2|5|29|42)|opus|flac", re.IGNORECASE)
"""MP3 is missing: Chromium takes none in segments, and refuses the whole film for it."""

_WITHOUT_INDEX = re.compile(r"vp8|vp9|av1|opus|vorbis|flac|mp3|aac|pcm_[a-z0-9]+")
"""ffmpeg's names of what browsers decode in WebM, Ogg, MP3, WAV and FLAC files. They have given up
Theora."""


def plays_without_index(*codecs: str) -> bool:
    """Whether browsers decode all of this in the files that they play as they are."""
    return all(map(_WITHOUT_INDEX.fullmatch, codecs))


def plays_video(codec: str) -> bool:
    """Whether every browser, or some, decode pictures of this codec."""
    return is_played_everywhere(codec) or _SOME.match(codec) is not None


def is_played_everywhere(codec: str) -> bool:
    """Whether every browser decodes pictures of this codec."""
    return _AVC.fullmatch(codec) is not None


def plays_audio(codec: str) -> bool:
    """Whether every browser decodes sound of this codec."""
    return _AUDIO.fullmatch(codec) is not None


def plays_segmented_audio(codec: str) -> bool:
    """Whether every browser decodes sound of this codec in segments."""
    return _SEGMENTED_AUDIO.fullmatch(codec) is not None
