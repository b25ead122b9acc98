"""Nodes, database and bucket die, stall and lie: no acknowledged byte is ever lost."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from app.storage.s3.mark import MARK
from tests.fleet.faulty_proxy import Fault
from tests.fleet.senders import KINDS
from tests.fleet.shaken import DISTURBANCES, Fleet, end_leases, shaken_fleet
from tests.hostile.conftest import Scaled
from tests.hostile.senders import Crowd, Line
from tests.storage.stores import bucket_at
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

BUCKET_FAULTS = dict.fromkeys(Fault, 0.01)
DATABASE_FAULTS = {Fault.CUT_BODY: 0.0005, Fault.LOST_ANSWER: 0.0005, Fault.DELAY: 0.001}


def test_no_acknowledged_byte_is_lost_whatever_dies(tmp_path: Path, scaled: Scaled) -> None:
    """Every file is there, whole, once, and nothing else is left in the bucket."""
    seed = 16
    rng = Random(seed)
    with shaken_fleet(
        tmp_path,
        nodes=3,
        seed=seed,
        database_faults=DATABASE_FAULTS,
        bucket_faults=BUCKET_FAULTS,
    ) as fleet:
        crowd = Crowd(Line([node.server for node in fleet.nodes], is_bad=True), seed, KINDS)
        with crowd.running(clients=len(KINDS) * scaled(short=1, long=2)):
            shake(fleet, rng, times=scaled(short=6, long=1000))
        fleet.heal()
        crowd.finish()
        crowd.check()
        assert {type(sender) for sender in crowd.senders} == {*KINDS}
        assert fleet.faults > 0
        check_bucket(fleet)


def shake(fleet: Fleet, rng: Random, *, times: int) -> None:
    """So many disturbances, one after the other."""
    kinds, weights = zip(*DISTURBANCES.items(), strict=True)
    for _ in range(times):
        time.sleep(rng.uniform(0, 1))
        (disturb,) = rng.choices(kinds, weights)
        disturb(fleet, rng)


def check_bucket(fleet: Fleet) -> None:
    """Assert that each file is one object, and that sweeps leave nothing that no row names."""
    published = column(fleet, "SELECT key FROM stored_files WHERE is_published")
    complete = column(fleet, "SELECT id FROM uploads WHERE state = 'complete' AND kind <> 'part'")
    assert sorted(published) == sorted(complete)
    make_leftovers_old(fleet)
    wait_until(lambda: not left_over(fleet), f"sweeps have removed {left_over(fleet)}")


def make_leftovers_old(fleet: Fleet) -> None:
    """Nobody waits for days or hours until sweeps take what crashes have left."""
    end_leases(fleet, "stored_pieces")
    for change in (
        "UPDATE stored_files SET active_at = 0 WHERE NOT is_published",
        "UPDATE stored_garbage SET due_at = 0",
    ):
        fleet.postgresql.ask(change, database="sluice")


def left_over(fleet: Fleet) -> set[str]:
    """Objects and multipart uploads that belong to no file."""
    bucket = bucket_at(fleet.store.access, "")
    stored = {item.name for item in bucket.list_objects("")}
    begun = {item.name for item in bucket.list_multiparts("")}
    files, multiparts, pieces = (
        column(fleet, f"SELECT {name} FROM {table} JOIN uploads ON key = uploads.id")
        for name, table in (
            ("name", "stored_files"),
            ("multipart_name", "stored_files"),
            ("stored_pieces.name", "stored_pieces"),
        )
    )
    return (stored - {MARK, *files, *pieces}) | (begun - {*multiparts})


def column(fleet: Fleet, query: str) -> list[str]:
    """The only column of what the database answers."""
    return fleet.postgresql.ask(query, database="sluice").splitlines()
