"""Every run of ffmpeg and ffprobe: which one, with which options, in the sandbox, errors in words.

The sandbox assumes that a hostile file takes the program over. The options here keep it from being
led astray before: playlists and scripts are no films, and a film names no other files.
"""

from __future__ import annotations

import json
import re
import shutil
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from app.storage.base import Problem
from app.video.make.ffmpeg.errors import (
    FfmpegFailed,
    FfmpegMissing,
    FfmpegStopped,
    FfmpegTimedOut,
    failure,
)
from app.video.make.ffmpeg.words import answer_in
from app.video.make.sandbox import process
from app.video.make.sandbox.launcher import REPORT_DESCRIPTOR
from app.video.make.sandbox.process import LAYERS, Command, Ended, Limits, Sink

FILM_FORMATS = (
    "mov,matroska,avi,flv,live_flv,mpegts,mpeg,mpegvideo,m4v,h264,hevc,obu,ivf,dv,mxf,gxf,nut,rm,"
    "wtv,asf,ogg,wav,w64,aiff,caf,mp3,aac,ac3,eac3,dts,flac"
)
"""Demuxers for what people upload. Never those that open other files: hls, dash, concat, image2."""

MAX_PIXELS = 8192 * 8192
"""A larger picture is not decoded: a PNG of 15 MB may need 2.3 GB."""

MAX_STREAMS = 100
"""A file with more is refused."""

PROBE_LIMITS = Limits(
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
    limits: Limits
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
        limits: Limits = PROBE_LIMITS,
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
        self, path: Path, limits: Limits, *, formats: str, stop: threading.Event | None
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

    def problems(self) -> list[Problem]:
        """What is missing on this machine, and what follows; none of it stops an upload."""
        if self.ffmpeg is None:
            detail = f"{WITHOUT_FFMPEG}: videos get no pictures and no other qualities"
            return [Problem("no_ffmpeg", detail, is_fatal=False)]
        missing = process.missing_layers()
        found = [Problem("not_confined", detail, is_fatal=False) for detail in missing]
        if self.ffprobe is None:
            detail = f"{WITHOUT_FFPROBE}: less is known of films other than MP4 and MOV"
            found.append(Problem("no_ffprobe", detail, is_fatal=False))
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
) -> Ended:
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
