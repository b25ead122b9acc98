"""Nodes, database and bucket die, stall and lie: no acknowledged byte is ever lost."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from app.core.jobs import LIBRARY
from app.storage.s3.bucket import MARK
from app.storage.s3.check import CHECKS
from tests.fleet.archive import Archive
from tests.fleet.disturbances import Shaking
from tests.fleet.faulty_proxy import S3_FAULTS, Fault
from tests.fleet.senders import KINDS
from tests.fleet.shaken import Fleet, shaken_fleet
from tests.hostile.conftest import Scaled
from tests.hostile.senders import Crowd, Line
from tests.s3_servers import MakeServer
from tests.storage.stores import bucket_at
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

BUCKET_FAULTS = dict.fromkeys(S3_FAULTS, 0.01)
DATABASE_FAULTS = {
    Fault.CUT_BODY: 0.0005,
    Fault.LOST_ANSWER: 0.0005,
    Fault.LOST_COMMIT: 0.003,
    Fault.DELAY: 0.001,
}

REPORT_SECONDS = 60
OF_FILE = " JOIN uploads ON key = uploads.id AND state NOT IN ('cancelled', 'expired', 'deleted')"

LONGEST_SWEEP_SECONDS = 180
"""Until the bucket has nothing but files, once they are complete."""

KEPT_BYTES = 2 << 30
"""Of complete files, which are read at the end; more are read and deleted before."""


def test_no_acknowledged_byte_is_lost_whatever_dies(
    tmp_path: Path,
    find_store: Callable[[], MakeServer],
    seed: int,
    disturbances: int,
    pooled_nodes: int,
    scaled: Scaled,
    tell: Callable[[str], None],
) -> None:
    """Every file is there, whole, once, and nothing else is left in the bucket."""
    with shaken_fleet(
        tmp_path,
        find_store(),
        pooled_nodes=pooled_nodes,
        seed=seed,
        database_faults=DATABASE_FAULTS,
        bucket_faults=BUCKET_FAULTS,
    ) as fleet:
        line = Line([node.server for node in fleet.nodes], is_bad=True)
        crowd = Crowd(line, seed, kinds=KINDS, pause_seconds=scaled(short=50, long=0) / 1000)
        archive = Archive(crowd, KEPT_BYTES)
        crowd.hand_over = archive.keep
        shaking = Shaking(fleet, line.answers, seed=seed, times=disturbances)
        report = Report(fleet, crowd, archive, shaking, time.monotonic())
        with crowd.running(clients=len(KINDS) * scaled(short=1, long=2)):
            shaking.run(lambda: report.tick(tell) and not crowd.failed.is_set())
        fleet.heal()
        crowd.finish()
        tell(f"{report}")
        archive.check()
        assert all(line.counts[kind.__name__] for kind in KINDS)
        assert fleet.bucket_faults
        check_bucket(fleet)


@dataclass
class Report:
    """What has happened so far, as a table."""

    fleet: Fleet
    crowd: Crowd
    archive: Archive
    shaking: Shaking
    began: float
    due: float = 0.0

    def tick(self, tell: Callable[[str], None]) -> bool:
        """Tell it once a minute; always true."""
        if time.monotonic() >= self.due:
            tell(f"{self}")
            self.due = time.monotonic() + REPORT_SECONDS
        return True

    def __str__(self) -> str:
        return "\n".join(("", *self._lines()))

    def _lines(self) -> Iterator[str]:
        seconds = time.monotonic() - self.began
        done, times = self.shaking.happened.total(), self.shaking.times
        unfinished = sum(sender.acknowledged for sender in [*self.crowd.senders])
        acknowledged = self.archive.received_bytes + unfinished
        yield f"{seconds / 60:.1f} minutes, {done} of {times} disturbances"
        counts = self.crowd.line.counts
        yield f"  {counts['answers']} requests answered, {counts['cuts']} cut within their body"
        yield f"  {acknowledged} bytes acknowledged"
        yield f"  {self.archive.checked_files} complete files read and deleted meanwhile"
        uploads = Counter({kind.__name__: counts[kind.__name__] for kind in KINDS})
        for title, counts in (
            ("disturbances", self.shaking.happened),
            ("uploads complete", uploads),
            ("faults, bucket", _named(self.fleet.bucket_faults)),
            ("faults, database", _named(self.fleet.database_faults)),
        ):
            yield f"  {title} ({counts.total()})"
            yield from (f"    {name:<20} {count:>7}" for name, count in counts.most_common())


def _named(faults: Counter[Fault]) -> Counter[str]:
    return Counter({fault.name.lower(): count for fault, count in faults.items()})


def check_bucket(fleet: Fleet) -> None:
    """Assert that each file is one object, and that sweeps leave nothing that no row names."""
    published = "SELECT key FROM stored_files WHERE is_published ORDER BY key"
    complete = "SELECT id FROM uploads WHERE state = 'complete' AND kind <> 'part' ORDER BY id"
    # Removes the files of videos whose deletion was interrupted.
    fleet.ask(f"UPDATE jobs SET due_at = 0 WHERE kind = '{LIBRARY}' AND state = 'queued'")
    fleet.nodes[0].restart(signal.SIGTERM)
    # Each question starts a program, and a lease of a killed node may last for a minute.
    wait = partial(wait_until, longest_tick_seconds=2)
    wait(lambda: column(fleet, published) == column(fleet, complete), "each is published once")
    until = time.monotonic() + LONGEST_SWEEP_SECONDS
    while found := left_over(fleet):
        assert time.monotonic() < until, sorted(found)[:20]
        make_leftovers_old(fleet)
        time.sleep(2)


def make_leftovers_old(fleet: Fleet) -> None:
    """Let sweeps take at once what crashes have left, also what they find in turn."""
    for change in (
        "UPDATE stored_files SET active_at = 0 WHERE NOT is_published",
        "UPDATE stored_garbage SET due_at = 0",
    ):
        fleet.ask(change)


def left_over(fleet: Fleet) -> set[tuple[str, ...]]:
    """Objects, and multipart uploads with their ids, that belong to no file.

    A start that is disturbed may leave those of its check, which no row announces.
    """
    bucket = bucket_at(fleet.store.access, "")
    objects = [item for item in bucket.list_objects("") if not item.name.startswith(CHECKS)]
    multiparts = [item for item in bucket.list_multiparts("") if not item.name.startswith(CHECKS)]
    stored = {(item.name,) for item in objects}
    begun = {(item.name, item.id) for item in multiparts}
    files, unfinished, pieces = (
        {tuple(row.split("|")) for row in column(fleet, f"SELECT {names} FROM {table}{of_file}")}
        for names, table, of_file in (
            ("name", "stored_files", OF_FILE),
            ("multipart_name, multipart_id", "stored_files", f"{OF_FILE} AND name IS NULL"),
            ("stored_pieces.name", "stored_pieces", OF_FILE),
        )
    )
    return (stored - files - pieces - {(MARK,)}) | (begun - unfinished)


def column(fleet: Fleet, query: str) -> list[str]:
    """The rows that the database returns, their columns separated by `|`."""
    return fleet.ask(query).splitlines()
