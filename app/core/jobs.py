"""Jobs of the background worker, and their states as one table.

    queued <----> running ----> done
       |             |--------> failed
       +-------------+--------> cancelled

A job that has ended is queued again only when someone renews it. `running` leads to itself: a
worker whose lease has ended loses the job to another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from app.core.playback import PlaybackProblem
from app.core.upload import UploadId

MAX_ATTEMPTS = 3
"""A job that has failed this often, or crashed this many workers, fails for good."""

INDEX = "index"
"""The first step of every complete upload. It queues the others."""

REMUX = "remux"
"""The step that converts a video that cannot be indexed into one that can."""

SOUND = "sound"
"""The step that converts sound that browsers cannot play."""

WEBHOOK = "webhook"
"""Sends the events that are due to a webhook."""

PERIODIC = ("sweep", "garbage", "forgetting", "library", "digests")
"""Kinds of periodic jobs. Of each that a server has there is one, always queued or running."""

SWEEP, GARBAGE, FORGETTING, LIBRARY, DIGESTS = PERIODIC

FLEETING = frozenset({"segments", WEBHOOK})
"""Kinds whose jobs are deleted when done: a video has thousands of segments."""


class JobState(StrEnum):
    """The state of a job; the value is used in records and on the status page."""

    QUEUED = "queued"
    """Waiting for a worker, or for the time of its next attempt."""
    RUNNING = "running"
    """Held by a worker as long as it renews its lease."""
    DONE = "done"
    FAILED = "failed"
    """All attempts failed; its problem says why."""
    CANCELLED = "cancelled"
    """Ended on request."""


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED}),
    JobState.RUNNING: frozenset(JobState),
    JobState.DONE: frozenset({JobState.QUEUED}),
    JobState.FAILED: frozenset({JobState.QUEUED}),
    JobState.CANCELLED: frozenset({JobState.QUEUED}),
}

ENDED = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})

SHOWN = (JobState.QUEUED, JobState.RUNNING, JobState.FAILED)
"""States shown to operators."""


def sources(target: JobState) -> list[JobState]:
    """The states with a step to `target`."""
    return [state for state in JobState if target in TRANSITIONS[state]]


class Lane(StrEnum):
    """Queues that do not wait for each other, the most urgent first."""

    QUICK = "quick"
    """Takes less than a second, such as an index: a new video does not wait for a viewer's."""
    ON_DEMAND = "on_demand"
    """A viewer is waiting for it."""
    BACKGROUND = "background"
    """Takes minutes for most videos."""
    LONG = "long"
    """Videos whose index takes over 2 s of CPU time to read; these wait only for each other."""
    ENCODING = "encoding"
    """Takes hours, such as encoding a whole video."""
    WEBHOOKS = "webhooks"
    """Waits for receivers. Those of one project leave half of the threads to others."""
    UPKEEP = "upkeep"
    """Periodic jobs. Each has a thread, so that none waits for another."""

    @property
    def niceness(self) -> int:
        """Niceness of the lane's thread and its ffmpegs: uploads and downloads have priority."""
        return 5 if self in {Lane.QUICK, Lane.ON_DEMAND} else 19

    @property
    def threads(self) -> int:
        """The number of jobs that a worker runs at the same time."""
        return {Lane.WEBHOOKS: 8, Lane.UPKEEP: len(PERIODIC)}.get(self, 1)

    @property
    def most_of_client(self) -> int:
        """The number of jobs of one client that a worker runs at the same time."""
        return self.threads // 2 if self is Lane.WEBHOOKS else self.threads

    @property
    def urgency(self) -> int:
        """Rank of the lane; 0 is the most urgent."""
        return list(Lane).index(self)


MEDIA_LANES = tuple(lane for lane in Lane if lane not in {Lane.WEBHOOKS, Lane.UPKEEP})
"""Lanes with jobs about videos, which are shown to operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work of a kind for a subject, such as a step for a video; an argument has at most one job.

    `due_at` is the earliest time of the next attempt, or the end of a running job's lease.
    `attempts` counts claims since the job was last queued by request, at `queued_at`. A running
    job with `is_renewed` is queued again when it ends. `progress` is 0 to 1. `client` sent the
    file; within a lane and priority, `turn` orders jobs round-robin by client.
    """

    subject: str
    kind: str
    argument: str
    lane: Lane
    priority: int
    state: JobState
    attempts: int
    is_renewed: bool
    progress: float
    worker: str | None
    problem: PlaybackProblem | None
    queued_at: datetime
    updated_at: datetime
    due_at: datetime
    client: str
    turn: int

    def is_less_urgent_than(self, lane: Lane, priority: int) -> bool:
        """Whether a request with this lane and priority would be served earlier."""
        return (lane.urgency, priority) < (self.lane.urgency, self.priority)

    @property
    def upload_id(self) -> UploadId:
        """The video, for a step of the background worker."""
        return UploadId(self.subject)

    @property
    def log_fields(self) -> dict[str, str]:
        """For log messages about the job."""
        return {"upload_id": self.subject} if self.lane in MEDIA_LANES else {}

    @property
    def is_last_attempt(self) -> bool:
        """Whether the job fails for good if this attempt does; only jobs about videos do."""
        return self.lane in MEDIA_LANES and self.attempts >= MAX_ATTEMPTS

    def retry_after(self, first: timedelta) -> timedelta:
        """Pause after the failed attempt: `first`, then four times as long after each (backoff)."""
        growth: int = 4 ** min(max(0, self.attempts - 1), 5)
        return first * growth

    def __str__(self) -> str:
        """Kind and argument of the job."""
        return f"{self.kind} {self.argument}".rstrip()


class JobCancelled(Exception):
    """Raised by a heartbeat: stop now, and leave no partial files. The result is not needed."""


@dataclass(slots=True)
class Heartbeat:
    """Jobs call it regularly with their progress, from 0 to 1.

    Raises `JobCancelled` once the job is lost. `stop` is set at that moment, for threads that wait
    for a program.
    """

    job: Job
    stop: threading.Event = field(default_factory=threading.Event)
    progress: float = 0.0

    def __call__(self, progress: float) -> None:
        """Report progress. Cheap: a separate thread writes to the database."""
        self.progress = min(max(progress, 0.0), 1.0)
        self.go_on()

    def go_on(self) -> None:
        """Check for cancellation without reporting progress."""
        if self.stop.is_set():
            raise JobCancelled(str(self.job))


Step = Callable[[Job, Heartbeat], object]
"""Does one job. Raises `JobFailed` if that is impossible, and lets `JobCancelled` propagate.

It may run again after its end, or concurrently with a run that has lost its lease."""


class JobYields(Exception):
    """Raised by a step to yield to a more urgent job of its lane, or to move to another `lane`.

    The job is claimed again later, perhaps with another priority, and resumes where it stopped.
    """

    def __init__(self, lane: Lane | None = None, priority: int | None = None) -> None:
        super().__init__("another job comes first")
        self.lane = lane
        self.priority = priority


class JobFailed(Exception):
    """Raised by a step that cannot do its job; `detail` is a sentence for people.

    `is_final` says that another attempt would fail, too.
    """

    def __init__(self, code: str, detail: str, *, is_final: bool = False) -> None:
        super().__init__(detail)
        self.problem = PlaybackProblem(code, detail)
        self.is_final = is_final
