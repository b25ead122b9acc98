"""How fast the nodes of a fleet encode, so that all offer the same qualities."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime

from app.video.serve.capability import Capability
from app.video.serve.encoders import EncoderRecords
from app.video.serve.facts import known_members

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
