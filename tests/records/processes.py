"""Work of other processes on one database; run by `multiprocessing`."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path

from app.domain.jobs import Lane
from app.domain.ranges import ByteRange
from app.domain.upload import UploadId
from app.records.jobs import JobRecords
from app.records.media import MediaRecords
from app.records.uploads import UploadRecords
from tests.records.making import at, sqlite

SPAN = 10
"""Bytes in each added range."""

JOB_FILMS = 10
JOB_ARGUMENTS = ("360", "720", "1080")


def migrate(folder: Path, barrier: Barrier, rounds: int) -> None:
    """Migrate new databases, each at the same moment as other processes."""
    for number in range(rounds):
        database = sqlite(folder / str(number) / "sluice.db")
        barrier.wait()
        database.migrate()
        database.close()


def add_ranges(path: Path, barrier: Barrier, plan: list[list[tuple[str, int]]]) -> None:
    """In one thread per list, add the ranges (upload, number) it names."""
    database = sqlite(path)
    records = UploadRecords(database)

    def work(items: list[tuple[str, int]]) -> None:
        for upload_id, number in items:
            span = ByteRange(number * SPAN, (number + 1) * SPAN)
            records.add_received(records.get(UploadId(upload_id)), span, at(number))

    barrier.wait()
    with ThreadPoolExecutor(len(plan)) as pool:
        list(pool.map(work, plan))
    database.close()


def claim_jobs(path: Path, barrier: Barrier, names: list[str], report: Path) -> None:
    """In one thread per name, ask for the same jobs as all others, and claim until none is left."""
    database = sqlite(path)
    jobs, uploads = JobRecords(database), MediaRecords(database)
    films = uploads.unplanned(JOB_FILMS)

    def work(name: str) -> list[str]:
        for film in films:
            for argument in JOB_ARGUMENTS:
                jobs.enqueue(film, "rung", argument, lane=Lane.BACKGROUND, priority=0, now=at(0))
        mine = []
        while job := jobs.claim(Lane.BACKGROUND, name, at(1), timedelta(hours=1), {"rung"}):
            assert job.worker == name
            mine.append(f"{job.upload_id} {job.argument}")
            assert jobs.finish(job, at(2))
        return mine

    barrier.wait()
    with ThreadPoolExecutor(len(names)) as pool:
        claimed = [line for mine in pool.map(work, names) for line in mine]
    report.write_text("\n".join(claimed))
    database.close()
