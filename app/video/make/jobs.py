"""Videos' part of the background worker: runs the steps, and finds the videos that need some."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.core.jobs import INDEX, Job, Step
from app.db.job_worker import Kind
from app.db.jobs import BATCH
from app.video.make.sweep import MediaSweep

log = logging.getLogger(__name__)

Listener = Callable[[str, str, float], None]
"""Called after each attempt with the step, one of `OUTCOMES` and the seconds."""

SWEEP_SECONDS = 300.0
"""How often all videos are swept, which takes 0.4 s of CPU for 100 000 of them."""


@dataclass(kw_only=True)
class MediaJobs:
    """The steps as kinds of jobs. Without the step `index`, no new videos are planned.

    A step may run again after its end, or concurrently with a run that has lost its lease: it makes
    files in a scratch folder, and each is published by the change of its row.
    """

    steps: Mapping[str, Step]
    sweep: MediaSweep
    look_at_arrivals: Callable[[], bool]
    """Looks at active uploads; True to be called again at once."""
    wake: Callable[[], None]
    make_room: Callable[[], object] = lambda: None
    tell: Listener = lambda _step, _outcome, _seconds: None
    sweep_seconds: float = SWEEP_SECONDS
    _sweep_at: float | None = None

    def kinds(self) -> dict[str, Kind]:
        """The steps, for the job worker."""
        return {name: Kind(run=step, after=self._after) for name, step in self.steps.items()}

    def look(self) -> int:
        """Run the sweeps of recent uploads, and at times of all; returns their highest count."""
        if self._sweep_at is None:
            self.sweep.remove_strays()
            self.sweep.plan_unmade()
            self._sweep_at = 0.0
        most = self._sweep(is_recent=True)
        if time.monotonic() >= self._sweep_at:
            self.sweep.remove_abandoned()
            self.make_room()
            count = self._sweep(is_recent=False)
            self._sweep_at = 0.0 if count >= BATCH else time.monotonic() + self.sweep_seconds
            most = max(most, count)
        return most

    def _sweep(self, *, is_recent: bool) -> int:
        counts = [
            self.sweep.forget(is_recent=is_recent),
            self.sweep.conclude(is_recent=is_recent),
        ]
        if INDEX in self.steps:
            counts.append(self.sweep.plan(is_recent=is_recent))
        if not is_recent:
            counts.append(self.sweep.settle())
        return max(counts)

    def _after(self, job: Job, outcome: str, seconds: float) -> None:
        self.tell(job.kind, outcome, seconds)
        log.info("%s: %s in %.2f s", job, outcome, seconds, extra={"upload_id": job.upload_id})
        if outcome == "cancelled":
            self.sweep.remove_if_gone(job.upload_id)
        if self.sweep.settle(job.upload_id):
            self.wake()  # For the event `video.ready`.
