"""What a step may use for one file, so that the film of another client does not wait for it.

1. In the lane `quick`, a short index is read at once.
2. A longer one, and a file that only ffprobe knows, wait there for those, with priority `LATER`.
3. What takes more than 2 s of CPU time goes to the lane `long`. There, such an index is read by a
   process of its own; see `alone.py`.
"""

from __future__ import annotations

from dataclasses import replace

from app.core.jobs import Job, JobYields, Lane
from app.video.index.entries import LONG_INDEX, SHORT_INDEX
from app.video.index.errors import LongIndex
from app.video.make.ffmpeg.program import PROBE_LIMITS
from app.video.make.sandbox.process import Limits

QUICK_CPU_SECONDS = 2
"""Of a program in the lane `quick`; ffprobe takes 0.1 s for most films."""

LATER = 10
"""Priority, in the lane `quick`, of what takes longer than a short index."""


_QUICK_PROBE_LIMITS = replace(PROBE_LIMITS, cpu_seconds=QUICK_CPU_SECONDS)


def probe_limits(job: Job) -> Limits:
    """What ffprobe may use for this job."""
    return _QUICK_PROBE_LIMITS if job.lane is Lane.QUICK else PROBE_LIMITS


def most_entries(job: Job) -> int:
    """The longest index that a step may read for this job in the media worker."""
    return SHORT_INDEX if _is_first_look(job) else LONG_INDEX


def wait_for_short_ones(job: Job) -> None:
    """Raise `JobYields` unless it has made way for short indexes already."""
    if _is_first_look(job):
        raise JobYields(Lane.QUICK, LATER)


def leave_lane(job: Job) -> None:
    """Raise `JobYields` unless it is in the lane of what takes long already."""
    if job.lane is not Lane.LONG:
        raise JobYields(Lane.LONG)


def leave_quick_lane(job: Job) -> None:
    """Raise `JobYields` if it is in the lane `quick`: elsewhere, programs have more time."""
    if job.lane is Lane.QUICK:
        leave_lane(job)


def make_way(job: Job, error: LongIndex) -> None:
    """Raise `JobYields` as far as a job with such an index has not made way yet."""
    if error.entries <= LONG_INDEX:
        wait_for_short_ones(job)
    leave_lane(job)


def _is_first_look(job: Job) -> bool:
    return job.lane is Lane.QUICK and job.priority < LATER
