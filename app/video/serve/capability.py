"""The encoding speed of this host, measured by the media worker; decides the offered renditions.

Without a measurement there is no encoder, and no renditions are offered.
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
"""In the media folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """A measurement and its conditions: another ffmpeg, machine or option is measured again."""

    encoder: str
    """The version of ffmpeg."""
    processors: int = 1
    options: str = ""
    """Options of the encoder."""
    megapixels_per_second: float
    """Encoding speed, with the options of segments."""


def read_capability(media: Path) -> Capability | None:
    """Returns the stored measurement; None if there is none, or if the file is damaged.

    `media` is the media folder. Costs one `stat` of the file.
    """
    path = media / FILE
    with suppress(FileNotFoundError, ValueError, TypeError):
        return _read(path, path.stat().st_mtime_ns)
    return None


def write_capability(capability: Capability, media: Path, scratch: Path) -> None:
    """Store a measurement; `scratch` is a private folder on the same disk."""
    made = scratch / FILE
    with made.open("w") as file:
        json.dump(asdict(capability), file)
        file.flush()
        os.fsync(file.fileno())  # Otherwise a power cut may leave an empty file in its place.
    made.replace(media / FILE)


def discard_capability(media: Path) -> None:
    """Delete the measurement: there is no encoder any more."""
    (media / FILE).unlink(missing_ok=True)


@lru_cache(maxsize=1)
def _read(path: Path, _changed_at: int) -> Capability:
    return Capability(**json.loads(path.read_text()))


_DECODED = re.compile(
    r"avc[1-4]|ai[15][0-9pq]|hvc1|hev1|av01|vp0[89]|mp4v|m2v1|mp2v|mpg2|xd[v5].|hdv.|mx[345][np]|"
    r"ap(ch|cn|cs|co|4h|4x)|AVd[nh]|CFHD|dv(c |cp|pp|5n|5p|h.)|mjp[abg]|jpeg|png |rle |SVQ[13]|"
    r"cvid|2vuy|v210|[sh]263"
)
"""Video sample entries written by cameras and editors that every ffmpeg decodes."""


def is_decoded(picture: Track) -> bool:
    """Whether ffmpeg supports the codec; the track may still be damaged."""
    return _DECODED.fullmatch(picture.entry.fourcc) is not None


# ---- encoders ------------------------------------------------------------------------------------

# The encoding speed of the media workers that share a database.


FRESH_FOR = timedelta(minutes=15)
"""A worker that has not reported for this long is gone: each reports every five minutes."""


class EncoderRecords:
    """One row for each worker."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def tell(self, worker: str, capability: Mapping[str, Any], now: datetime) -> None:
        """Record a worker's capability, and delete the rows of workers that are gone.

        A stopping worker may do so at the same time as its successor of the same name.
        """
        facts = {"facts": json.dumps(capability), "told_at": now}
        is_own = encoders.c.worker == worker
        is_old = ~is_own & (encoders.c.told_at < now - FRESH_FOR)
        with self._database.write() as connection:
            connection.execute(delete(encoders).where(is_old))
            if not connection.execute(update(encoders).where(is_own).values(facts)).rowcount:
                insert_unless_known(connection, encoders, {"worker": worker, **facts})

    def live(self, now: datetime) -> list[Mapping[str, Any]]:
        """The capability of each live worker."""
        query = select(encoders.c.facts).where(encoders.c.told_at >= now - FRESH_FOR)
        with self._database.read() as connection:
            return [json.loads(text) for text in connection.scalars(query)]


# ---- shared capability ---------------------------------------------------------------------------

# The encoding speed of the nodes of a fleet, so that all offer the same renditions.


ASKED_SECONDS = 5.0
"""How often the other nodes' reports are read."""


class SharedCapability:
    """The capability of the slowest media worker, so that any worker is fast enough for any job.

    Segments from a different ffmpeg must match the others, or are rejected.
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
        """Report the capability of this machine's worker, if it is known."""
        if (own := self._own()) is not None:
            self._records.tell(worker, asdict(own), self._clock())
