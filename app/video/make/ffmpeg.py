"""Every run of ffmpeg and ffprobe: which one, with which options, in the sandbox, errors in words.

The sandbox assumes that a hostile file takes the program over. The options here keep it from being
led astray before: playlists and scripts are no films, and a film names no other files.
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

FILM_FORMATS = (
    "mov,matroska,avi,flv,live_flv,mpegts,mpeg,mpegvideo,m4v,h264,hevc,obu,ivf,dv,mxf,gxf,nut,rm,"
    "wtv,asf,ogg,wav,w64,aiff,caf,mp3,aac,ac3,eac3,dts,flac"
)
"""Demuxers for what people upload. Never those that open other files: hls, dash, concat, image2."""

MAX_PIXELS = 8192 * 8192
"""A larger picture is not decoded: a PNG of 15 MB may need 2.3 GB."""

MAX_STREAMS = 100
"""A file with more is refused."""

PROBE_LIMITS = ProgramLimits(
    cpu_seconds=10, wall_seconds=10, memory_bytes=1024**3, output_bytes=4 * 1024**2
)

PROGRESS_SECONDS = 0.5
"""How often progress is told, also when nothing is new: the caller may want to stop."""

_OUT_TIME = re.compile(rb"^out_time_us=(\d{1,18})$", re.MULTILINE)

WITHOUT_FFMPEG = "ffmpeg is not installed"
WITHOUT_FFPROBE = "ffprobe is not installed"


@dataclass(frozen=True, slots=True)
class Conversion:
    """What ffmpeg is to make of which files, and what it may use for that.

    It works in the folder `writable`, and reads the files of `readable` by their whole paths.
    `formats` are the demuxers that its inputs may be in.
    """

    arguments: Sequence[str]
    _: KW_ONLY
    limits: ProgramLimits
    readable: Sequence[Path] = ()
    writable: Path | None = None
    formats: str = FILM_FORMATS


@dataclass(frozen=True, slots=True, kw_only=True)
class Ffmpeg:
    """The programs, each None where it is not installed, and the layers that confine them."""

    ffmpeg: Path | None
    ffprobe: Path | None
    layers: frozenset[str] = LAYERS

    @classmethod
    def find(cls) -> Ffmpeg:
        """Those in PATH; otherwise the ffmpeg of the package imageio-ffmpeg, without ffprobe."""
        return cls(ffmpeg=_in_path("ffmpeg") or _in_package(), ffprobe=_in_path("ffprobe"))

    def version(self) -> str:
        """As ffmpeg says it, such as `5.1.9-0+deb12u1`."""
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
        """What ffmpeg writes to its standard output, or nothing if `on_output` takes the blocks.

        `progress` is called every half second with how many seconds of the result are made; what
        it raises ends the run. Raises the errors of `FfmpegError`.
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
        formats: str = FILM_FORMATS,
        stop: threading.Event | None = None,
    ) -> dict[str, Any]:
        """What ffprobe finds: `streams`, `format` and `chapters`. Raises like `run`.

        Without ffprobe, what ffmpeg says of the file, which is less.
        """
        if self.ffprobe is None:
            return self._ask_ffmpeg(path, limits, formats=formats, stop=stop)
        shown = ["-show_streams", "-show_format", "-show_chapters", "-of", "json"]
        source = guarded(["-i", f"file:{path.absolute()}"], formats)
        command = Command(
            program=self.ffprobe,
            arguments=["-v", "error", *shown, *source],
            limits=limits,
            readable=[path],
            layers=self.layers,
        )
        try:
            found = json.loads(_run(command, stop=stop))
        except (ValueError, RecursionError) as error:
            raise FfmpegFailed("ffprobe's answer could not be read") from error
        return found if isinstance(found, dict) else {}

    def _ask_ffmpeg(
        self, path: Path, limits: ProgramLimits, *, formats: str, stop: threading.Event | None
    ) -> dict[str, Any]:
        """It describes the file, and then complains that there is no output to write."""
        source = guarded(["-i", f"file:{path.absolute()}"], formats)
        command = Command(
            program=self._need_ffmpeg(),
            arguments=["-nostdin", "-hide_banner", *source],
            limits=limits,
            readable=[path],
            layers=self.layers,
        )
        ended = _end(command, stop=stop)
        found = answer_in(ended.errors.decode("utf-8", "replace"))
        if not found["streams"]:
            raise failure(command.program.name, ended, limits)
        return found

    def problems(self) -> list[SetupProblem]:
        """What is missing on this machine, and what follows; none of it stops an upload."""
        if self.ffmpeg is None:
            detail = f"{WITHOUT_FFMPEG}: videos get no pictures and no other qualities"
            return [SetupProblem("no_ffmpeg", detail, is_fatal=False)]
        missing = process.missing_layers()
        found = [SetupProblem("not_confined", detail, is_fatal=False) for detail in missing]
        if self.ffprobe is None:
            detail = f"{WITHOUT_FFPROBE}: less is known of films other than MP4 and MOV"
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
    output = _Output(command.program.name, command.limits.output_bytes)
    take = on_output or output.add
    ended = _end(command, on_output=take, on_report=on_report, stop=stop)
    if ended.status != 0:
        raise failure(command.program.name, ended, command.limits)
    return bytes(output.kept)


def _end(
    command: Command,
    *,
    on_output: Sink = lambda _: None,
    on_report: Sink = lambda _: None,
    stop: threading.Event | None = None,
) -> ProgramExit:
    """How a run ended, with any status."""
    name, limits = command.program.name, command.limits
    try:
        return process.run(command, on_output=on_output, on_report=on_report, stop=stop)
    except process.TimedOut:
        raise FfmpegTimedOut(f"{name} took longer than {limits.wall_seconds:g} s") from None
    except process.Stopped:
        raise FfmpegStopped(f"{name} was stopped") from None


class _Output:
    """Keeps the standard output in memory, up to a limit."""

    def __init__(self, program: str, limit: int) -> None:
        self.kept = bytearray()
        self._program = program
        self._limit = limit

    def add(self, block: bytes) -> None:
        if len(self.kept) + len(block) > self._limit:
            raise FfmpegFailed(f"{self._program} wrote more than {self._limit} bytes")
        self.kept += block


class _Progress:
    """Reads what `-progress` writes, and tells it every half second."""

    def __init__(self, tell: Callable[[float], object] | None) -> None:
        self._tell = tell
        self._seconds = 0.0
        self._rest = b""
        self._told_at = time.monotonic()

    def read(self, block: bytes) -> None:
        if block:
            text = (self._rest + block)[-4096:]
            for micros in _OUT_TIME.findall(text):
                self._seconds = int(micros) / 1e6
            self._rest = text.rpartition(b"\n")[2]
        now = time.monotonic()
        if self._tell and now - self._told_at >= PROGRESS_SECONDS:
            self._told_at = now
            self._tell(self._seconds)


_GLOBAL_OPTIONS = [
    *("-nostdin", "-hide_banner", "-nostats", "-loglevel", "error"),
    *("-progress", f"pipe:{REPORT_DESCRIPTOR}"),
]


def guarded(arguments: Sequence[str], formats: str) -> list[str]:
    """The arguments, with the limits of an input before each `-i`: options hold for one file."""
    limits = ["-protocol_whitelist", "file,pipe", "-format_whitelist", formats]
    limits += ["-max_pixels", str(MAX_PIXELS), "-max_streams", str(MAX_STREAMS)]
    found: list[str] = []
    for argument in arguments:
        found += [*limits, argument] if argument == "-i" else [argument]
    return found


def _in_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


def _in_package() -> Path | None:
    """The static ffmpeg of imageio-ffmpeg. Its own function runs programs to find it."""
    binaries = Path(sysconfig.get_path("purelib")) / "imageio_ffmpeg" / "binaries"
    return next(iter(sorted(binaries.glob("ffmpeg-linux-*"))), None)


# ---- errors --------------------------------------------------------------------------------------

# What can go wrong when ffmpeg runs, and why, in words for a person.


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
"""How lines begin that only say that an earlier error was fatal."""

_WHICH_INPUT = re.compile(r"^Error opening (input|output)( files?)?: ")


class FfmpegError(Exception):
    """Base; `str()` is a sentence for people."""


class FfmpegMissing(FfmpegError):
    """The program is not installed."""


class FfmpegFailed(FfmpegError):
    """The program could not do it; the file is damaged or not supported, or a limit was met."""


class FfmpegInterrupted(FfmpegFailed):
    """It was killed, or lacked memory or room: that may be due to the machine, not to the file."""


class FfmpegTimedOut(FfmpegInterrupted):
    """It took too long, and was killed."""


class FfmpegStopped(FfmpegError):
    """The caller's event was set, and it was killed."""


def failure(program: str, ended: ProgramExit, limits: ProgramLimits) -> FfmpegFailed:
    """The error of a run that failed."""
    words = reason(program, ended, limits)
    return FfmpegInterrupted(words) if _was_interrupted(ended) else FfmpegFailed(words)


def _was_interrupted(ended: ProgramExit) -> bool:
    errors = ended.errors.decode("utf-8", "replace")
    if ended.status < 0 or ended.status == NOT_CONFINED_STATUS or "No space left" in errors:
        return True
    return "Cannot allocate memory" in errors and not _TOO_MANY_STREAMS.search(errors)


def reason(program: str, ended: ProgramExit, limits: ProgramLimits) -> str:
    """Why a run failed, in one short line without paths."""
    errors = ended.errors.decode("utf-8", "replace")
    text = last_useful_line(errors)
    if ended.status == NOT_CONFINED_STATUS:
        return f"{program} could not be started in the sandbox: {text}"
    if limit := _limit_met(ended, errors, limits):
        return f"{program} {limit}"
    if too_many := _TOO_MANY_STREAMS.search(errors):
        return f"the file has more than {too_many[1]} tracks"
    if ended.status < 0:
        return f"{program} crashed ({_signal_name(-ended.status)})"
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
    """The last line of stderr that says something new, without addresses and paths."""
    lines = [_without_names(line) for line in errors.splitlines()]
    lines = [line for line in lines if line]
    for line in reversed(lines):
        if not line.startswith(_FOLLOWS_FROM_OTHERS):
            return line
    return lines[-1] if lines else ""


def _without_names(line: str) -> str:
    text = _WHICH_INPUT.sub("", _ADDRESSES.sub("", line))
    text = _PATH.sub("the file", text).strip().removeprefix("the file: ")
    return "".join(letter for letter in text if letter.isprintable())[:MESSAGE_CHARACTERS]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---- words ---------------------------------------------------------------------------------------

# What ffmpeg prints about an input, in the form of ffprobe's answer, where that is missing.


_INPUT = re.compile(r"^Input #0, (\S+), from ", re.MULTILINE)
_DURATION = re.compile(r"^  Duration: (\d+):(\d\d):(\d\d\.\d+)", re.MULTILINE)
_STREAM = re.compile(
    r"^ {2,4}Stream #0:(\d+)(?:\[\w+\])?(?:\(([^)\s]+)\))?: (Video|Audio|Subtitle): (\w+)(.*)",
    re.MULTILINE,
)
"""A file's own texts are indented by six spaces or more."""

_CHANNELS = re.compile(r" Hz, (?:(mono|stereo)|(\d+)(?:\.(\d+)| channels))\b")
"""Layouts such as 5.1(side) have a digit for the channels all round, and one for the deep ones."""

_DOUBT = "detected only with low score"


def answer_in(words: str) -> dict[str, Any]:
    """`streams`, `format` and `chapters` as ffprobe has them, with the few members it can tell.

    Sizes, rates, chapters and rare channel layouts are missing.
    """
    container, duration = _INPUT.search(words), _DURATION.search(words)
    found: dict[str, Any] = {"format_name": container[1]} if container else {}
    if _DOUBT in words:
        found["probe_score"] = 1
    if duration:
        hours, minutes, seconds = map(float, duration.groups())
        found["duration"] = str(3600 * hours + 60 * minutes + seconds)
    streams = [_stream(match) for match in _STREAM.finditer(words)]
    return {"streams": streams, "format": found, "chapters": []}


def _stream(match: re.Match[str]) -> dict[str, Any]:
    index, language, kind, codec, rest = match.groups()
    return {
        "index": int(index),
        "codec_type": kind.lower(),
        "codec_name": codec,
        "channels": _channels(rest) if kind == "Audio" else None,
        "tags": {"language": language} if language else {},
        "disposition": {"attached_pic": int("(attached pic)" in rest)},
    }


def _channels(words: str) -> int | None:
    match = _CHANNELS.search(words)
    if match is None:
        return None
    name, around, deep = match.groups()
    return {"mono": 1, "stereo": 2}[name] if name else int(around) + int(deep or 0)


# ---- hdr -----------------------------------------------------------------------------------------

# Pictures of a high dynamic range for screens of the standard one, as filters of ffmpeg.


_TRANSFERS: Mapping[HighDynamicRange, str] = {"pq": "smpte2084", "hlg": "arib-std-b67"}


def tone_mappings(hdr: HighDynamicRange | None) -> Sequence[str]:
    """Filters that make BT.709 of such a picture, to be tried in this order.

    The last is none: a picture that this ffmpeg cannot map is shown as it is.
    """
    return [_tone_mapped(_TRANSFERS[hdr]), ""] if hdr else [""]


def _tone_mapped(transfer: str) -> str:
    source = f"transferin={transfer}:primariesin=bt2020:matrixin=bt2020nc"
    linear = f"format=yuv444p10le,zscale={source}:transfer=linear:npl=100,format=gbrpf32le"
    mapped = "zscale=primaries=bt709,tonemap=hable:desat=0"
    return f"{linear},{mapped},zscale=transfer=bt709:matrix=bt709:range=limited,format=yuv444p"
