"""Work of other processes on one database; run by `multiprocessing`."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path

from app.access.webhook_delivery import DeliveryQueue
from app.core.jobs import WEBHOOK, Lane
from app.core.ranges import ByteRange
from app.core.upload import UploadId
from app.db.engine import Database
from app.db.jobs import JobRecords
from app.records.uploads import UploadRecords
from app.video.serve.rows import MediaRecords
from tests.processes import PROCESSES
from tests.records.making import at, sqlite

SPAN = 10
"""Bytes in each added range."""

JOB_FILMS = 10
JOB_ARGUMENTS = ("360", "720", "1080")


LEASE = timedelta(hours=1)

LONGEST_SECONDS = 300
"""What processes wait for each other, and the test for them; one that is stuck fails the test."""


def run_processes(target: Callable[..., None], arguments: list[tuple[object, ...]]) -> list[int]:
    """Exit codes of one process per tuple of arguments; they start together."""
    barrier = PROCESSES.Barrier(len(arguments), timeout=LONGEST_SECONDS)
    processes = []
    for where, *others in arguments:
        process = PROCESSES.Process(target=target, args=(where, barrier, *others), daemon=True)
        process.start()
        processes.append(process)
    for process in processes:
        process.join(timeout=LONGEST_SECONDS)
    return [process.exitcode if process.exitcode is not None else -1 for process in processes]


def migrate(folder: Path, barrier: Barrier, rounds: int) -> None:
    """Migrate new databases, each at the same moment as other processes."""
    for number in range(rounds):
        database = sqlite(folder / str(number) / "sluice.db")
        barrier.wait()
        database.migrate()
        database.close()


def add_ranges(url: str, barrier: Barrier, plan: list[list[tuple[str, int]]]) -> None:
    """In one thread per list, add the ranges (upload, number) it names."""
    database = Database(url, synced=False)
    records = UploadRecords(database)

    def work(items: list[tuple[str, int]]) -> None:
        for upload_id, number in items:
            span = ByteRange(number * SPAN, (number + 1) * SPAN)
            records.add_received(records.get(UploadId(upload_id)), span, at(number))

    barrier.wait()
    with ThreadPoolExecutor(len(plan)) as pool:
        list(pool.map(work, plan))
    database.close()


def claim_work(url: str, barrier: Barrier, names: list[str], report: Path) -> None:
    """In one thread per name, claim jobs and deliveries until none is left, and report them."""
    with closing(Database(url, synced=False)) as database:
        films = MediaRecords(database).unplanned(JOB_FILMS)

        def work(name: str) -> list[str]:
            ask_for_jobs(JobRecords(database), films)
            jobs = claimed_jobs(JobRecords(database), name)
            return [*jobs, *claimed_deliveries(database, name)]

        barrier.wait()
        with ThreadPoolExecutor(len(names)) as pool:
            claimed = [line for mine in pool.map(work, names) for line in mine]
    report.write_text("\n".join(claimed))


def ask_for_jobs(jobs: JobRecords, films: list[UploadId]) -> None:
    """The same ones as everybody else does."""
    for film in films:
        for argument in JOB_ARGUMENTS:
            jobs.enqueue(film, "rung", argument, lane=Lane.BACKGROUND, priority=0, now=at(0))


def claimed_jobs(jobs: JobRecords, name: str) -> Iterator[str]:
    """Those that this worker gets, until none is left."""
    while job := jobs.claim(Lane.BACKGROUND, name, at(1), LEASE, {"rung"}):
        assert job.worker == name
        yield f"{job.upload_id} {job.argument}"
        assert jobs.finish(job, at(2))


def claimed_deliveries(database: Database, name: str) -> Iterator[str]:
    """Those that this worker gets, until none is left that no other worker is sending."""
    jobs, queue = JobRecords(database), DeliveryQueue(database)
    while True:
        jobs.add(WEBHOOK, queue.ready(at(1)), Lane.WEBHOOKS, at(1))
        job = jobs.claim(Lane.WEBHOOKS, name, at(1), LEASE, [WEBHOOK])
        if job is None:
            return
        while begun := queue.begin(job, at(1)):
            yield begun.delivery_id
            assert queue.note_delivered(begun, at(1), 200)
        assert jobs.finish(job, at(1))
