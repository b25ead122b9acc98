"""What machines that share a database know of each other's clocks and encoders."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.domain.jobs import Lane
from app.media.renditions.capability import Capability
from app.media.renditions.shared_capability import SharedCapability
from app.records.clock import ServerClock
from app.records.encoders import FRESH_FOR, EncoderRecords
from app.records.engine import Database
from app.records.jobs import JobRecords
from app.records.uploads import UploadRecords
from tests.records.making import NOW, at, new_upload

FAST = Capability(encoder="7", megapixels_per_second=200)
SLOW = Capability(encoder="5", megapixels_per_second=100)


def wrong_clock() -> datetime:
    return datetime.now(UTC) - timedelta(days=300)


def test_a_machine_whose_clock_is_wrong_goes_by_that_of_the_server(on_server: Database) -> None:
    clock = ServerClock(on_server, wrong_clock)
    first, second = clock(), clock()
    assert abs(datetime.now(UTC) - first) < timedelta(minutes=1)
    assert first <= second


def test_a_lease_holds_for_a_machine_whose_clock_is_ahead(on_server: Database) -> None:
    clock = ServerClock(on_server, lambda: datetime.now(UTC) + timedelta(days=1))
    right, jobs, lease = (
        ServerClock(on_server, wrong_clock),
        JobRecords(on_server),
        timedelta(seconds=60),
    )
    upload = UploadRecords(on_server).add(new_upload())[0]
    jobs.enqueue(upload.id, "index", lane=Lane.QUICK, priority=0, now=right())
    assert jobs.claim(Lane.QUICK, "one", right(), lease, ["index"]) is not None
    assert jobs.claim(Lane.QUICK, "two", clock(), lease, ["index"]) is None


def test_a_fleet_offers_what_its_slowest_worker_can_do(database: Database) -> None:
    def shared(own: Capability | None, now: datetime = NOW) -> SharedCapability:
        return SharedCapability(EncoderRecords(database), lambda: own, lambda: now)

    assert shared(None)() is None
    assert shared(FAST)() == FAST
    shared(None).tell("without ffmpeg")
    shared(SLOW).tell("slow")
    shared(FAST, at(60)).tell("fast")
    assert [shared(own)() for own in (None, FAST)] == [SLOW, SLOW]
    assert shared(None, NOW + FRESH_FOR + timedelta(seconds=1))() == FAST
