"""Of several servers one does what each of them could do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from app.core.jobs import INDEX, JobState, Lane
from app.db.engine import Database
from app.db.jobs import JobRecords
from app.db.nodes import Leases, SharedNote, SharedValues
from app.records.uploads import UploadRecords
from app.storage.machine import IdleClock, Reading
from app.uploads.housekeeping import SWEEP
from app.video.serve.rows import MediaRecords
from tests.records.making import NOW, at, new_upload
from tests.uploads.world import World

DAY = timedelta(days=1)


@pytest.fixture
def world(tmp_path: Path, on_server: Database) -> World:
    return World(tmp_path, database=on_server)


def test_one_of_many_takes_a_lease(on_server: Database) -> None:
    leases = Leases(on_server)
    for _ in range(5):
        with ThreadPoolExecutor(8) as threads:
            taken = list(threads.map(lambda _: leases.take("sweep", 60), range(8)))
        assert sorted(taken) == [False] * 7 + [True]
        leases.end("sweep")


def test_a_lease_ends_by_itself(on_server: Database) -> None:
    leases = Leases(on_server)
    assert [leases.take("a", 60), leases.take("a", 60), leases.take("b", 0)] == [True, False, True]
    assert leases.take("b", 60)


def test_the_one_server_of_a_file_does_everything(in_file: Database) -> None:
    assert [Leases(in_file).take("sweep", 60) for _ in range(2)] == [True, True]


def test_leases_that_ended_long_ago_are_forgotten(on_server: Database) -> None:
    leases = Leases(on_server)
    leases.take("recent", 0)
    leases.take("of a dead server", -2 * DAY.total_seconds())
    leases.remove_old()
    with on_server.read() as connection:
        found = connection.exec_driver_sql("SELECT work FROM turns").scalars().all()
    assert found == ["recent"]


def test_a_digest_is_computed_by_one_node(world: World) -> None:
    busy, video = world.completed(), world.completed()
    assert Leases(world.database).take(f"digest {busy.id}", 60)  # As another node does.
    assert world.housekeeping.digest() == 1
    assert world.records.get(busy.id).sha256 is None
    assert world.records.get(video.id).sha256 is not None
    Leases(world.database).end(f"digest {busy.id}")
    assert [world.housekeeping.digest(), world.housekeeping.digest()] == [1, 0]


def test_a_node_leaves_alone_what_another_has_just_digested(world: World) -> None:
    video = world.completed()
    world.records.set_sha256(video.id, "of another node")
    world.housekeeping._digest_alone(video)  # As it was listed before.
    assert world.records.get(video.id).sha256 == "of another node"


def test_nodes_that_plan_the_same_video_index_it_once(on_server: Database) -> None:
    media, jobs = MediaRecords(on_server), JobRecords(on_server)
    uploads = UploadRecords(on_server)
    video, _ = uploads.add(new_upload())
    media.plan([video.id], Lane.QUICK, NOW)
    job = jobs.claim(Lane.QUICK, "worker", NOW, DAY, [INDEX])
    assert job is not None
    media.plan([video.id], Lane.QUICK, at(1))
    assert jobs.finish(job, at(2))
    found = jobs.find(video.id, INDEX)
    assert found is None or found.state is JobState.DONE


def test_time_in_which_another_node_ran_counts_as_idle(on_server: Database) -> None:
    """The note of a fleet is the last reading of any of its nodes."""
    note = SharedNote(SharedValues(on_server), "clock")
    hour = timedelta(hours=1)
    first = IdleClock(note, lambda: Reading("first boot", 0, NOW))
    first.keep(first.look().reading)
    for number in range(1, 4):
        other = IdleClock(note, lambda n=number: Reading("other", n * 3600, NOW + n * hour))  # type: ignore[misc]
        check = other.look()
        assert check.uncounted == timedelta(0)
        other.keep(check.reading)
    again = IdleClock(note, lambda: Reading("first boot", 4 * 3600, NOW + 4 * hour))
    assert again.look().uncounted == timedelta(0)
    after_a_day = IdleClock(note, lambda: Reading("first boot", 9e4, NOW + 3 * hour + DAY))
    assert after_a_day.look().uncounted == DAY - hour


def test_a_node_that_starts_leaves_the_clock_to_one_that_sweeps(world: World) -> None:
    world.housekeeping.sweep()
    upload, leases = world.create(10), Leases(world.database)
    world.set_clock(days=8)
    assert leases.take(SWEEP, 60)  # As a node that sweeps does.
    world.housekeeping.start()
    assert world.records.get(upload.id).active_at < world.now
    leases.end(SWEEP)
    world.housekeeping.start()
    assert world.records.get(upload.id).active_at == world.now
    assert leases.take(SWEEP, 60)


def test_a_shared_value_is_replaced_by_many_at_once(database: Database) -> None:
    values, texts = SharedValues(database), [f"of {number}" for number in range(8)]
    with ThreadPoolExecutor(len(texts)) as threads:
        for name in ("a", "b", "a", "b", "a"):
            list(threads.map(lambda text, name=name: values.put(name, text), texts))
            assert values.get(name) in texts


def test_shared_values_are_kept(database: Database) -> None:
    values = SharedValues(database)
    assert values.get("name") is None
    assert [values.agree("name", lambda: "first"), values.agree("name", lambda: "second")] == [
        "first"
    ] * 2
    values.put("name", "third")
    assert values.get("name") == "third"
