"""What the sweep finds in the records, without a worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from app.core.jobs import INDEX, MAX_ATTEMPTS, JobState, Lane
from app.core.lifecycle import UploadState
from app.core.playback import PlaybackProblem, PlaybackState
from app.core.upload import UploadId
from app.db.jobs import BATCH, WORKER_ENDED
from app.video.make.indexing import NO_VIDEO
from app.video.make.pictures import EARLY_POSTER, PICTURES
from app.video.make.sweep import NOT_INDEXED, MediaSweep
from app.video.serve.renditions import RENDITION, SEGMENTS
from tests.records.making import new_upload
from tests.video.world import QUICK_PACE, World, wall_clock

VIDEOS = 500
PROBLEM = PlaybackProblem("internal_error", "The server made a mistake with this file.")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def sweep(world: World) -> MediaSweep:
    return MediaSweep(media=world.media, uploads=world.uploads, files=world.files, clock=wall_clock)


@pytest.fixture
def writes() -> Iterator[list[str]]:
    """The statements that write; the rows of a multi-row insert are one."""
    statements: list[str] = []

    def note(*call: Any) -> None:
        if call[2].startswith(("INSERT", "UPDATE", "DELETE")):
            statements.append(call[2])

    event.listen(Engine, "before_cursor_execute", note)
    yield statements
    event.remove(Engine, "before_cursor_execute", note)


def planned(world: World, sweep: MediaSweep, filename: str = "film.mp4") -> UploadId:
    upload = replace(new_upload(created_at=wall_clock()), filename=filename)
    video = world.uploads.add(replace(upload, state=UploadState.COMPLETE))[0].id
    assert sweep.plan(is_recent=True) == 1
    return video


def fail_index(world: World) -> None:
    job = world.jobs.claim(Lane.QUICK, "worker", wall_clock(), QUICK_PACE.lease, [INDEX])
    assert job is not None
    assert world.jobs.fail(job, PROBLEM, wall_clock(), retry_after=None)


def test_many_videos_are_planned_and_forgotten_with_few_writes(
    world: World, sweep: MediaSweep, writes: list[str]
) -> None:
    videos = [world.publish() for _ in range(VIDEOS)]
    writes.clear()
    while sweep.plan(is_recent=False):
        pass
    assert len(writes) <= 4 * VIDEOS / BATCH
    assert world.jobs.counts()[Lane.BACKGROUND, JobState.QUEUED] == VIDEOS
    assert len(world.media.of(videos)) == VIDEOS
    for video in videos:
        world.uploads.move(video, UploadState.DELETED, wall_clock())
    writes.clear()
    while sweep.forget(is_recent=False):
        pass
    assert len(writes) <= 4 * VIDEOS / BATCH
    assert world.jobs.counts()[Lane.BACKGROUND, JobState.QUEUED] == 0
    assert world.media.of(videos) == {}


def test_a_video_whose_index_failed_for_good_is_unplayable_and_says_why(
    world: World, sweep: MediaSweep
) -> None:
    video = planned(world, sweep)
    assert sweep.conclude(is_recent=True) == 0
    fail_index(world)
    assert sweep.conclude(is_recent=True) == 1
    playback = world.media.get(video)
    assert playback is not None
    assert (playback.state, playback.problem) == (PlaybackState.UNPLAYABLE, PROBLEM)
    assert sweep.conclude(is_recent=True) == 0


def test_a_video_whose_index_killed_every_worker_is_unplayable(
    world: World, sweep: MediaSweep
) -> None:
    video = planned(world, sweep)
    for attempt in range(MAX_ATTEMPTS + 1):
        later = wall_clock() + attempt * 2 * QUICK_PACE.lease
        world.jobs.claim(Lane.QUICK, f"worker {attempt}", later, QUICK_PACE.lease, [INDEX])
    assert sweep.conclude(is_recent=True) == 1
    playback = world.media.get(video)
    assert playback is not None
    assert (playback.state, playback.problem) == (PlaybackState.UNPLAYABLE, WORKER_ENDED)


def test_a_video_whose_index_was_cancelled_is_unplayable(world: World, sweep: MediaSweep) -> None:
    video = planned(world, sweep)
    assert world.jobs.cancel(video, INDEX, "", wall_clock())
    assert sweep.conclude(is_recent=False) == 1
    playback = world.media.get(video)
    assert playback is not None
    assert (playback.state, playback.problem) == (PlaybackState.UNPLAYABLE, NOT_INDEXED)


def test_a_file_that_browsers_play_without_an_index_stays_playable(
    world: World, sweep: MediaSweep
) -> None:
    video = planned(world, sweep, "film.webm")
    fail_index(world)
    assert sweep.conclude(is_recent=True) == 1
    playback = world.media.get(video)
    assert playback is not None
    assert (playback.state, playback.problem) == (PlaybackState.PLAYABLE, None)


def playable(world: World) -> UploadId:
    video = world.publish()
    world.media.add(video, wall_clock(), is_planned=True)
    world.media.move(video, PlaybackState.PLAYABLE, wall_clock())
    return video


def is_ready(world: World, video: UploadId) -> bool:
    playback = world.media.get(video)
    assert playback is not None
    return playback.state is PlaybackState.READY


@pytest.mark.parametrize("end", ["done", "failed", "cancelled", "killed"])
def test_a_film_is_ready_once_no_step_is_awaited_however_the_last_one_ended(
    world: World, sweep: MediaSweep, end: str
) -> None:
    video = playable(world)
    lane = world.enqueue(video, PICTURES).lane
    assert sweep.settle() == 0
    job = world.jobs.claim(lane, "worker", wall_clock(), QUICK_PACE.lease, [PICTURES])
    assert job is not None
    assert sweep.settle(video) == 0
    if end == "done":
        world.jobs.finish(job, wall_clock())
    elif end == "failed":
        world.jobs.fail(job, PROBLEM, wall_clock(), retry_after=None)
    elif end == "cancelled":
        world.jobs.cancel(video, PICTURES, "", wall_clock())
    else:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            later = wall_clock() + attempt * 2 * QUICK_PACE.lease
            world.jobs.claim(lane, f"worker {attempt}", later, QUICK_PACE.lease, [PICTURES])
    assert sweep.settle() == 1
    assert is_ready(world, video)
    assert sweep.settle() == 0


def test_a_film_does_not_wait_for_its_other_qualities_nor_for_its_early_poster(
    world: World,
) -> None:
    ready: list[UploadId] = []
    sweep = MediaSweep(
        media=world.media,
        uploads=world.uploads,
        files=world.files,
        clock=wall_clock,
        when_ready=ready.append,
    )
    video, other = playable(world), playable(world)
    for step in (RENDITION, SEGMENTS, EARLY_POSTER):
        world.enqueue(video, step, "720")
    assert sweep.settle(video) == 1
    assert ready == [video]
    assert not is_ready(world, other)


def test_only_a_film_that_plays_and_has_arrived_becomes_ready(
    world: World, sweep: MediaSweep
) -> None:
    arriving, unplayable = world.publish(), playable(world)
    world.media.add(arriving, wall_clock(), is_planned=False)
    world.media.move(arriving, PlaybackState.PLAYABLE, wall_clock())
    world.media.move(unplayable, PlaybackState.UNPLAYABLE, wall_clock())
    assert sweep.settle() == 0


def test_files_that_are_no_films_get_no_job_and_few_writes(world: World, writes: list[str]) -> None:
    film, *junk = [world.publish() for _ in range(BATCH)]
    sweep = MediaSweep(
        media=world.media,
        uploads=world.uploads,
        files=world.files,
        clock=wall_clock,
        is_no_video=lambda upload_id: upload_id != film,
    )
    writes.clear()
    assert sweep.plan(is_recent=True) == BATCH
    assert sweep.plan(is_recent=True) == 0
    assert len(writes) <= 4
    assert [job.job.upload_id for job in world.jobs.unfinished(BATCH)] == [film]
    found = world.media.of(junk)
    assert {playback.state for playback in found.values()} == {PlaybackState.UNPLAYABLE}
    assert {playback.problem for playback in found.values()} == {NO_VIDEO}
    assert len(found) == BATCH - 1


def test_a_file_that_is_looked_at_again_gets_its_job_whatever_it_begins_with(world: World) -> None:
    video = world.publish()
    sweep = MediaSweep(
        media=world.media,
        uploads=world.uploads,
        files=world.files,
        clock=wall_clock,
        is_no_video=lambda _: True,
    )
    sweep.plan(is_recent=True)
    world.media.plan_again([video])
    sweep.plan(is_recent=True)
    assert [job.job.kind for job in world.jobs.unfinished(1)] == [INDEX]
