"""The background worker runs jobs, keeps their claims, and ends when told."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import ANY

import pytest

from app.core.errors import NoRoom, UploadGone
from app.core.jobs import MAX_ATTEMPTS, Heartbeat, Job, JobFailed, JobState, Lane, Step
from app.core.lifecycle import UploadState
from app.core.playback import PlaybackState
from app.db.job_worker import JobWorker, WorkerPace
from tests.video.world import QUICK_PACE, World, wall_clock, work_until_told, write_a_file
from tests.waiting import wait_until


class Site:
    """A world with workers that end with the test."""

    def __init__(self, data: Path) -> None:
        self.world = World(data)
        self.workers: list[JobWorker] = []

    def start(
        self, steps: dict[str, Step], name: str = "worker", pace: WorkerPace = QUICK_PACE
    ) -> None:
        worker = self.world.worker(steps, name=name, pace=pace)
        self.workers.append(worker)
        worker.start()

    def state(self, job: Job) -> JobState:
        found = self.world.jobs.find(job.upload_id, job.kind, job.argument)
        assert found is not None
        return found.state

    def wait_for(self, job: Job, state: JobState) -> Job:
        wait_until(lambda: self.state(job) is state, f"{job} is {state}")
        found = self.world.jobs.find(job.upload_id, job.kind, job.argument)
        assert found is not None
        return found

    def close(self) -> None:
        for worker in self.workers:
            worker.stop(60)
        self.world.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path / "data")
    yield made
    made.close()


class Waits:
    """A step that waits until it is told to stop, and notes how it ran."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.ended = threading.Event()
        self.niceness = 0

    def __call__(self, _job: Job, beat: Heartbeat) -> None:
        self.niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        self.began.set()
        try:
            assert beat.stop.wait(60), "nobody has stopped the step"
            beat(0.5)
        finally:
            self.ended.set()


def test_a_complete_upload_is_indexed_without_anybody_asking(site: Site) -> None:
    """No datagram was sent: the records alone say that there is work."""
    upload_ids = [site.world.publish(seconds_ago=age) for age in (0, 10, 100_000)]
    site.start({"index": write_a_file(site.world, 0)})
    for upload_id in upload_ids:
        wait_until(partial(site.world.files.find, upload_id, "index"), "it is indexed")
    assert all(site.world.media.get(upload_id) for upload_id in upload_ids)
    assert site.world.media.unplanned(10) == []


def test_no_lane_waits_for_the_look_at_a_film_that_arrives(site: Site) -> None:
    may_end, has_begun = threading.Event(), threading.Event()

    def look_for_long() -> bool:
        has_begun.set()
        may_end.wait(600)
        return False

    worker = site.world.worker(
        {"index": write_a_file(site.world, 0)}, look_at_arrivals=look_for_long
    )
    site.workers.append(worker)
    worker.start()
    try:
        assert has_begun.wait(30)
        upload_id = site.world.publish()
        wait_until(partial(site.world.files.find, upload_id, "index"), "it is indexed")
        assert not may_end.is_set()
    finally:
        may_end.set()


def test_a_wake_up_is_faster_than_a_look(site: Site) -> None:
    lazy = WorkerPace(lease=timedelta(seconds=60), poll_seconds=3600.0)
    site.start({"pictures": write_a_file(site.world, 0)}, pace=lazy)
    wait_until((site.world.data / "media.sock").exists, "it listens")
    for _ in range(3):
        job = site.world.enqueue(site.world.publish(), "pictures")
        site.wait_for(job, JobState.DONE)


def test_a_long_step_keeps_its_job_although_it_never_reports(site: Site) -> None:
    step = Waits()
    lease = timedelta(seconds=0.6)
    job = site.world.enqueue(site.world.publish(), "pictures")
    site.start(
        {"pictures": step}, pace=WorkerPace(lease=lease, poll_seconds=0.05, check_seconds=0.05)
    )
    assert step.began.wait(30)
    begun = site.wait_for(job, JobState.RUNNING)

    def is_renewed_often() -> bool:
        return site.wait_for(job, JobState.RUNNING).due_at > begun.due_at + 3 * lease

    wait_until(is_renewed_often, "its lease is renewed")
    assert site.wait_for(job, JobState.RUNNING).attempts == 1
    assert not step.ended.is_set()


def test_a_cancelled_step_is_stopped_and_leaves_nothing(site: Site) -> None:
    step = Waits()
    job = site.world.enqueue(site.world.publish(), "pictures")
    site.start({"pictures": step})
    assert step.began.wait(30)
    assert site.world.jobs.cancel(job.upload_id, "pictures", "", wall_clock())
    assert step.ended.wait(30)
    wait_until(lambda: site.world.outcomes == [("pictures", "cancelled")], "it is counted")
    assert site.state(job) is JobState.CANCELLED


def test_a_video_that_is_deleted_ends_its_jobs_and_loses_its_files(site: Site) -> None:
    step = Waits()
    upload_id = site.world.publish()
    with site.world.files.writing(upload_id, "index") as file:
        file.write(b"made before")
    site.world.enqueue(upload_id, "pictures")
    site.start({"pictures": step})
    assert step.began.wait(30)
    site.world.uploads.move(upload_id, UploadState.DELETED, wall_clock())
    assert step.ended.wait(30)
    wait_until(lambda: not (site.world.data / "media" / upload_id).exists(), "its files are gone")
    wait_until(lambda: not site.world.jobs.of(upload_id), "its jobs are forgotten")


def test_what_a_step_makes_of_a_video_while_that_is_deleted_is_removed(site: Site) -> None:
    world = site.world
    may_end = threading.Event()

    def keeps_after_the_deletion(job: Job, _beat: Heartbeat) -> None:
        world.uploads.move(job.upload_id, UploadState.DELETED, wall_clock())
        wait_until(lambda: not world.jobs.of(job.upload_id), "its jobs are forgotten")
        with world.files.writing(job.upload_id, "late") as file:
            file.write(b"late")
        may_end.set()

    job = world.enqueue(world.publish(), "pictures")
    site.start({"pictures": keeps_after_the_deletion})
    assert may_end.wait(60)
    wait_until(
        lambda: not (world.data / "media" / job.upload_id).exists(), "the late file is removed"
    )


def test_files_of_videos_that_are_gone_and_half_made_ones_are_removed_at_the_start(
    site: Site,
) -> None:
    world = site.world
    kept, gone = world.publish(), world.publish()
    for upload_id in (kept, gone):
        with world.files.writing(upload_id, "poster") as file:
            file.write(b"?")
    world.uploads.remove(gone)
    half_made = world.data / "media" / ".making" / "of a killed worker"
    half_made.mkdir()
    (half_made / "frame.jpg").write_bytes(b"?")
    site.start({"index": write_a_file(world, 0)})
    wait_until(lambda: not (world.data / "media" / gone).exists(), "the stray files are gone")
    wait_until(lambda: not half_made.exists(), "the half-made file is gone")
    assert world.path(kept, "poster").exists()


def test_a_step_that_fails_is_repeated_and_fails_with_its_own_words(site: Site) -> None:
    attempts = []

    def fails(job: Job, _beat: Heartbeat) -> None:
        attempts.append(job.attempts)
        raise JobFailed("ffmpeg_failed", "The picture cannot be decoded.")

    job = site.world.enqueue(site.world.publish(), "pictures")
    site.start({"pictures": fails})
    failed = site.wait_for(job, JobState.FAILED)
    assert attempts == [1, 2, 3]
    assert failed.problem is not None
    assert (failed.problem.code, failed.problem.detail) == (
        "ffmpeg_failed",
        "The picture cannot be decoded.",
    )
    wait_until(lambda: len(site.world.outcomes) == MAX_ATTEMPTS, "all are counted")
    assert [outcome for _, outcome in site.world.outcomes] == ["retried", "retried", "failed"]


def test_a_final_failure_and_a_step_that_says_the_video_is_gone_are_not_repeated(
    site: Site,
) -> None:
    def is_no_video(_job: Job, _beat: Heartbeat) -> None:
        raise JobFailed("no_film", "This is no film.", is_final=True)

    def says_it_is_gone(_job: Job, _beat: Heartbeat) -> None:
        raise UploadGone("The file of this video is no longer there.")

    upload_id = site.world.publish()
    jobs = [site.world.enqueue(upload_id, step) for step in ("pictures", "audio")]
    site.start({"pictures": is_no_video, "audio": says_it_is_gone})
    failed = [site.wait_for(job, JobState.FAILED) for job in jobs]
    assert [job.attempts for job in failed] == [1, 1]


def test_a_step_that_crashes_fails_and_the_worker_goes_on(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    def crashes(_job: Job, _beat: Heartbeat) -> None:
        raise ZeroDivisionError("in the test")

    upload_id = site.world.publish()
    site.world.media.add(upload_id, wall_clock(), is_planned=True)
    site.world.media.move(upload_id, PlaybackState.PLAYABLE, wall_clock())
    bad = site.world.enqueue(upload_id, "pictures")
    site.start({"pictures": crashes, "audio": write_a_file(site.world, 0)})
    failed = site.wait_for(bad, JobState.FAILED)
    assert failed.problem is not None
    assert failed.problem.code == "internal_error"
    assert "ZeroDivisionError" in caplog.text

    def is_ready() -> bool:
        playback = site.world.media.get(upload_id)
        return playback is not None and playback.state is PlaybackState.READY

    wait_until(is_ready, "the film is not waited for")
    site.wait_for(site.world.enqueue(upload_id, "audio"), JobState.DONE)


def test_a_video_whose_index_crashes_each_time_does_not_wait_for_ever(site: Site) -> None:
    def crashes(_job: Job, _beat: Heartbeat) -> None:
        raise ZeroDivisionError("in the test")

    video = site.world.publish()
    site.start({"index": crashes})

    def is_decided() -> bool:
        playback = site.world.media.get(video)
        return playback is not None and playback.state is PlaybackState.UNPLAYABLE

    wait_until(is_decided, "it is called unplayable")


def test_a_full_disk_costs_no_attempt(site: Site) -> None:
    attempts = []

    def has_no_room_at_first(job: Job, _beat: Heartbeat) -> None:
        attempts.append(job.attempts)
        if len(attempts) < 6:
            raise NoRoom("The server's disk does not have enough free space.")

    job = site.world.enqueue(site.world.publish(), "pictures")
    site.start({"pictures": has_no_room_at_first})
    site.wait_for(job, JobState.DONE)
    assert attempts == [1] * 6


def test_every_lane_has_its_own_thread_and_niceness(site: Site) -> None:
    steps = {lane: Waits() for lane in Lane}
    upload_id = site.world.publish()
    for lane in Lane:
        site.world.enqueue(upload_id, lane.value, lane=lane)
    site.start({lane.value: step for lane, step in steps.items()})
    assert all(step.began.wait(30) for step in steps.values())
    assert {lane: step.niceness for lane, step in steps.items()} == {
        Lane.QUICK: 5,
        Lane.ON_DEMAND: 5,
        Lane.BACKGROUND: 19,
        Lane.LONG: 19,
        Lane.ENCODING: 19,
        Lane.WEBHOOKS: 19,
        Lane.UPKEEP: 19,
    }
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == 0


def test_a_worker_that_stops_puts_its_job_back_for_the_next(site: Site) -> None:
    step = Waits()
    job = site.world.enqueue(site.world.publish(), "pictures")
    site.start({"pictures": step})
    assert step.began.wait(30)
    site.workers.pop().stop(30)
    assert step.ended.is_set()
    found = site.world.jobs.find(job.upload_id, "pictures")
    assert found is not None
    assert (found.state, found.attempts) == (JobState.QUEUED, 0)
    site.start({"pictures": write_a_file(site.world, 0)}, name="next")
    site.wait_for(job, JobState.DONE)


def test_a_worker_that_is_told_to_end_does_not_wait_for_a_step_that_hangs(tmp_path: Path) -> None:
    world = World(tmp_path / "data")
    with closing(world):
        job = world.enqueue(world.publish(), "pictures")
        process = get_context("spawn").Process(target=work_until_told, args=(world.data,))
        process.start()
        try:
            wait_until(lambda: world.jobs.counts()[job.lane, JobState.RUNNING], "it runs")
            process.terminate()
            process.join(60)
            assert process.exitcode == 0
        finally:
            process.kill()
            process.join()
        assert world.jobs.find(job.upload_id, "pictures") == replace(
            job, updated_at=ANY, due_at=ANY
        )


def test_progress_reaches_the_record_while_the_step_runs(site: Site) -> None:
    may_end = threading.Event()

    def reports(_job: Job, beat: Heartbeat) -> None:
        beat(0.25)
        assert may_end.wait(60)

    job = site.world.enqueue(site.world.publish(), "pictures")
    site.start({"pictures": reports})

    def progress() -> float:
        found = site.world.jobs.find(job.upload_id, "pictures")
        return 0.0 if found is None else found.progress

    wait_until(lambda: progress() == 0.25, "the progress is seen")
    may_end.set()
    site.wait_for(job, JobState.DONE)


def test_a_worker_without_steps_leaves_uploads_alone(site: Site) -> None:
    upload_id = site.world.publish()
    job = site.world.enqueue(upload_id, "index")
    site.start({})
    time.sleep(0.3)
    assert site.state(job) is JobState.QUEUED
    assert site.world.media.get(upload_id) is None
