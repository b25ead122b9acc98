"""Films of every kind that people upload, made by ffmpeg when a test first asks for one.

Each frame carries its number as ten black or white squares along the upper edge, lowest bit on
the left, and each audio track beeps for 40 ms in the middle of every second. So a frame tells
which it is, whether ffmpeg decoded it or a browser shows it, and picture and sound can be compared
to the millisecond.

`RECIPES` lists the films by file name. All of them together take about 15 CPU seconds.
"""

from __future__ import annotations

import base64
import fcntl
import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.browser.tools import find_program
from tests.video import rewritten

SIZE = "160x96"
SQUARE = 16
"""Pixels: survives any encoder, and chroma at half the resolution."""

BITS = 10
BEEP_SECONDS = 0.04

H264 = "-c:v libx264 -preset ultrafast -bf 2 -g 25 -pix_fmt yuv420p"
OPEN_H264 = "-c:v libx264 -preset veryfast -bf 3 -g 25 -pix_fmt yuv420p -x264-params open-gop=1"
HEVC = "-c:v libx265 -preset ultrafast -tag:v hvc1 -x265-params log-level=none:bframes=2"
CLOSED_HEVC = HEVC + ":keyint=25:open-gop=0"
OPEN_HEVC = HEVC + ":keyint=24:open-gop=1"  # a multiple of 3: key frames have leading pictures
HDR10 = (
    CLOSED_HEVC + ":hdr10=1:repeat-headers=1:max-cll=1000,400:master-display="
    "G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,1)"
    " -pix_fmt yuv420p10le -color_primaries bt2020 -color_trc smpte2084 -colorspace bt2020nc"
)
HDR10_PICTURE = (
    "format=yuv420p10le,setparams=color_primaries=bt2020:color_trc=smpte2084:colorspace=bt2020nc"
)
"""From ffmpeg 7 on the pictures' own properties count, not the options of the encoder."""
AV1 = "-c:v libsvtav1 -preset 12 -g 25 -svtav1-params tune=0"
VP9 = "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 25 -b:v 200k"
VP8 = "-c:v libvpx -deadline realtime -cpu-used 8 -g 25 -b:v 200k"
MPEG2 = "-c:v mpeg2video -bf 2 -g 15"
AAC = "-c:a aac"
AC3, MP3, PCM = "-c:a ac3", "-c:a libmp3lame", "-c:a pcm_s16le"
OPUS = "-c:a libopus"
SURROUND = "5.1"


@dataclass(frozen=True)
class Recipe:
    """Options of ffmpeg for one film; `sounds` has the language of each audio track.

    Six seconds make two segments of HLS.
    """

    video: str | None = H264
    audio: str = AAC
    sounds: tuple[str, ...] = ("eng",)
    seconds: float = 6
    rate: str = "25"
    picture: str = ""
    channels: str = "mono"
    beside: tuple[str, ...] = ()
    output: str = ""


SUBTITLES = (
    "1\n00:00:00,500 --> 00:00:01,500\nGood evening\n\n2\n00:00:02,000 --> 00:00:03,000\nÄ\n"
)
CHAPTERS = (
    ";FFMETADATA1\n"
    "[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=2000\ntitle=Morning\n"
    "[CHAPTER]\nTIMEBASE=1/1000\nSTART=2000\nEND=4000\ntitle=Evening\n"
)
FAST = "-movflags +faststart"
FRAGMENTED = "-movflags frag_keyframe+empty_moov+default_base_moof"
TOP_FIELD_FIRST = "-flags +ildct+ilme -top 1 -x264-params tff=1"

RECIPES: dict[str, Recipe] = {
    # H.264 in MP4 and MOV
    "h264.mp4": Recipe(seconds=12, output=FAST),
    "moov-last.mp4": Recipe(),
    "fragmented.mp4": Recipe(output=FRAGMENTED),
    "quicktime.mov": Recipe(),
    "intra.mp4": Recipe(video="-c:v libx264 -preset ultrafast -g 1 -pix_fmt yuv420p", output=FAST),
    "open-gop.mp4": Recipe(video=OPEN_H264, seconds=12),
    "long-gop.mp4": Recipe(video=H264 + " -g 300", rate="10", seconds=40),
    "rare-keys.mp4": Recipe(video=H264 + " -g 300", rate="10", seconds=13),
    "variable-rate.mp4": Recipe(
        seconds=12, picture="select='mod(n,7)*mod(n,5)'", output="-fps_mode vfr"
    ),
    "ntsc.mp4": Recipe(rate="30000/1001"),
    "signed-offsets.mp4": Recipe(output="-movflags negative_cts_offsets"),
    "anamorphic.mp4": Recipe(picture="setsar=2"),
    "interlaced.mp4": Recipe(video=f"{H264} {TOP_FIELD_FIRST}", picture="setfield=tff"),
    # other codecs in MP4 and MOV
    "hevc.mp4": Recipe(video=CLOSED_HEVC),
    "hevc-open-gop.mp4": Recipe(video=OPEN_HEVC, seconds=12),
    "hdr10.mp4": Recipe(video=HDR10, picture=HDR10_PICTURE),
    "av1.mp4": Recipe(video=AV1, audio=OPUS),
    "vp9.mp4": Recipe(video=VP9, audio=OPUS),
    "mpeg2.mp4": Recipe(video="-c:v mpeg2video", audio="-c:a mp2"),
    "prores.mov": Recipe(video="-c:v prores -profile:v 0", audio="-c:a pcm_s16le", seconds=2),
    # sound
    "silent.mp4": Recipe(sounds=()),
    "surround-aac.mp4": Recipe(channels=SURROUND),
    "surround-ac3.mp4": Recipe(audio="-c:a ac3", channels=SURROUND),
    "surround-eac3.mp4": Recipe(audio="-c:a eac3", channels=SURROUND),
    "mp3.mp4": Recipe(audio=MP3),
    "late-ac3.mp4": Recipe(
        audio=AC3, seconds=5, sounds=("eng", "deu"), output="-af asetpts=PTS+0.5/TB"
    ),
    "fragmented-ac3.mp4": Recipe(audio=AC3, output=f"{FRAGMENTED}+delay_moov", seconds=2),
    "pcm.mov": Recipe(audio=PCM, seconds=2),
    "alac.m4a": Recipe(video=None, audio="-c:a alac", seconds=2),
    "two-languages.mp4": Recipe(sounds=("eng", "deu")),
    "late-sound.mp4": Recipe(output="-af asetpts=PTS+0.5/TB"),
    "sound-from-5.mp4": Recipe(seconds=12, output="-af asetpts=PTS+5/TB"),
    "opus-from-5.mp4": Recipe(seconds=12, audio=OPUS, output="-af asetpts=PTS+5/TB"),
    "flac-from-2.mp4": Recipe(
        audio="-c:a flac", output="-af asetpts=PTS+2/TB -strict experimental"
    ),
    "surround-from-2.mp4": Recipe(channels=SURROUND, output="-af asetpts=PTS+2/TB"),
    "sound.m4a": Recipe(video=None),
    "sound.mp3": Recipe(video=None, audio="-c:a libmp3lame"),
    # text
    "subtitles.mp4": Recipe(
        beside=("-f", "srt", "-i", SUBTITLES),
        output="-map 2:s -c:s mov_text -metadata:s:s language=eng",
    ),
    "chapters.mp4": Recipe(
        beside=("-f", "ffmetadata", "-i", CHAPTERS), output="-map_metadata 2 -map_chapters 2"
    ),
    # other containers
    "h264.mkv": Recipe(
        audio=AC3,
        sounds=("eng", "deu"),
        channels=SURROUND,
        beside=("-f", "srt", "-i", SUBTITLES, "-f", "ffmetadata", "-i", CHAPTERS),
        output="-map 3:s -c:s srt -metadata:s:s language=eng -metadata:s:a:1 title=Commentary"
        " -map_metadata 4 -map_chapters 4",
    ),
    "ntsc.mkv": Recipe(
        seconds=2, rate="30000/1001", audio="-c:a flac", output="-af asetpts=PTS+0.5/TB"
    ),
    "h264.ts": Recipe(seconds=2, output="-output_ts_offset 95442.5"),  # near where its clock wraps
    "open-gop.ts": Recipe(video=f"{OPEN_H264}:repeat-headers=1", seconds=12),
    "hevc.ts": Recipe(video=CLOSED_HEVC, audio=AC3, seconds=2),
    "mpeg2.ts": Recipe(video=MPEG2, audio="-c:a mp2", seconds=2),
    "mpeg2.mpg": Recipe(video=MPEG2, audio="-c:a mp2", seconds=2),
    "vp9.webm": Recipe(video=VP9, audio=OPUS, seconds=2),
    "vp8.webm": Recipe(video=VP8, audio="-c:a libvorbis", seconds=2),
    "theora.ogv": Recipe(video="-c:v libtheora -g 25", audio="-c:a libvorbis"),
    "h264.flv": Recipe(seconds=2),
    "h264.avi": Recipe(audio=MP3, seconds=2),
    "mpeg4.avi": Recipe(video="-c:v mpeg4 -bf 2 -g 25", audio=MP3, seconds=2),
    "wmv2.wmv": Recipe(video="-c:v wmv2 -g 25", audio="-c:a wmav2", seconds=2),
    "raw.h264": Recipe(sounds=(), seconds=2),
    "sound.wma": Recipe(video=None, audio="-c:a wmav2", seconds=2),
    "sound.flac": Recipe(video=None, audio="-c:a flac", seconds=2),
}

Change = Callable[[Path, Path], None]


def copied(*output: str, begin: float = 0) -> Change:
    """The same media in another file, from the key frame before `begin` seconds on."""

    def copy(source: Path, target: Path) -> None:
        start = ("-ss", str(begin)) if begin else ()
        ffmpeg(*start, "-i", str(source), "-map", "0", "-c", "copy", *output, str(target))

    return copy


REWRITTEN: dict[str, tuple[str, Change]] = {
    "huge.mp4": ("moov-last.mp4", rewritten.beyond_4_gib),
    "open-gop-first.mp4": ("open-gop.mp4", copied(*FAST.split())),
    "open-gop-fragmented.mp4": ("open-gop.mp4", copied(*FRAGMENTED.split())),
    "open-gop-cut.mp4": (
        "open-gop.mp4",
        copied("-avoid_negative_ts", "make_zero", begin=2.1),
    ),
    "open-gop-cut.ts": ("open-gop.ts", rewritten.from_55_percent_on),
    "rotated.mp4": ("h264.mp4", rewritten.a_quarter_turn_clockwise),
    "several-edits.mp4": ("vp9.mp4", rewritten.with_several_edits),
    "hidden-start.mp4": ("moov-last.mp4", rewritten.with_hidden_start),
    "compact-sizes.mp4": ("moov-last.mp4", rewritten.with_compact_sizes),
    "truncated.mp4": ("h264.mp4", rewritten.cut_at_60_percent),
    "lost-sound.ts": ("h264.ts", rewritten.with_lost_sound),
    "holed.mp4": ("h264.mp4", rewritten.with_hole),
    "without-moov.mp4": ("moov-last.mp4", rewritten.cut_at_60_percent),
    "without-pictures.mp4": ("silent.mp4", rewritten.without_samples),
}
"""Films that ffmpeg makes of others, or cannot write."""

NO_FILMS: dict[str, bytes] = {
    "garbage.mp4": random.Random(14).randbytes(300_000),
    "text.mp4": b"This is a shopping list: bread, milk, apples.\n" * 50,
    "empty.mp4": b"",
    "text.webm": b"Not a film either.\n",
    "archive.mkv": b"PK\3\4\x14\0\0\0\x08\0" + random.Random(15).randbytes(30_000),
    "picture.avi": base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
    ),
}


class FilmStore:
    """Makes each film once, also when several processes share the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str) -> Path:
        """The film of this name."""
        path = self._folder / name
        with (self._folder / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                new = self._folder / f".new-{name}"  # keeps the suffix, which ffmpeg goes by
                self._make(name, new)
                new.rename(path)
        return path

    def _make(self, name: str, path: Path) -> None:
        if name in NO_FILMS:
            path.write_bytes(NO_FILMS[name])
        elif name in REWRITTEN:
            source, change = REWRITTEN[name]
            change(self(source), path)
        else:
            encode(RECIPES[name], path)


def encode(recipe: Recipe, path: Path) -> None:
    """Make a film with ffmpeg, on one thread, so that the same recipe makes the same bytes."""
    sources = [*_picture(recipe), *_sounds(recipe), *map(_inline, recipe.beside)]
    streams = len(recipe.sounds) + (recipe.video is not None)
    maps = [option for index in range(streams) for option in ("-map", str(index))]
    codecs = [*(recipe.video or "").split(), *(recipe.audio.split() if recipe.sounds else [])]
    end = ["-t", str(recipe.seconds), "-threads", "1", *_languages(recipe), *recipe.output.split()]
    ffmpeg(*sources, *maps, *codecs, *end, "-fflags", "+bitexact", str(path))


def ffmpeg(*arguments: str) -> bytes:
    """What ffmpeg writes to its standard output."""
    command = [find_program("ffmpeg"), "-nostdin", "-v", "error", "-y", *arguments]
    environment = {**os.environ, "SVT_LOG": "1"}  # SVT-AV1 has a log of its own: errors only
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout


def _picture(recipe: Recipe) -> list[str]:
    if recipe.video is None:
        return []
    squares = [
        f"drawbox=x={bit * SQUARE}:w={SQUARE}:h={SQUARE}:t=fill:color=white"
        f":enable='mod(floor(n/{1 << bit}),2)'"
        for bit in range(BITS)
    ]
    background = f"drawbox=w={BITS * SQUARE}:h={SQUARE}:t=fill:color=black"
    source = f"testsrc2=size={SIZE}:rate={recipe.rate}"
    graph = [source, background, *squares, *filter(None, [recipe.picture])]
    return ["-f", "lavfi", "-i", ",".join(graph)]


def _sounds(recipe: Recipe) -> list[str]:
    """1 kHz in the first track, 2 kHz in the second, in all channels."""
    sources = []
    for track in range(1, len(recipe.sounds) + 1):
        tone = f"0.5*sin({track}*2000*PI*t)*between(mod(t,1),0.5,{0.5 + BEEP_SECONDS})"
        channels = 6 if recipe.channels == SURROUND else 1
        expression = f"aevalsrc='{'|'.join([tone] * channels)}':s=48000:c={recipe.channels}"
        sources += ["-f", "lavfi", "-i", expression]
    return sources


def _languages(recipe: Recipe) -> list[str]:
    named = enumerate(recipe.sounds)
    return [part for n, name in named for part in (f"-metadata:s:a:{n}", f"language={name}")]


def _inline(argument: str) -> str:
    """Texts for ffmpeg to read as data: URLs; options as they are."""
    if "\n" not in argument:
        return argument
    return "data:text/plain;base64," + base64.b64encode(argument.encode()).decode()
