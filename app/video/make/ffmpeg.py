"""Runs ffmpeg and ffprobe: finds the programs, sets options, uses the sandbox, translates errors.

The sandbox assumes that a hostile file takes over the program. The options here are a first line of
defence: playlists and scripts are not accepted as videos, and a video cannot open other files.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from app.storage.base import SetupProblem
from app.video.index.sample_entries import HighDynamicRange
from app.video.make.sandbox import process
from app.video.make.sandbox.launcher import NOT_CONFINED_STATUS, REPORT_DESCRIPTOR
from app.video.make.sandbox.process import LAYERS, Command, ProgramExit, ProgramLimits, Sink

VIDEO_FORMATS = (
    "mov,matroska,avi,flv,live_flv,mpegts,mpeg,mpegvideo,m4v,h264,hevc,obu,ivf,dv,mxf,gxf,nut,rm,"
    "wtv,asf,ogg,wav,w64,aiff,caf,mp3,aac,ac3,eac3,dts,flac"
)
"""Demuxers for uploads. Never those that open other files: hls, dash, concat, image2."""

MAX_PIXELS = 8192 * 8192
"""Larger frames are not decoded: a PNG of 15 MB may need 2.3 GB."""

MAX_STREAMS = 100
"""A file with more is rejected."""

PROBE_LIMITS = ProgramLimits(
    cpu_seconds=10, wall_seconds=10, memory_bytes=1024**3, output_bytes=4 * 1024**2
)

PROGRESS_SECONDS = 0.5
"""Interval of progress callbacks, also without progress: the caller may want to stop."""

_OUT_TIME = re.compile(rb"^out_time_us=(\d{1,18})$", re.MULTILINE)

WITHOUT_FFMPEG = "ffmpeg is not installed"
WITHOUT_FFPROBE = "ffprobe is not installed"


@dataclass(frozen=True, slots=True)
class Conversion:
    """Arguments of an ffmpeg run, and what it may access.

    ffmpeg runs in the folder `writable`, and reads the files `readable` by their absolute paths.
    `formats` are the demuxers allowed for its inputs.
    """

    arguments: Sequence[str]
    _: KW_ONLY
    limits: ProgramLimits
    readable: Sequence[Path] = ()
    writable: Path | None = None
    formats: str = VIDEO_FORMATS


@dataclass(frozen=True, slots=True, kw_only=True)
class Ffmpeg:
    """The programs, None if not installed, and the sandbox layers that confine them."""

    ffmpeg: Path | None
    ffprobe: Path | None
    layers: frozenset[str] = LAYERS

    @classmethod
    def find(cls) -> Ffmpeg:
        """Finds the programs in PATH; falls back to imageio-ffmpeg, which has no ffprobe."""
        # imageio-ffmpeg's own function runs programs to find its static ffmpeg.
        package = Path(sysconfig.get_path("purelib")) / "imageio_ffmpeg" / "binaries"
        in_package = next(iter(sorted(package.glob("ffmpeg-linux-*"))), None)
        return cls(ffmpeg=_in_path("ffmpeg") or in_package, ffprobe=_in_path("ffprobe"))

    def version(self) -> str:
        """The version that ffmpeg reports, such as `5.1.9-0+deb12u1`."""
        command = Command(
            program=self._need_ffmpeg(),
            arguments=["-version"],
            limits=PROBE_LIMITS,
            layers=self.layers,
        )
        words = _run(command).split(maxsplit=3)
        return words[2].decode("ascii", "replace") if len(words) > 2 else "unknown"

    def run(
        self,
        conversion: Conversion,
        *,
        on_output: Sink | None = None,
        progress: Callable[[float], object] | None = None,
        stop: threading.Event | None = None,
    ) -> bytes:
        """Returns ffmpeg's standard output, or b"" if `on_output` takes the blocks.

        `progress` is called every half second with the seconds of output so far; an exception in it
        ends the run. Raises the errors of `FfmpegError`.
        """
        watch = _Progress(progress)
        command = Command(
            program=self._need_ffmpeg(),
            arguments=[*_GLOBAL_OPTIONS, *guarded(conversion.arguments, conversion.formats)],
            limits=conversion.limits,
            readable=conversion.readable,
            writable=conversion.writable,
            layers=self.layers,
        )
        return _run(command, on_output=on_output, on_report=watch.read, stop=stop)

    def probe(
        self,
        path: Path,
        limits: ProgramLimits = PROBE_LIMITS,
        *,
        formats: str = VIDEO_FORMATS,
        stop: threading.Event | None = None,
    ) -> dict[str, Any]:
        """Returns ffprobe's `streams`, `format` and `chapters`. Raises like `run`.

        Without ffprobe, parses ffmpeg's description of the file, which has less.
        """
        shown = ["-v", "error", "-show_streams", "-show_format", "-show_chapters", "-of", "json"]
        if self.ffprobe is None:
            shown = ["-nostdin", "-hide_banner"]
        command = Command(
            program=self.ffprobe or self._need_ffmpeg(),
            arguments=[*shown, *guarded(["-i", f"file:{path.absolute()}"], formats)],
            limits=limits,
            readable=[path],
            layers=self.layers,
        )
        if self.ffprobe is None:  # ffmpeg describes the file, and then fails without an output.
            ended = _end(command, stop=stop)
            described = answer_in(ended.errors.decode("utf-8", "replace"))
            if not described["streams"]:
                raise failure(command.program.name, ended, limits)
            return described
        try:
            found = json.loads(_run(command, stop=stop))
        except (ValueError, RecursionError) as error:
            raise FfmpegFailed("ffprobe's answer could not be read") from error
        return found if isinstance(found, dict) else {}

    def problems(self) -> list[SetupProblem]:
        """Missing programs and sandbox layers, with the consequences; none is fatal."""
        if self.ffmpeg is None:
            detail = f"{WITHOUT_FFMPEG}: videos get no posters, thumbnails or renditions"
            return [SetupProblem("no_ffmpeg", detail, is_fatal=False)]
        missing = process.missing_layers()
        found = [SetupProblem("not_confined", detail, is_fatal=False) for detail in missing]
        if self.ffprobe is None:
            detail = f"{WITHOUT_FFPROBE}: less is known of files other than MP4 and MOV"
            found.append(SetupProblem("no_ffprobe", detail, is_fatal=False))
        return found

    def _need_ffmpeg(self) -> Path:
        if self.ffmpeg is None:
            raise FfmpegMissing(WITHOUT_FFMPEG)
        return self.ffmpeg


def _run(
    command: Command,
    *,
    on_output: Sink | None = None,
    on_report: Sink = lambda _: None,
    stop: threading.Event | None = None,
) -> bytes:
    """Run a command that must succeed; returns its output, or b"" if `on_output` takes it."""
    output, program, limits = bytearray(), command.program.name, command.limits

    def keep(block: bytes) -> None:
        if len(output) + len(block) > limits.output_bytes:
            raise FfmpegFailed(f"{program} wrote more than {limits.output_bytes} bytes")
        output.extend(block)

    ended = _end(command, on_output=on_output or keep, on_report=on_report, stop=stop)
    if ended.status != 0:
        raise failure(program, ended, limits)
    return bytes(output)


def _end(
    command: Command,
    *,
    on_output: Sink = lambda _: None,
    on_report: Sink = lambda _: None,
    stop: threading.Event | None = None,
) -> ProgramExit:
    """Run a command; returns its exit with any status."""
    name, limits = command.program.name, command.limits
    try:
        return process.run(command, on_output=on_output, on_report=on_report, stop=stop)
    except process.TimedOut:
        raise FfmpegTimedOut(f"{name} took longer than {limits.wall_seconds:g} s") from None
    except process.Stopped:
        raise FfmpegStopped(f"{name} was stopped") from None


class _Progress:
    """Parses the output of `-progress`, and calls back every half second."""

    def __init__(self, callback: Callable[[float], object] | None) -> None:
        self._callback = callback
        self._seconds = 0.0
        self._rest = b""
        self._called_at = time.monotonic()

    def read(self, block: bytes) -> None:
        if block:
            text = (self._rest + block)[-4096:]
            for micros in _OUT_TIME.findall(text):
                self._seconds = int(micros) / 1e6
            self._rest = text.rpartition(b"\n")[2]
        now = time.monotonic()
        if self._callback and now - self._called_at >= PROGRESS_SECONDS:
            self._called_at = now
            self._callback(self._seconds)


_GLOBAL_OPTIONS = [
    *("-nostdin", "-hide_banner", "-nostats", "-loglevel", "error"),
    *("-progress", f"pipe:{REPORT_DESCRIPTOR}"),
]


def guarded(arguments: Sequence[str], formats: str) -> list[str]:
    """The arguments, with input limits before each `-i`: options apply to one file."""
    limits = ["-protocol_whitelist", "file,pipe", "-format_whitelist", formats]
    limits += ["-max_pixels", str(MAX_PIXELS), "-max_streams", str(MAX_STREAMS)]
    found: list[str] = []
    for argument in arguments:
        found += [*limits, argument] if argument == "-i" else [argument]
    return found


def _in_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


# ---- errors --------------------------------------------------------------------------------------

# Errors of ffmpeg runs, with messages for users.


MESSAGE_CHARACTERS = 200

_ADDRESSES = re.compile(r"^(\[[^\]@]{1,80}@ 0x[0-9a-f]+\]\s*)+")
_PATH = re.compile(r"(?<![\w:/])(?:file:)?/[^\s'\":,)]*/[^\s'\":,)]*")
_TOO_MANY_STREAMS = re.compile(r"exceeds max_streams parameter \((\d+)\)")
_FOLLOWS_FROM_OTHERS = (
    "Cannot determine format",
    "Conversion failed",
    "Error initializing",
    "Error marking",
    "Error opening",
    "Error reinitializing",
    "Error sending",
    "Error while",
    "Failed to inject",
    "Last message",
    "Nothing was written",
    "Task finished",
    "Terminating thread",
)
"""Prefixes of lines that only report that an earlier error was fatal."""

_WHICH_INPUT = re.compile(r"^Error opening (input|output)( files?)?: ")


class FfmpegError(Exception):
    """Base class; `str()` is a message for users."""


class FfmpegMissing(FfmpegError):
    """The program is not installed."""


class FfmpegFailed(FfmpegError):
    """The program failed: the file is damaged or not supported, or a limit was exceeded."""


class FfmpegInterrupted(FfmpegFailed):
    """It was killed, or lacked memory or disk space: perhaps due to the machine, not the file."""


class FfmpegTimedOut(FfmpegInterrupted):
    """It exceeded its time limit, and was killed."""


class FfmpegStopped(FfmpegError):
    """The caller's event was set, and it was killed."""


def failure(program: str, ended: ProgramExit, limits: ProgramLimits) -> FfmpegFailed:
    """Returns the error of a failed run."""
    words, errors = reason(program, ended, limits), ended.errors.decode("utf-8", "replace")
    if ended.status < 0 or ended.status == NOT_CONFINED_STATUS or "No space left" in errors:
        return FfmpegInterrupted(words)
    if "Cannot allocate memory" in errors and not _TOO_MANY_STREAMS.search(errors):
        return FfmpegInterrupted(words)
    return FfmpegFailed(words)


def reason(program: str, ended: ProgramExit, limits: ProgramLimits) -> str:
    """The reason of a failure, in one short line without paths."""
    errors = ended.errors.decode("utf-8", "replace")
    text = last_useful_line(errors)
    if ended.status == NOT_CONFINED_STATUS:
        return f"{program} could not be started in the sandbox: {text}"
    if limit := _limit_met(ended, errors, limits):
        return f"{program} {limit}"
    if too_many := _TOO_MANY_STREAMS.search(errors):
        return f"the file has more than {too_many[1]} tracks"
    if ended.status < 0:
        names = {each.value: each.name for each in signal.Signals}
        return f"{program} crashed ({names.get(-ended.status, f'signal {-ended.status}')})"
    return text or f"{program} ended with status {ended.status}"


def _limit_met(ended: ProgramExit, errors: str, limits: ProgramLimits) -> str | None:
    if ended.status == -signal.SIGKILL and ended.cpu_seconds >= 0.5 * limits.cpu_seconds:
        return f"needed more than {limits.cpu_seconds:g} s of CPU time"
    if ended.status == -signal.SIGXFSZ:
        return f"wrote more than {limits.output_bytes} bytes"
    if "Cannot allocate memory" in errors and not _TOO_MANY_STREAMS.search(errors):
        return f"needed more than {limits.memory_bytes // 1024**2} MiB of memory"
    return None


def last_useful_line(errors: str) -> str:
    """The last informative line of stderr, without addresses and paths."""
    lines = []
    for line in errors.splitlines():
        text = _WHICH_INPUT.sub("", _ADDRESSES.sub("", line))
        text = _PATH.sub("the file", text).strip().removeprefix("the file: ")
        if text := "".join(filter(str.isprintable, text))[:MESSAGE_CHARACTERS]:
            lines.append(text)
    for line in reversed(lines):
        if not line.startswith(_FOLLOWS_FROM_OTHERS):
            return line
    return lines[-1] if lines else ""


# ---- words ---------------------------------------------------------------------------------------

# Converts ffmpeg's description of an input to the form of ffprobe's output, if that is missing.


_INPUT = re.compile(r"^Input #0, (\S+), from ", re.MULTILINE)
_DURATION = re.compile(r"^  Duration: (\d+):(\d\d):(\d\d\.\d+)", re.MULTILINE)
_STREAM = re.compile(
    r"^ {2,4}Stream #0:(\d+)(?:\[\w+\])?(?:\(([^)\s]+)\))?: (Video|Audio|Subtitle): (\w+)(.*)",
    re.MULTILINE,
)
"""Metadata of a file is indented by six spaces or more."""

_CHANNELS = re.compile(r" Hz, (?:(mono|stereo)|(\d+)(?:\.(\d+)| channels))\b")
"""Layouts such as 5.1(side) have a digit for the main channels, and one for the LFE channels."""

_DOUBT = "detected only with low score"


def answer_in(words: str) -> dict[str, Any]:
    """`streams`, `format` and `chapters` like ffprobe's, with the few members that are known.

    Sizes, rates, chapters and rare channel layouts are missing.
    """
    container, duration = _INPUT.search(words), _DURATION.search(words)
    found: dict[str, Any] = {"format_name": container[1]} if container else {}
    if _DOUBT in words:
        found["probe_score"] = 1
    if duration:
        hours, minutes, seconds = map(float, duration.groups())
        found["duration"] = str(3600 * hours + 60 * minutes + seconds)
    streams = [
        {
            "index": int(index),
            "codec_type": kind.lower(),
            "codec_name": codec,
            "channels": _channels(rest) if kind == "Audio" else None,
            "tags": {"language": language} if language else {},
            "disposition": {"attached_pic": int("(attached pic)" in rest)},
        }
        for index, language, kind, codec, rest in _STREAM.findall(words)
    ]
    return {"streams": streams, "format": found, "chapters": []}


def _channels(words: str) -> int | None:
    match = _CHANNELS.search(words)
    if match is None:
        return None
    name, around, deep = match.groups()
    return {"mono": 1, "stereo": 2}[name] if name else int(around) + int(deep or 0)


# ---- hdr -----------------------------------------------------------------------------------------

# Converts HDR to SDR with ffmpeg filters.


_TRANSFERS: Mapping[HighDynamicRange, str] = {"pq": "smpte2084", "hlg": "arib-std-b67"}


def tone_mappings(hdr: HighDynamicRange | None) -> Sequence[str]:
    """Filters that convert a video to BT.709, to be tried in this order.

    The last one is empty: a video that this ffmpeg cannot tone-map is kept as it is.
    """
    if hdr is None:
        return [""]
    source = f"transferin={_TRANSFERS[hdr]}:primariesin=bt2020:matrixin=bt2020nc"
    linear = f"format=yuv444p10le,zscale={source}:transfer=linear:npl=100,format=gbrpf32le"
    mapped = "zscale=primaries=bt709,tonemap=hable:desat=0"
    target = "zscale=transfer=bt709:matrix=bt709:range=limited,format=yuv444p"
    return [f"{linear},{mapped},{target}", ""]
