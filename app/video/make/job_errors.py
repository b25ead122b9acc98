"""The errors of what steps use, as those of a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.core.jobs import JobCancelled, JobFailed
from app.video.index.errors import NotIndexable
from app.video.make.excerpts import TooLarge
from app.video.make.ffmpeg.errors import (
    FfmpegFailed,
    FfmpegInterrupted,
    FfmpegMissing,
    FfmpegStopped,
)

NO_FFMPEG = "no_ffmpeg"
"""The code of what is missing because ffmpeg is not installed."""

NO_RENDITIONS = "no_renditions"
"""The code of films that could only be played in other qualities, if those were offered."""

INTERRUPTED = "interrupted"
"""The code of what was killed, took too long or lacked room: a later attempt may succeed."""


@contextmanager
def as_job_errors(code: str, what: str, *, is_final: bool = False) -> Iterator[None]:
    """Raise the errors of ffmpeg as those of a job; `what` is a sentence without its full stop.

    `is_final` says that what failed once by itself fails each time; what was interrupted has the
    code `INTERRUPTED` then.
    """
    try:
        yield
    except FfmpegStopped as error:
        raise JobCancelled(str(error)) from error
    except FfmpegMissing as error:
        raise JobFailed(NO_FFMPEG, f"{what}: {error}.", is_final=True) from error
    except FfmpegInterrupted as error:
        raise JobFailed(INTERRUPTED if is_final else code, f"{what}: {error}.") from error
    except (FfmpegFailed, TooLarge) as error:
        raise JobFailed(code, f"{what}: {error}.", is_final=is_final) from error


@contextmanager
def needing_index() -> Iterator[None]:
    """Raise the error of a file without an index as that of a job."""
    try:
        yield
    except NotIndexable as error:
        raise JobFailed(error.code, error.detail, is_final=True) from error
