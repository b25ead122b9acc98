"""What can go wrong when ffmpeg runs, and why, in words for a person."""

from __future__ import annotations

import re
import signal

from app.video.make.sandbox.launcher import NOT_CONFINED_STATUS
from app.video.make.sandbox.process import Ended, Limits

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


def failure(program: str, ended: Ended, limits: Limits) -> FfmpegFailed:
    """The error of a run that failed."""
    words = reason(program, ended, limits)
    return FfmpegInterrupted(words) if _was_interrupted(ended) else FfmpegFailed(words)


def _was_interrupted(ended: Ended) -> bool:
    errors = ended.errors.decode("utf-8", "replace")
    if ended.status < 0 or ended.status == NOT_CONFINED_STATUS or "No space left" in errors:
        return True
    return "Cannot allocate memory" in errors and not _TOO_MANY_STREAMS.search(errors)


def reason(program: str, ended: Ended, limits: Limits) -> str:
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


def _limit_met(ended: Ended, errors: str, limits: Limits) -> str | None:
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
