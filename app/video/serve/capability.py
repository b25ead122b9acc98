"""How fast this host encodes, as the media worker has measured it, for those who offer qualities.

Without a measurement there is no encoder, and nothing is offered.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select, update

from app.db.engine import Database
from app.db.sql import insert_unless_known
from app.db.tables import encoders
from app.video.index.tracks import Track
from app.video.serve.facts import known_members

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


# ---- encoders ------------------------------------------------------------------------------------

# How fast the media workers that share a database encode.


FRESH_FOR = timedelta(minutes=15)
"""A worker silent for this long is gone: each reports every five minutes."""


class EncoderRecords:
    """One row for each worker."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def tell(self, worker: str, capability: Mapping[str, Any], now: datetime) -> None:
        """Record what a worker can do, and delete the rows of workers that are gone.

        A worker that stops may do so at the same moment as the next one of its name.
        """
        facts = {"facts": json.dumps(capability), "told_at": now}
        is_own = encoders.c.worker == worker
        is_old = ~is_own & (encoders.c.told_at < now - FRESH_FOR)
        with self._database.write() as connection:
            connection.execute(delete(encoders).where(is_old))
            if not connection.execute(update(encoders).where(is_own).values(facts)).rowcount:
                insert_unless_known(connection, encoders, {"worker": worker, **facts})

    def live(self, now: datetime) -> list[Mapping[str, Any]]:
        """What each live worker can do."""
        query = select(encoders.c.facts).where(encoders.c.told_at >= now - FRESH_FOR)
        with self._database.read() as connection:
            return [json.loads(text) for text in connection.scalars(query)]


# ---- shared capability ---------------------------------------------------------------------------

# How fast the nodes of a fleet encode, so that all offer the same qualities.


ASKED_SECONDS = 5.0
"""How often the other nodes' reports are read."""


class SharedCapability:
    """The capability of the slowest media worker, so that any worker is fast enough for any job.

    Segments from a different ffmpeg must match the others, or are refused.
    """

    def __init__(
        self,
        records: EncoderRecords,
        own: Callable[[], Capability | None],
        clock: Callable[[], datetime],
    ) -> None:
        """`own` is this machine's measured capability."""
        self._records = records
        self._own = own
        self._clock = clock
        self._found: Capability | None = None
        self._ask_at = 0.0

    def __call__(self) -> Capability | None:
        """The capability; this machine's own until a worker has reported one."""
        if time.monotonic() >= self._ask_at:
            told = [
                Capability(**known_members(Capability, facts))
                for facts in self._records.live(self._clock())
            ]
            self._found = min(told, key=lambda each: each.megapixels_per_second, default=None)
            self._ask_at = time.monotonic() + ASKED_SECONDS
        return self._found or self._own()

    def tell(self, worker: str) -> None:
        """Report what this machine's worker can do, if it is known."""
        if (own := self._own()) is not None:
            self._records.tell(worker, asdict(own), self._clock())
