"""What can go wrong when ffmpeg runs, and why, in words for a person."""

from __future__ import annotations

import re
import signal

from app.media.sandbox.launcher import NOT_CONFINED_STATUS
from app.media.sandbox.process import Ended, Limits

MESSAGE_CHARACTERS = 200

_ADDRESS = re.compile(r"\[[^\]@]{1,80}@ 0x[0-9a-f]+\]\s*")
_PATH = re.compile(r"(?<![\w:/])(?:file:)?/[^\s'\":,)]*/[^\s'\":,)]*")
_FOLLOWS_FROM_OTHERS = re.compile(
    r"Conversion failed!|Error opening (input|output) files?\b.*|Error while opening .*|"
    r"Error (initializing|reinitializing|while filtering|while processing|sending frames).*|"
    r"Failed to inject frame.*|Last message repeated .*|Task finished with error code.*|"
    r"Terminating thread.*"
)


class FfmpegError(Exception):
    """Base; `str()` is a sentence for people."""


class FfmpegMissing(FfmpegError):
    """The program is not installed."""


class FfmpegFailed(FfmpegError):
    """The program could not do it; the file is damaged or not supported, or a limit was met."""


class FfmpegTimedOut(FfmpegFailed):
    """It took too long, and was killed."""


class FfmpegStopped(FfmpegError):
    """The caller's event was set, and it was killed."""


def reason(program: str, ended: Ended, limits: Limits) -> str:
    """Why a run failed, in one short line without paths."""
    text = last_useful_line(ended.errors.decode("utf-8", "replace"))
    if ended.status == NOT_CONFINED_STATUS:
        return f"{program} could not be started in the sandbox: {text}"
    if ended.status == -signal.SIGKILL and ended.cpu_seconds >= 0.5 * limits.cpu_seconds:
        return f"{program} needed more than {limits.cpu_seconds:g} s of CPU time"
    if ended.status == -signal.SIGXFSZ:
        return f"{program} wrote more than {limits.output_bytes} bytes"
    if "Cannot allocate memory" in text:
        return f"{program} needed more than {limits.memory_bytes // 1024**2} MiB of memory"
    if ended.status < 0:
        return f"{program} crashed ({_signal_name(-ended.status)})"
    return text or f"{program} ended with status {ended.status}"


def last_useful_line(errors: str) -> str:
    """The last line of stderr that says something new, without addresses and paths."""
    for line in reversed(errors.splitlines()):
        text = _PATH.sub("the file", _ADDRESS.sub("", line)).strip()
        if text and not _FOLLOWS_FROM_OTHERS.fullmatch(text):
            printable = "".join(letter for letter in text if letter.isprintable())
            return printable.removeprefix("the file: ")[:MESSAGE_CHARACTERS]
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
