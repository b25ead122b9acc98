"""One database under many processes and threads: a file, and a server."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select

from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.db.engine import Database
from app.db.tables import webhook_deliveries
from app.records.uploads import UploadRecords
from tests.access.webhook_world import WebhookWorld
from tests.records.making import new_upload
from tests.records.processes import (
    JOB_ARGUMENTS,
    JOB_FILMS,
    SPAN,
    add_ranges,
    claim_work,
    run_processes,
)

WRITERS = 4
THREADS = 16

CLAIMANTS = 2


def test_64_writers_in_4_processes_lose_no_range(database: Database, address: str) -> None:
    """Each thread adds every 64th range of a shared upload, and ranges of its own upload."""
    records = UploadRecords(database)
    per_writer, writers = 6, WRITERS * THREADS
    shared, _ = records.add(new_upload(length=per_writer * writers * SPAN))
    own = [records.add(new_upload(length=10_000))[0] for _ in range(writers)]
    plans: list[list[list[tuple[str, int]]]] = [[] for _ in range(WRITERS)]
    for writer in range(writers):
        items: list[tuple[str, int]] = []
        items += [(shared.id, turn * writers + writer) for turn in range(per_writer)]
        items += [(own[writer].id, turn * 2) for turn in range(per_writer)]
        plans[writer % WRITERS].append(items)

    codes = run_processes(add_ranges, [(address, plan) for plan in plans])

    assert codes == [0] * WRITERS
    final = records.get(shared.id)
    assert list(final.received) == [ByteRange(0, per_writer * writers * SPAN)]
    assert final.state is UploadState.VERIFYING
    each = [ByteRange(turn * 2 * SPAN, (turn * 2 + 1) * SPAN) for turn in range(per_writer)]
    assert {tuple(records.get(upload.id).received) for upload in own} == {tuple(each)}


def test_each_job_and_each_delivery_to_a_webhook_is_claimed_by_one_process(
    database: Database, address: str, tmp_path: Path
) -> None:
    world = WebhookWorld(database)
    for _ in range(3):
        world.webhook()
    films = [world.video() for _ in range(JOB_FILMS)]
    with database.read() as connection:
        deliveries = connection.execute(select(webhook_deliveries.c.id)).scalars().all()
    assert len(deliveries) >= 3 * JOB_FILMS
    reports = [tmp_path / f"report {number}" for number in range(CLAIMANTS)]
    names = [[f"worker {number} {letter}" for letter in "abc"] for number in range(CLAIMANTS)]
    plans = zip(names, reports, strict=True)

    codes = run_processes(claim_work, [(address, *plan) for plan in plans])

    assert codes == [0] * CLAIMANTS
    claimed = [line for report in reports for line in report.read_text().splitlines()]
    jobs = [f"{film.id} {argument}" for film in films for argument in JOB_ARGUMENTS]
    assert sorted(claimed) == sorted([*jobs, *deliveries])
