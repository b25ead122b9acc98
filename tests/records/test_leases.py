"""Of several servers one does what each of them could do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from app.core.jobs import INDEX, SWEEP, JobState, Lane
from app.db.engine import Database
from app.db.jobs import JobRecords
from app.db.nodes import SharedNote, SharedValues
from app.records.uploads import UploadRecords
from app.storage.machine import IdleClock, Reading
from app.video.serve.rows import MediaRecords
from tests.records.making import NOW, at, new_upload
from tests.uploads.world import World

DAY = timedelta(days=1)


@pytest.fixture
def world(tmp_path: Path, on_server: Database) -> World:
    return World(tmp_path, database=on_server)


def test_one_of_many_does_a_periodic_job(on_server: Database) -> None:
    jobs = JobRecords(on_server)
    jobs.add(SWEEP, {"": ""}, Lane.UPKEEP, NOW)
    for number in range(5):
        claim = partial(jobs.claim, Lane.UPKEEP, now=at(number), lease=DAY, kinds=[SWEEP])
        with ThreadPoolExecutor(8) as threads:
            claims = list(threads.map(lambda name, claim=claim: claim(worker=name), "abcdefgh"))
        (job,) = [each for each in claims if each is not None]
        assert jobs.finish(job, at(number), again_after=timedelta(seconds=1))


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
    upload, jobs = world.create(10), JobRecords(world.database)
    jobs.add(SWEEP, {"": ""}, Lane.UPKEEP, world.now)
    world.set_clock(days=8)
    sweep = jobs.claim(Lane.UPKEEP, "another node", world.now, DAY, [SWEEP])
    assert sweep is not None
    world.housekeeping.start()
    assert world.records.get(upload.id).active_at < world.now
    jobs.release("another node", world.now)
    world.housekeeping.start()
    assert world.records.get(upload.id).active_at == world.now
    assert jobs.claim(Lane.UPKEEP, "another node", world.now, DAY, [SWEEP]) is not None


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
