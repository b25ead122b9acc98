"""A background worker on real records and folders; processes that run one, for tests that kill."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.core.jobs import Heartbeat, Job, Lane, Step
from app.core.lifecycle import UploadState
from app.core.upload import UploadId
from app.db.context import Context
from app.db.engine import Database
from app.db.job_worker import JobWorker, WorkerPace
from app.db.waking import WakeupSocket
from app.run.build import assemble
from app.run.server.background_worker import STOP_SECONDS
from app.run.server.child_processes import END_SIGNALS
from app.settings import Settings
from app.video.make.ffmpeg import Ffmpeg
from app.video.make.jobs import MediaJobs
from app.video.make.steps import StepTools
from app.video.make.sweep import MediaSweep
from app.video.serve.source import MediaSource
from tests.derived import path_of
from tests.records.making import add_projects, new_sqlite, new_upload

QUICK_PACE = WorkerPace(
    poll_seconds=0.05,
    lease=timedelta(seconds=2),
    check_seconds=0.05,
    progress_seconds=0.0,
    first_retry=timedelta(seconds=0.05),
    postponed=timedelta(seconds=0.05),
    failed_seconds=0.05,
)


def wall_clock() -> datetime:
    return datetime.now(UTC)


class World:
    """The folders and records of one server, as one of its processes sees them."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.database: Database = new_sqlite(data / "sluice.db")
        add_projects(self.database, "someone")  # Of `new_upload`.
        context = Context(
            database=self.database,
            clock=wall_clock,
            new_id=str,
            settings=Settings(data_dir=data, staging_dir=data / "staging", durability="none"),
        )
        services = assemble(context, clock=wall_clock).media
        self.uploads, self.jobs, self.media = services.uploads, services.jobs, services.records
        self.files = services.files
        self.outcomes: list[tuple[str, str]] = []

    def worker(
        self,
        steps: Mapping[str, Step],
        *,
        name: str = "worker",
        pace: WorkerPace = QUICK_PACE,
        clock: Callable[[], datetime] = wall_clock,
        look_at_arrivals: Callable[[], bool] = lambda: False,
    ) -> JobWorker:
        wakeup = WakeupSocket(self.data)
        media = MediaJobs(
            steps=steps,
            sweep=MediaSweep(media=self.media, uploads=self.uploads, files=self.files, clock=clock),
            look_at_arrivals=look_at_arrivals,
            wake=wakeup.notify,
            tell=lambda step, outcome, _seconds: self.outcomes.append((step, outcome)),
            sweep_seconds=0.2,
        )
        return JobWorker(
            jobs=self.jobs,
            kinds=media.kinds(),
            looks=[media.look],
            on_change=media.look_at_arrivals,
            wakeup=wakeup,
            name=name,
            clock=clock,
            pace=pace,
        )

    def tools(self, source: MediaSource, ffmpeg: Ffmpeg | None = None) -> StepTools:
        return StepTools(
            uploads=self.uploads,
            media=self.media,
            jobs=self.jobs,
            source=source,
            files=self.files,
            ffmpeg=ffmpeg or Ffmpeg.find(),
            capability=lambda: None,
            clock=wall_clock,
        )

    def publish(self, *, seconds_ago: float = 0) -> UploadId:
        """A complete upload; nobody is told."""
        at = wall_clock() - timedelta(seconds=seconds_ago)
        upload = new_upload(created_at=at)
        return self.uploads.add(replace(upload, state=UploadState.COMPLETE))[0].id

    def enqueue(
        self, upload_id: UploadId, step: str, argument: str = "", *, lane: Lane = Lane.ON_DEMAND
    ) -> Job:
        return self.jobs.enqueue(upload_id, step, argument, lane=lane, priority=1, now=wall_clock())

    def path(self, upload_id: UploadId, name: str) -> Path:
        """See `path_of`."""
        return path_of(self.files, upload_id, name)

    def half_made(self) -> list[Path]:
        """What makers have left."""
        return list((self.data / "media" / ".making").glob("*"))

    def close(self) -> None:
        self.database.close()


def write_a_file(world: World, seconds: float) -> Step:
    """A step that takes this long, and keeps a file that names what made it."""

    def make(job: Job, beat: Heartbeat) -> None:
        with world.files.scratch.folder() as scratch:
            made = scratch / "made"
            made.write_text(f"{job.kind} {job.argument}")
            for part in range(10):
                time.sleep(seconds / 10)
                beat(part / 10)
            name = f"{job.kind}-{job.argument}" if job.argument else job.kind
            world.files.keep(job.upload_id, {name: made})

    return make


def work_until_killed(data: Path, name: str, seconds: float) -> None:
    """A worker process."""
    world = World(data)
    with closing(world):
        step = write_a_file(world, seconds)
        world.worker(dict.fromkeys(("index", "pictures"), step), name=name).start()
        threading.Event().wait()


def work_until_told(data: Path) -> None:
    """A worker process, as the server runs it, with a step that does not stop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    world = World(data)
    worker = world.worker({"pictures": lambda _job, _beat: time.sleep(600)})
    worker.start()
    signal.sigwait(END_SIGNALS)
    worker.stop(STOP_SECONDS)
