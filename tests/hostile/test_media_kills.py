"""Killed background workers: every job is done once in effect, none is stuck, nothing is left."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

from app.core.jobs import MEDIA_LANES, JobState
from app.core.upload import UploadId
from app.video.serve.derived_files import UNFINISHED_FOR
from tests.hostile.conftest import Scaled
from tests.video.world import World, wall_clock, work_until_killed
from tests.waiting import wait_until

STEP_SECONDS = 0.1
FILMS = 12
WORKERS = 2

forking = get_context("forkserver")
"""Forks a process that has imported what they need, and nothing else."""


class Workers:
    """Processes, each replaced as soon as it is killed."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._started = 0
        self._running = [self._start() for _ in range(WORKERS)]

    def _start(self) -> BaseProcess:
        self._started += 1
        arguments = (self._data, f"worker {self._started}", STEP_SECONDS)
        process = forking.Process(target=work_until_killed, args=arguments, daemon=True)
        process.start()
        return process

    def kill_one(self, rng: Random) -> None:
        place = rng.randrange(WORKERS)
        self._running[place].kill()
        self._running[place].join()
        self._running[place] = self._start()

    def kill_all(self) -> None:
        for process in self._running:
            process.kill()
            process.join()


def test_jobs_survive_whatever_kills_their_workers(tmp_path: Path, scaled: Scaled) -> None:
    rng = Random(14)
    forking.set_forkserver_preload(["tests.video.world"])
    world = World(tmp_path / "data")
    with closing(world):
        films = [world.publish() for _ in range(FILMS)]
        workers = Workers(world.data)
        try:
            for number in range(scaled(short=12, long=200)):
                work_for(world, rng.choice(films), number)
                wait_until(
                    lambda: has_running(world) or not unfinished(world), "a job runs, or all have"
                )
                time.sleep(rng.uniform(0.0, 2 * STEP_SECONDS))
                workers.kill_one(rng)
            work_off(world)
            retry_those_that_were_hit_three_times(world)
            work_off(world)
            wait_until(lambda: not world.half_made(), "nothing half-made is left")
        finally:
            workers.kill_all()
        for film in films:
            check(world, film)


def work_off(world: World) -> None:
    """Wait until no job is left. Their number falls all the time: none is stuck."""
    while left := unfinished(world):
        wait_until(lambda left=left: unfinished(world) < left, "a job ends")  # type: ignore[misc]


def unfinished(world: World) -> int:
    counts = world.jobs.counts()
    return sum(
        counts[lane, state] for lane in MEDIA_LANES for state in (JobState.QUEUED, JobState.RUNNING)
    )


def work_for(world: World, film: UploadId, number: int) -> None:
    """One job in each lane."""
    for lane in MEDIA_LANES:
        world.enqueue(film, "pictures", f"{number}-{lane}", lane=lane)


def has_running(world: World) -> bool:
    """Whether a worker has a job."""
    return any(world.jobs.counts()[lane, JobState.RUNNING] for lane in MEDIA_LANES)


def retry_those_that_were_hit_three_times(world: World) -> None:
    """They look like poison. An operator would do this."""
    failures = world.jobs.failures(1000)
    codes = [listed.job.problem and listed.job.problem.code for listed in failures]
    assert set(codes) <= {"worker_ended"}
    assert world.jobs.retry(wall_clock(), code="worker_ended") == len(failures)


def check(world: World, film: UploadId) -> None:
    """Each job is done, with its file, and there is no other file."""
    assert world.media.get(film) is not None
    jobs = world.jobs.of(film)
    assert "index" in {job.kind for job in jobs}
    assert {job.state for job in jobs} == {JobState.DONE}
    expected = {"-".join(filter(None, (job.kind, job.argument))): str(job) for job in jobs}
    names = world.files.top_names([film])[film]
    made = {name: world.path(film, name).read_text().strip() for name in names}
    assert made == expected
    a_day_later = replace(world.files, clock=lambda: wall_clock() + UNFINISHED_FOR)
    a_day_later.remove_abandoned()
    assert len(list((world.data / "media" / film).iterdir())) == len(made)
