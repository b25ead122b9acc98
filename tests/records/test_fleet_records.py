"""What machines that share a database know of each other's clocks and encoders."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from app.core.access import FIRST_PROJECT, Scope
from app.core.errors import UploadError
from app.core.jobs import Lane
from app.db.engine import Database
from app.db.jobs import JobRecords
from app.db.nodes import ASKED_SECONDS, ServerClock
from app.db.tables import encoders
from app.http.services import Services
from app.records.uploads import UploadRecords
from app.run.build import build_services
from app.settings import Settings
from app.uploads.service import NewUpload
from app.video.serve.ladder import FRESH_FOR, Capability, SharedCapability
from tests.records.making import NOW, at, new_upload
from tests.uploads.world import in_threads

FAST = Capability(encoder="7", megapixels_per_second=200)
SLOW = Capability(encoder="5", megapixels_per_second=100)


AHEAD = timedelta(days=40)


def test_a_worker_and_its_successor_may_report_at_the_same_moment(on_server: Database) -> None:
    shared = SharedCapability(on_server, lambda: FAST, lambda: NOW)
    for number in range(20):
        report = partial(shared.report, f"{number}")
        assert in_threads(4, lambda _: report()) == [None] * 4  # noqa: B023 - it runs at once
    count = select(func.count()).select_from(encoders)
    with on_server.read() as connection:
        assert connection.scalar(count) == 20
    later = NOW + FRESH_FOR + timedelta(seconds=1)
    SharedCapability(on_server, lambda: FAST, lambda: later).report("next")
    with on_server.read() as connection:
        assert connection.scalar(count) == 1, "those that are gone are forgotten"


def test_the_time_is_that_of_the_server(on_server: Database) -> None:
    clock = ServerClock(on_server)
    first, second = clock(), clock()
    assert abs(datetime.now(UTC) - first) < timedelta(minutes=1)
    assert first <= second


def test_there_is_no_time_before_the_server_could_be_asked() -> None:
    clock = ServerClock(Database("postgresql+psycopg://127.0.0.1:1/nowhere", synced=True))
    for _ in range(2):
        with pytest.raises(UploadError):
            clock()


@pytest.mark.parametrize("asked_meanwhile", [1, 2, 3])
def test_time_does_not_go_back_while_another_thread_asks(
    on_server: Database, asked_meanwhile: int
) -> None:
    """It may ask between any two steps of those that need the time."""
    passed, calls = 0.0, 0

    def elapsed() -> float:
        nonlocal passed, calls
        calls += 1
        if calls == asked_meanwhile:
            passed += ASKED_SECONDS
            clock()
        return passed

    clock, calls = ServerClock(on_server, elapsed), -100
    clock()
    passed = ASKED_SECONDS / 2
    first, calls = clock(), 0
    assert first <= clock()


def test_a_node_whose_clock_is_wrong_goes_by_that_of_the_server(
    tmp_path: Path, on_server: Database, shared_url: str
) -> None:
    def node(name: str, ahead: timedelta) -> Services:
        data, staging = tmp_path / name, tmp_path / name / "staging"
        settings = Settings(database_url=shared_url, data_dir=data, staging_dir=staging)
        return build_services(settings, now=lambda: datetime.now(UTC) + ahead)

    right, wrong = node("right", timedelta(0)), node("wrong", AHEAD)
    with closing(right.database), closing(wrong.database):
        now = right.housekeeping.allow_for_clock()
        new = NewUpload(scope=Scope(FIRST_PROJECT), filename="a.mp4", length=10)
        begun, _ = wrong.uploads.create(new)
        swept = wrong.housekeeping.sweep()
    assert max(begun.active_at, swept) - now < AHEAD / 2


def test_a_lease_holds_for_all_that_share_a_clock(on_server: Database) -> None:
    one, other = ServerClock(on_server), ServerClock(on_server)
    jobs, lease = JobRecords(on_server), timedelta(seconds=60)
    upload = UploadRecords(on_server).add(new_upload())[0]
    jobs.enqueue(upload.id, "index", lane=Lane.QUICK, priority=0, now=one())
    assert jobs.claim(Lane.QUICK, "one", one(), lease, ["index"]) is not None
    assert jobs.claim(Lane.QUICK, "two", other(), lease, ["index"]) is None


def test_a_fleet_offers_what_its_slowest_worker_can_do(database: Database) -> None:
    def shared(own: Capability | None, now: datetime = NOW) -> SharedCapability:
        return SharedCapability(database, lambda: own, lambda: now)

    assert shared(None)() is None
    assert shared(FAST)() == FAST
    shared(None).report("without ffmpeg")
    shared(SLOW).report("slow")
    with database.write() as connection:
        newer_version = json.dumps({**asdict(SLOW), "unheard_of": 1})
        is_slow = encoders.c.worker == "slow"
        connection.execute(update(encoders).where(is_slow).values(facts=newer_version))
    shared(FAST, at(60)).report("fast")
    assert [shared(own)() for own in (None, FAST)] == [SLOW, SLOW]
    assert shared(None, NOW + FRESH_FOR + timedelta(seconds=1))() == FAST
