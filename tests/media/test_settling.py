"""A film becomes ready with the last of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.jobs import Job, JobFailed
from app.domain.playback import PlaybackState
from app.domain.upload import UploadId
from app.media.heartbeat import Heartbeat
from app.media.pictures import EARLY_POSTER
from app.media.rungs import RENDITION
from app.media.settling import Settling
from tests.media.world import QUICK_PACE, World, wall_clock


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def playable(world: World) -> UploadId:
    video = world.publish()
    world.media.add(video, wall_clock(), is_planned=True)
    world.media.move(video, PlaybackState.PLAYABLE, wall_clock())
    return video


def run(world: World, job: Job, *, failure: JobFailed | None = None) -> PlaybackState:
    def step(_job: Job, _beat: Heartbeat) -> None:
        if failure is not None:
            raise failure

    settled = Settling(world.jobs, world.media, clock=wall_clock).after(step)
    if failure is None:
        settled(job, Heartbeat(job))
        world.jobs.finish(job, wall_clock())
    else:
        with pytest.raises(JobFailed):
            settled(job, Heartbeat(job))
    playback = world.media.get(job.upload_id)
    assert playback is not None
    return playback.state


def claimed(world: World, video: UploadId, step: str) -> Job:
    queued = world.enqueue(video, step)
    job = world.jobs.claim(
        queued.lane, f"worker for {step}", wall_clock(), QUICK_PACE.lease, [step]
    )
    assert job is not None
    return job


def test_the_last_step_makes_a_film_ready(world: World) -> None:
    video = playable(world)
    first, second = claimed(world, video, "subtitles"), claimed(world, video, "pictures")
    assert run(world, first) is PlaybackState.PLAYABLE
    assert run(world, second) is PlaybackState.READY


def test_a_step_that_failed_for_good_is_not_waited_for(world: World) -> None:
    video = playable(world)
    job = claimed(world, video, "pictures")
    retried, final = JobFailed("x", "No."), JobFailed("x", "No.", is_final=True)
    assert run(world, job, failure=retried) is PlaybackState.PLAYABLE
    assert run(world, job, failure=final) is PlaybackState.READY


def test_a_poster_that_was_ordered_while_a_film_arrived_is_not_waited_for(world: World) -> None:
    video = playable(world)
    world.enqueue(video, EARLY_POSTER)
    assert run(world, claimed(world, video, "pictures")) is PlaybackState.READY


def test_a_file_that_cannot_be_played_stays_so(world: World) -> None:
    video = playable(world)
    world.media.move(video, PlaybackState.UNPLAYABLE, wall_clock())
    assert run(world, claimed(world, video, "pictures")) is PlaybackState.UNPLAYABLE


def test_a_film_does_not_wait_for_its_other_qualities(world: World) -> None:
    """Those that are made unasked are queued once it is ready."""
    video = playable(world)
    ready: list[UploadId] = []
    world.enqueue(video, RENDITION, "720")
    job = claimed(world, video, "pictures")
    settling = Settling(world.jobs, world.media, clock=wall_clock, then=ready.append)
    settling.after(lambda _job, _beat: None)(job, Heartbeat(job))
    assert ready == [video]
