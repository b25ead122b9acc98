"""How fast this host encodes, as the media worker has measured it, for those who offer qualities.

Without a measurement there is no encoder, and nothing is offered.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from app.video.index.tracks import Track

FILE = ".encoder.json"
"""In the folder of what is made from videos."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """What was measured, and with what: another ffmpeg, machine or option is measured anew."""

    encoder: str
    """The version of ffmpeg."""
    processors: int = 1
    options: str = ""
    """Of the encoder."""
    megapixels_per_second: float
    """Encoded as segments are."""


def read_capability(media: Path) -> Capability | None:
    """What was measured; None if nothing was, or if the file is damaged: then measure again.

    `media` is the folder of what is made from videos. Costs one look at the file's time.
    """
    path = media / FILE
    with suppress(FileNotFoundError, ValueError, TypeError):
        return _read(path, path.stat().st_mtime_ns)
    return None


def write_capability(capability: Capability, media: Path, scratch: Path) -> None:
    """Keep what was measured; `scratch` is a folder of our own on the same disk."""
    made = scratch / FILE
    with made.open("w") as file:
        json.dump(asdict(capability), file)
        file.flush()
        os.fsync(file.fileno())  # Otherwise a power cut may leave an empty file in its place.
    made.replace(media / FILE)


def discard_capability(media: Path) -> None:
    """Forget what was measured: there is no encoder any more."""
    (media / FILE).unlink(missing_ok=True)


@lru_cache(maxsize=1)
def _read(path: Path, _changed_at: int) -> Capability:
    return Capability(**json.loads(path.read_text()))


_DECODED = re.compile(
    r"avc[1-4]|ai[15][0-9pq]|hvc1|hev1|av01|vp0[89]|mp4v|m2v1|mp2v|mpg2|xd[v5].|hdv.|mx[345][np]|"
    r"ap(ch|cn|cs|co|4h|4x)|AVd[nh]|CFHD|dv(c |cp|pp|5n|5p|h.)|mjp[abg]|jpeg|png |rle |SVQ[13]|"
    r"cvid|2vuy|v210|[sh]263"
)
"""Sample entries of pictures that every ffmpeg decodes, of those that cameras and editors write."""


def is_decoded(picture: Track) -> bool:
    """Whether ffmpeg knows what it is; it may be damaged all the same."""
    return _DECODED.fullmatch(picture.entry.fourcc) is not None
