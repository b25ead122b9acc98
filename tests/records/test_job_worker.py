"""The worker of all jobs: what it does for any kind. `tests/video/test_worker.py` has the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Event

import pytest

from app.core.errors import ServerBusy
from app.core.jobs import GARBAGE, SWEEP, WEBHOOK, Job, Lane
from app.core.upload import UploadId
from app.db.engine import Database
from app.db.job_worker import JobWorker, Kind, WorkerPace
from app.db.jobs import JobRecords
from app.db.waking import WakeupSocket
from tests.records.making import at
from tests.waiting import wait_until

EVERY = timedelta(seconds=0.05)


@contextmanager
def working(worker: JobWorker) -> Iterator[None]:
    worker.start()
    try:
        yield
    finally:
        worker.stop(30)


def worker_of(database: Database, folder: Path, **more: object) -> JobWorker:
    parts: dict[str, object] = {"kinds": {}, "pace": WorkerPace(poll_seconds=0.05), **more}
    return JobWorker(
        jobs=JobRecords(database),
        wakeup=WakeupSocket(folder),
        name="worker",
        clock=lambda: datetime.now(UTC),
        **parts,  # type: ignore[arg-type]
    )


def test_a_look_that_fails_does_not_stop_the_others(
    in_file: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    has_looked = Event()

    def fail() -> int:
        raise ZeroDivisionError("in the test")

    def look() -> int:
        has_looked.set()
        return 0

    with working(worker_of(in_file, tmp_path, looks=[fail, look])):
        assert has_looked.wait(30)
    assert "in the test" in caplog.text


def test_periodic_work_is_repeated_whether_it_fails_or_not(
    in_file: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []

    def run(*_: object) -> None:
        runs.append(1)
        if len(runs) % 2:
            raise ZeroDivisionError("in the test")

    kinds = {SWEEP: Kind(run=run, every=EVERY)}
    with working(worker_of(in_file, tmp_path, kinds=kinds)):
        wait_until(lambda: len(runs) > 8, "it has run often")
    assert "sweep crashed" in caplog.text
    assert JobRecords(in_file).failures(10) == []


def test_periodic_work_that_the_server_cannot_do_now_waits_no_longer_than_usual(
    in_file: Database, tmp_path: Path
) -> None:
    runs: list[int] = []

    def run(*_: object) -> None:
        runs.append(1)
        raise ServerBusy("The object store does not answer.")

    kinds = {GARBAGE: Kind(run=run, every=EVERY)}
    with working(worker_of(in_file, tmp_path, kinds=kinds)):
        wait_until(lambda: len(runs) > 3, "it is tried again")


def test_the_periodic_job_of_a_killed_worker_is_taken_over(
    in_file: Database, tmp_path: Path
) -> None:
    """One that belongs to a version with kinds of its own is left alone."""
    jobs, now, runs = JobRecords(in_file), datetime.now(UTC), list[int]()
    lease = timedelta(seconds=1)
    for kind in (GARBAGE, "of another version"):
        jobs.add(kind, {"": ""}, Lane.UPKEEP, now)
        assert jobs.claim(Lane.UPKEEP, "killed", now, lease, [kind]) is not None

    def run(*_: object) -> None:
        runs.append(1)

    kinds = {GARBAGE: Kind(run=run, every=EVERY)}
    with working(worker_of(in_file, tmp_path, kinds=kinds)):
        wait_until(lambda: len(runs) > 2, "it goes on")
    assert datetime.now(UTC) > now + lease
    other = jobs.find(UploadId(""), "of another version")
    assert other is not None
    assert other.worker == "killed"


def test_one_wake_up_sets_as_many_threads_to_work_as_there_are_jobs(
    in_file: Database, tmp_path: Path
) -> None:
    """As many as a lane has, at once; and all of them, idle again, stop without delay."""
    count = Lane.WEBHOOKS.threads
    together, jobs = Barrier(count), JobRecords(in_file)
    jobs.add(WEBHOOK, {f"{n}": f"client {n}" for n in range(count)}, Lane.WEBHOOKS, at(0))
    done = list[str]()

    def run(job: Job, _: object) -> None:
        together.wait(30)
        done.append(job.subject)

    worker = worker_of(in_file, tmp_path, kinds={WEBHOOK: Kind(run=run)})
    worker.start()
    wait_until(lambda: len(done) == count, "all are done")
    worker.stop(30)
    assert not [thread for thread in worker._threads if thread.is_alive()]
