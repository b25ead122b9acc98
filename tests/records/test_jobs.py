"""The queue: claims, leases, attempts, renewal, order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.errors import UploadGone, UploadNotFound
from app.core.jobs import MAX_ATTEMPTS, MEDIA_LANES, SWEEP, Job, JobState, Lane
from app.core.lifecycle import UploadState
from app.core.playback import PlaybackProblem
from app.core.upload import UploadId
from app.db.engine import Database
from app.db.jobs import JobRecords
from app.records.uploads import UploadRecords
from tests.records.making import NOW, at, new_upload

LEASE = timedelta(seconds=10)
STEPS = {"index", "pictures", "segments"}
PROBLEM = PlaybackProblem("ffmpeg_failed", "The picture cannot be decoded.")


class Queue:
    """Jobs, with the arguments that a test does not care about."""

    def __init__(self, database: Database) -> None:
        self.wakes = 0
        self.jobs = JobRecords(database, self._woken)
        self.uploads = UploadRecords(database)

    def _woken(self) -> None:
        self.wakes += 1

    def video(self) -> UploadId:
        return self.uploads.add(new_upload())[0].id

    def video_of(self, sender: str) -> UploadId:
        return self.uploads.add(replace(new_upload(), sender=sender))[0].id

    def add(
        self,
        upload_id: UploadId | None = None,
        step: str = "index",
        argument: str = "",
        *,
        lane: Lane = Lane.BACKGROUND,
        priority: int = 5,
        seconds: float = 0,
        renew: bool = False,
    ) -> Job:
        return self.jobs.enqueue(
            upload_id or self.video(),
            step,
            argument,
            lane=lane,
            priority=priority,
            now=at(seconds),
            renew=renew,
        )

    def claim(self, seconds: float = 0, worker: str = "a", lane: Lane = Lane.BACKGROUND) -> Job:
        job = self.try_to_claim(seconds, worker, lane)
        assert job is not None
        return job

    def try_to_claim(
        self, seconds: float = 0, worker: str = "a", lane: Lane = Lane.BACKGROUND
    ) -> Job | None:
        return self.jobs.claim(lane, worker, at(seconds), LEASE, STEPS)

    def periodic(self, seconds: float) -> Job | None:
        return self.jobs.claim(Lane.UPKEEP, "a", at(seconds), LEASE, {SWEEP})

    def state(self, job: Job) -> JobState:
        return self.now(job).state

    def now(self, job: Job) -> Job:
        found = self.jobs.find(job.upload_id, job.kind, job.argument)
        assert found is not None
        return found


@pytest.fixture
def queue(database: Database) -> Queue:
    return Queue(database)


def test_a_job_is_claimed_once_and_finished(queue: Queue) -> None:
    queued = queue.add(argument="720")
    assert (queued.state, queued.attempts, queued.worker) == (JobState.QUEUED, 0, None)
    job = queue.claim()
    assert (job.state, job.attempts, job.worker) == (JobState.RUNNING, 1, "a")
    assert (job.kind, job.argument) == ("index", "720")
    assert queue.try_to_claim(worker="b") is None
    assert queue.jobs.finish(job, at(1))
    assert (queue.now(job).state, queue.now(job).progress) == (JobState.DONE, 1.0)
    assert queue.try_to_claim(100) is None


def test_asking_twice_makes_one_job_and_wakes_once(queue: Queue) -> None:
    first = queue.add()
    assert queue.add(first.upload_id, seconds=5) == first
    assert queue.wakes == 1
    queue.jobs.finish(queue.claim(), NOW)
    assert queue.add(first.upload_id).state is JobState.DONE
    assert queue.wakes == 1


def test_the_lowest_priority_comes_first_and_then_the_oldest(queue: Queue) -> None:
    early = queue.add(priority=1, seconds=1)
    late = queue.add(priority=1, seconds=2)
    queue.add(priority=9)
    urgent = queue.add(priority=0, seconds=3)
    order = [queue.claim(10).upload_id for _ in range(3)]
    assert order == [urgent.upload_id, early.upload_id, late.upload_id]


def test_one_file_of_each_client_comes_in_turn(queue: Queue) -> None:
    hers = [queue.add(queue.video_of("person:ada")) for _ in range(4)]
    first = queue.claim()
    assert first.upload_id == hers[0].upload_id
    his = [queue.add(queue.video_of("person:bob"), seconds=1) for _ in range(2)]
    guest = queue.add(queue.video_of("upload_link:7:visitor-1"), seconds=2)
    other = queue.add(queue.video_of("upload_link:7:visitor-2"), seconds=2)
    queue.jobs.finish(first, NOW)
    order = [queue.claim(3).upload_id for _ in range(7)]
    expected = [his[0], guest, hers[1], his[1], other, *hers[2:]]
    assert order == [job.upload_id for job in expected]


def test_a_job_that_gives_way_comes_behind_the_others_of_its_client(queue: Queue) -> None:
    long, short = queue.add(priority=0), queue.add(priority=0)
    later = queue.add(priority=9, seconds=1)
    assert queue.jobs.postpone(queue.claim(), None, NOW, timedelta(), priority=9)
    order = [queue.claim(2).upload_id for _ in range(3)]
    assert order == [short.upload_id, later.upload_id, long.upload_id]


def test_lanes_do_not_see_each_others_jobs(queue: Queue) -> None:
    job = queue.add(lane=Lane.ON_DEMAND)
    assert queue.jobs.lanes_due(NOW) == {Lane.ON_DEMAND}
    assert queue.try_to_claim() is None
    assert queue.claim(lane=Lane.ON_DEMAND).upload_id == job.upload_id
    assert queue.jobs.lanes_due(NOW) == set()


def test_a_worker_leaves_steps_alone_that_it_does_not_know(queue: Queue) -> None:
    queue.add(step="of_a_later_version")
    assert queue.try_to_claim() is None


def test_somebody_in_a_hurry_moves_a_waiting_job_up(queue: Queue) -> None:
    job = queue.add(lane=Lane.BACKGROUND, priority=9)
    assert queue.add(job.upload_id, lane=Lane.ON_DEMAND, priority=9).lane is Lane.ON_DEMAND
    assert queue.add(job.upload_id, lane=Lane.ON_DEMAND, priority=2).priority == 2
    after = queue.add(job.upload_id, lane=Lane.BACKGROUND, priority=0)
    assert (after.lane, after.priority) == (Lane.ON_DEMAND, 2)


def test_a_lease_that_has_ended_is_taken_over_and_the_old_worker_changes_nothing(
    queue: Queue,
) -> None:
    queue.add()
    first = queue.claim(0, "a")
    assert queue.try_to_claim(9.9, "b") is None
    second = queue.claim(10, "b")
    assert (second.attempts, second.worker) == (2, "b")
    assert not queue.jobs.is_held(first)
    assert not queue.jobs.heartbeat(first, 0.5, at(11), LEASE)
    assert not queue.jobs.finish(first, at(11))
    assert not queue.jobs.fail(first, PROBLEM, at(11), retry_after=None)
    assert not queue.jobs.postpone(first, PROBLEM, at(11), LEASE)
    assert queue.now(second) == second


def test_a_heartbeat_renews_the_lease_and_notes_the_progress(queue: Queue) -> None:
    queue.add()
    job = queue.claim()
    assert queue.jobs.heartbeat(job, 0.4, at(9), LEASE)
    assert queue.now(job).progress == 0.4
    assert queue.try_to_claim(18.9, "b") is None
    assert queue.claim(19, "b").progress == 0.0


def test_a_lease_beyond_reach_is_from_before_the_clock_was_set_back(queue: Queue) -> None:
    queue.add(seconds=100_000)
    queue.claim(100_000)
    assert queue.try_to_claim(0, "b") is None
    assert queue.claim(LEASE.total_seconds(), "b").attempts == 2


def test_a_holder_that_lives_keeps_its_job_when_the_clock_is_set_back(queue: Queue) -> None:
    queue.add(seconds=100_000)
    job = queue.claim(100_000)
    assert queue.try_to_claim(0, "b") is None
    assert queue.jobs.heartbeat(job, 0.5, at(5), LEASE)
    assert queue.try_to_claim(LEASE.total_seconds(), "b") is None


def test_a_worker_does_not_claim_what_it_runs(queue: Queue) -> None:
    queue.add()
    job = queue.claim()
    later = at(LEASE.total_seconds() + 1)
    wanted = (Lane.BACKGROUND, "a", later, LEASE, [job.kind])
    assert queue.jobs.claim(*wanted, running=[job]) is None
    found = queue.jobs.claim(*wanted)
    assert found is not None
    assert found.attempts == 2


def test_a_failed_attempt_is_repeated_after_its_pause(queue: Queue) -> None:
    queue.add()
    job = queue.claim()
    assert queue.jobs.fail(job, PROBLEM, at(1), retry_after=timedelta(seconds=5))
    waiting = queue.now(job)
    assert (waiting.state, waiting.problem, waiting.attempts) == (JobState.QUEUED, PROBLEM, 1)
    assert queue.try_to_claim(5.9) is None
    assert queue.claim(6).attempts == 2


def test_the_last_attempt_fails_for_good_and_says_why(queue: Queue) -> None:
    job = queue.add()
    for _ in range(MAX_ATTEMPTS):
        job = queue.claim()
        assert queue.jobs.fail(job, PROBLEM, NOW, retry_after=timedelta(0))
    assert (queue.now(job).state, queue.now(job).problem) == (JobState.FAILED, PROBLEM)
    assert queue.try_to_claim(1000) is None


def test_a_failure_that_is_final_is_not_repeated(queue: Queue) -> None:
    queue.add()
    job = queue.claim()
    assert queue.jobs.fail(job, PROBLEM, NOW, retry_after=None)
    assert queue.state(job) is JobState.FAILED


def test_a_job_that_kills_its_workers_fails_in_the_end(queue: Queue) -> None:
    job = queue.add()
    other = queue.add(priority=6)
    for number in range(MAX_ATTEMPTS):
        assert queue.claim(20 * number, f"worker {number}").upload_id == job.upload_id
    assert queue.claim(100, "next").upload_id == other.upload_id
    failed = queue.now(job)
    assert failed.state is JobState.FAILED
    assert failed.problem is not None
    assert failed.problem.code == "worker_ended"
    assert "killed" in failed.problem.detail


def test_a_failure_of_the_server_does_not_count_as_an_attempt(queue: Queue) -> None:
    queue.add()
    for number in range(MAX_ATTEMPTS + 2):
        job = queue.claim(100 * number)
        assert job.attempts == 1
        assert queue.jobs.postpone(job, PROBLEM, at(100 * number), timedelta(seconds=60))
        assert queue.try_to_claim(100 * number + 59) is None


def test_a_worker_that_stops_puts_its_jobs_back(queue: Queue) -> None:
    for lane in (Lane.BACKGROUND, Lane.QUICK, Lane.BACKGROUND):
        queue.add(lane=lane)
    mine, quick = queue.claim(worker="a"), queue.claim(worker="a", lane=Lane.QUICK)
    others = queue.claim(worker="b")
    assert queue.jobs.release("a", at(1)) == 2
    assert [queue.state(job) for job in (mine, quick)] == [JobState.QUEUED] * 2
    assert queue.now(others) == others
    assert not queue.jobs.finish(mine, at(1))
    assert queue.claim(1, "c").attempts == 1


def test_a_cancelled_job_is_lost_to_its_worker_and_stays_cancelled(queue: Queue) -> None:
    queue.add()
    running = queue.claim()
    waiting = queue.add(running.upload_id, "pictures")
    assert queue.jobs.cancel(waiting.upload_id, "pictures", "", NOW)
    assert queue.jobs.cancel(running.upload_id, "index", "", NOW)
    assert not queue.jobs.is_held(running)
    assert not queue.jobs.finish(running, NOW)
    assert {queue.state(running), queue.state(waiting)} == {JobState.CANCELLED}
    assert not queue.jobs.cancel(running.upload_id, "index", "", NOW)
    assert not queue.jobs.cancel(running.upload_id, "unknown", "", NOW)
    assert queue.add(running.upload_id).state is JobState.CANCELLED
    assert queue.try_to_claim(1000) is None


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
def test_a_job_that_has_ended_is_queued_again_when_it_is_renewed(queue: Queue, end: str) -> None:
    queue.add()
    job = queue.claim()
    ends = {
        "done": lambda: queue.jobs.finish(job, NOW),
        "failed": lambda: queue.jobs.fail(job, PROBLEM, NOW, retry_after=None),
        "cancelled": lambda: queue.jobs.cancel(job.upload_id, job.kind, job.argument, NOW),
    }
    assert ends[end]()
    again = queue.add(job.upload_id, renew=True, seconds=7, lane=Lane.QUICK)
    assert (again.state, again.attempts, again.problem) == (JobState.QUEUED, 0, None)
    assert (again.progress, again.queued_at, again.lane) == (0.0, at(7), Lane.QUICK)
    assert queue.claim(8, lane=Lane.QUICK).attempts == 1


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_job_that_is_renewed_while_it_runs_runs_once_more(
    queue: Queue, *, is_failing: bool
) -> None:
    queue.add()
    job = queue.claim()
    assert queue.add(job.upload_id, renew=True).state is JobState.RUNNING
    assert queue.jobs.is_held(job)
    if is_failing:
        assert queue.jobs.fail(job, PROBLEM, at(1), retry_after=None)
    else:
        assert queue.jobs.finish(job, at(1))
    second = queue.claim(1)
    assert second.attempts == 1
    assert queue.jobs.finish(second, at(2))
    assert queue.state(job) is JobState.DONE


def test_a_deleted_video_loses_its_jobs_at_once(queue: Queue) -> None:
    queue.add()
    job = queue.claim()
    queue.uploads.move(job.upload_id, UploadState.CANCELLED, NOW)
    assert not queue.jobs.is_held(job)
    assert not queue.jobs.heartbeat(job, 0.1, NOW, LEASE)
    assert not queue.jobs.finish(job, NOW)
    with pytest.raises(UploadGone):
        queue.add(job.upload_id, "pictures")
    queue.uploads.remove(job.upload_id)
    assert queue.jobs.of(job.upload_id) == []
    with pytest.raises(UploadNotFound):
        queue.add(job.upload_id, "pictures")


def test_a_job_of_a_deleted_video_cannot_block_the_queue(queue: Queue) -> None:
    poison, good = queue.add(priority=0), queue.add(priority=1)
    for number in range(MAX_ATTEMPTS):
        queue.claim(20 * number, f"worker {number}")
    queue.uploads.move(poison.upload_id, UploadState.CANCELLED, NOW)
    assert queue.claim(100).upload_id == good.upload_id


def test_a_periodic_job_is_due_again_and_never_ends(queue: Queue) -> None:
    for seconds in (0, 10):  # Each worker that starts adds it.
        queue.jobs.add(SWEEP, {"": ""}, Lane.UPKEEP, at(seconds))
    job = queue.periodic(0)
    assert job is not None
    assert queue.jobs.finish(job, at(1), again_after=timedelta(days=1))
    assert queue.jobs.find(UploadId(""), SWEEP) == replace(
        job,
        state=JobState.QUEUED,
        attempts=0,
        worker=None,
        progress=0.0,
        queued_at=at(1),
        updated_at=at(1),
        due_at=at(1) + timedelta(days=1),
    )
    assert queue.periodic(24 * 3600) is None
    for number in range(1, MAX_ATTEMPTS + 3):  # Its workers die, ...
        job = queue.periodic(24 * 3600 + number * 20)
        assert job is not None
        assert job.attempts == number
    assert job is not None
    assert queue.jobs.fail(
        job, PROBLEM, at(0), retry_after=timedelta(seconds=5)
    )  # ... or it fails.
    assert queue.periodic(5) is not None
    assert queue.jobs.unfinished(10) == []
    assert not any(queue.jobs.counts().values())


def test_a_periodic_job_that_waits_can_be_hurried_unless_it_has_failed(queue: Queue) -> None:
    pause = timedelta(seconds=60)
    queue.jobs.hurry(SWEEP, NOW)
    queue.jobs.add(SWEEP, {"": ""}, Lane.UPKEEP, NOW)
    job = queue.periodic(0)
    assert job is not None
    queue.jobs.hurry(SWEEP, NOW)
    assert queue.periodic(1) is None
    assert queue.jobs.finish(job, at(1), again_after=pause)
    queue.jobs.hurry(SWEEP, at(5), idle=timedelta(seconds=10))
    assert queue.periodic(6) is None
    queue.jobs.hurry(SWEEP, at(11), idle=timedelta(seconds=10))
    job = queue.periodic(11)
    assert job is not None
    assert queue.jobs.postpone(job, PROBLEM, at(12), pause)
    queue.jobs.hurry(SWEEP, at(30))
    assert queue.periodic(31) is None
    assert queue.periodic(72) is not None


def test_counts_and_lists_show_what_waits_runs_and_has_failed(queue: Queue) -> None:
    done = queue.add(priority=0)
    queue.jobs.finish(queue.claim(), NOW)
    queue.add(done.upload_id, "pictures", priority=1)
    failed = queue.claim()
    queue.jobs.fail(failed, PROBLEM, at(1), retry_after=None)
    queue.add(done.upload_id, "segments", "720/1", priority=3)
    running = queue.claim()
    slow = queue.add(done.upload_id, "segments", "720/9", priority=4)
    quick = queue.add(done.upload_id, "segments", "360/9", lane=Lane.QUICK, priority=9)
    counts = queue.jobs.counts()
    assert counts[Lane.BACKGROUND, JobState.FAILED] == 1
    assert counts[Lane.BACKGROUND, JobState.RUNNING] == 1
    assert counts[Lane.BACKGROUND, JobState.QUEUED] == 1
    assert counts[Lane.QUICK, JobState.QUEUED] == 1
    assert (len(counts), sum(counts.values())) == (3 * len(MEDIA_LANES), 4)
    assert [row.job for row in queue.jobs.unfinished(10)] == [running, quick, slow]
    assert len(queue.jobs.unfinished(2)) == 2
    (listed,) = queue.jobs.failures(10)
    assert (listed.job.kind, listed.job.problem) == ("pictures", PROBLEM)
    assert listed.filename == queue.uploads.get(done.upload_id).filename
    assert len(queue.jobs.of(done.upload_id)) == 5


def test_failures_that_were_asked_for_first_are_forgotten(queue: Queue) -> None:
    video = queue.video()
    for number in range(1, 5):
        queue.add(video, "segments", f"720/{number}", priority=-number)
    for _ in range(3):
        queue.jobs.fail(queue.claim(), PROBLEM, NOW, retry_after=None)
    queue.jobs.drop_beyond(2, "segments", Lane.BACKGROUND, JobState.FAILED)
    left = [(job.argument, job.state) for job in queue.jobs.of(video)]
    failed = [("720/3", JobState.FAILED), ("720/4", JobState.FAILED)]
    assert left == [("720/1", JobState.QUEUED), *failed]


def test_failed_jobs_are_retried_by_video_and_by_code(queue: Queue) -> None:
    jobs = [queue.add(priority=number) for number in range(3)]
    codes = ["no_ffmpeg", "ffmpeg_failed", "no_ffmpeg"]
    for code in codes:
        problem = PlaybackProblem(code, "It did not work.")
        queue.jobs.fail(queue.claim(), problem, NOW, retry_after=None)
    wakes = queue.wakes
    assert queue.jobs.retry(at(1), upload_id=jobs[0].upload_id, code="other") == 0
    assert queue.wakes == wakes
    assert queue.jobs.retry(at(1), code="no_ffmpeg") == 2
    assert [queue.state(job) for job in jobs] == ["queued", "failed", "queued"]
    assert queue.jobs.retry(at(1)) == 1
    assert queue.now(jobs[1]).attempts == 0
    assert queue.wakes == wakes + 2
