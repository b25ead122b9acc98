"""How fast any of several machines encodes, so that all offer the same qualities."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime

from app.media.film.facts import known_members
from app.media.renditions.capability import Capability
from app.records.encoders import EncoderRecords

ASKED_SECONDS = 5.0
"""Between two looks at what the others say."""


class SharedCapability:
    """That of the slowest media worker: whichever gets a job is fast enough for it.

    Segments that others encode with another ffmpeg are alike, or are refused as unlike.
    """

    def __init__(
        self,
        records: EncoderRecords,
        own: Callable[[], Capability | None],
        clock: Callable[[], datetime],
    ) -> None:
        """`own` is what was measured on this machine."""
        self._records = records
        self._own = own
        self._clock = clock
        self._found: Capability | None = None
        self._ask_at = 0.0

    def __call__(self) -> Capability | None:
        """The capability; this machine's own while no worker has told any."""
        if time.monotonic() >= self._ask_at:
            told = [
                Capability(**known_members(Capability, facts))
                for facts in self._records.live(self._clock())
            ]
            self._found = min(told, key=lambda each: each.megapixels_per_second, default=None)
            self._ask_at = time.monotonic() + ASKED_SECONDS
        return self._found or self._own()

    def tell(self, worker: str) -> None:
        """Let the others know what the worker of this machine can do, if it can."""
        if (own := self._own()) is not None:
            self._records.tell(worker, asdict(own), self._clock())
