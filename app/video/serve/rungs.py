"""Where other qualities are kept, and how they are asked for: what web and worker agree on.

rungs/720/init.mp4, rungs/720/15.m4s    segments, from 1, made one by one when they are asked for
rungs/720/left-out                      numbers of those that the whole film goes without
renditions/720.mp4                      the whole film, with sound, for downloads
"""

from __future__ import annotations

from datetime import datetime

from app.core.upload import UploadId
from app.video.serve.folder import MadeFiles, read_whole

SEGMENTS = "segments"
"""The step that makes a segment and a few of those after it: `rung/number`, such as "720/15"."""

RENDITION = "rendition"
"""The step that makes the whole film: the rung, such as "720"."""

ASKED_SECONDS = 60
"""A segment for which nobody has asked for so long is not made any more."""

ORDERED_PRIORITY, EAGER_PRIORITY = 50, 90
"""Of `RENDITION`: somebody has ordered it, or nobody has."""


def rung_folder(quality: int) -> str:
    """The folder of a rung, in that of its video."""
    return f"rungs/{quality}"


def initialization_file(quality: int) -> str:
    """What players load before the segments."""
    return f"{rung_folder(quality)}/init.mp4"


def segment_file(quality: int, number: int) -> str:
    """A segment, counted from 1."""
    return f"{rung_folder(quality)}/{number}.m4s"


def left_out_file(quality: int) -> str:
    """The numbers of segments in which nothing can be decoded, a line each."""
    return f"{rung_folder(quality)}/left-out"


def left_out(folder: MadeFiles, upload_id: UploadId, quality: int) -> frozenset[int]:
    """The segments that the whole film goes without, counted from 1."""
    try:
        numbers = read_whole(folder, upload_id, left_out_file(quality))
    except FileNotFoundError:
        return frozenset()
    return frozenset(map(int, numbers.split()))


def rendition_file(quality: int) -> str:
    """The whole film."""
    return f"renditions/{quality}.mp4"


def segments_argument(quality: int, number: int) -> str:
    """The argument of `SEGMENTS`."""
    return f"{quality}/{number}"


def asked_for(argument: str) -> tuple[int, int]:
    """The rung and the number of a segment that an argument of `SEGMENTS` names."""
    quality, _, number = argument.partition("/")
    return int(quality), int(number)


def priority_at(now: datetime) -> int:
    """That of a request for segments: the latest first, as who seeks has left where he was.

    Asking again gives the job a better one, so it also says when somebody asked last.
    """
    return -int(now.timestamp())


def is_stale(priority: int, now: datetime) -> bool:
    """Whether the last request for a segment was too long ago."""
    return now.timestamp() + priority > ASKED_SECONDS
