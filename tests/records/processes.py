"""Work of other processes on one database; run by `multiprocessing`."""

from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

from app.domain.ranges import ByteRange
from app.domain.upload import UploadId
from app.records.uploads import UploadRecords
from tests.records.making import at, sqlite

SPAN = 10
"""Bytes in each added range."""


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
