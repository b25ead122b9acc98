"""The steps that make other qualities, on records and folders of their own."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path, PurePath

from app.core.jobs import Heartbeat, Job, Lane, Step
from app.core.upload import UploadId
from app.db.job_worker import JobWorker
from app.video.index.movie import Movie, read_movie
from app.video.make.ffmpeg import Ffmpeg
from app.video.make.renditions import RenditionMakers, encode_segments, encode_video
from app.video.make.steps import StepTools
from app.video.make.video_files import keep_streams
from app.video.serve.ladder import Capability
from app.video.serve.renditions import (
    ORDERED_PRIORITY,
    RENDITION,
    SEGMENTS,
    priority_at,
    rendition_file,
    rendition_folder,
)
from app.video.serve.source import REMUXED, MediaSource, length_of, reader
from tests.derived import names_of, place
from tests.storage.stores import local_store
from tests.video.world import World, wall_clock

LEASE = timedelta(hours=1)
"""Nobody renews it while a test has a claim itself."""

CAPABILITY = Capability(encoder="as installed", megapixels_per_second=1000)


class StepRunner:
    """Runs the steps on a film; those of the tests have one rung, of their own size."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.source = MediaSource(local_store(folder / "in", folder / "out"), self.world.files)
        self.capability = CAPABILITY

    def tools(self, programs: Ffmpeg | None = None) -> StepTools:
        tools = self.world.tools(self.source, programs)
        return replace(tools, capability=lambda: self.capability)

    def add(self, path: Path) -> UploadId:
        """A film, indexed."""
        upload_id = self.world.publish()
        source = place(self.world.files, upload_id, REMUXED, path.read_bytes())
        with source.open("rb", buffering=0) as file:
            movie, read_at = movie_of(source), reader(file)
            keep_streams(movie, upload_id, self.world.files, read_at=read_at)
        return upload_id

    def queue(self, upload_id: UploadId, step: str, argument: str, priority: int) -> Job:
        lane = Lane.BACKGROUND if step == RENDITION else Lane.ON_DEMAND
        now = wall_clock()
        jobs = self.world.jobs
        return jobs.enqueue(upload_id, step, argument, lane=lane, priority=priority, now=now)

    def claim(self, lane: Lane) -> Job:
        steps = [SEGMENTS, RENDITION]
        job = self.world.jobs.claim(lane, "worker", wall_clock(), LEASE, steps)
        assert job is not None
        return job

    def segments(self, upload_id: UploadId, number: int, programs: Ffmpeg | None = None) -> None:
        self.queue(upload_id, SEGMENTS, f"360/{number}", priority_at(wall_clock()))
        self.run(self.claim(Lane.ON_DEMAND), programs=programs)

    def rendition(self, upload_id: UploadId) -> Path:
        self.queue(upload_id, RENDITION, "360", ORDERED_PRIORITY)
        self.run(self.claim(Lane.BACKGROUND))
        return self.world.path(upload_id, rendition_file(360))

    def run(self, job: Job, beat: Heartbeat | None = None, programs: Ffmpeg | None = None) -> None:
        step = self.steps(programs)[job.kind]
        try:
            step(job, beat or Heartbeat(job))
        finally:
            assert self.world.half_made() == []
        assert self.world.jobs.finish(job, wall_clock())

    def worker(self, name: str, programs: Ffmpeg | None = None) -> JobWorker:
        """One that runs both steps."""
        return self.world.worker(self.steps(programs), name=name)

    def steps(self, programs: Ffmpeg | None = None) -> dict[str, Step]:
        makers = RenditionMakers(self.tools(programs))
        return {
            SEGMENTS: partial(encode_segments, makers),
            RENDITION: partial(encode_video, makers),
        }

    def made(self, upload_id: UploadId) -> set[str]:
        """The names of the segments that there are."""
        folder = f"{rendition_folder(360)}/"
        made = [PurePath(each) for each in names_of(self.world.files, upload_id) if folder in each]
        return {path.stem for path in made if path.suffix == ".m4s"}


def movie_of(path: Path) -> Movie:
    with path.open("rb", buffering=0) as file:
        return read_movie(reader(file), length_of(file))
