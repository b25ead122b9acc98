"""Videos of projects that keep them for some time only."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, update

from app.access import audit
from app.access.audit import AuditAction, AuditFilter
from app.access.projects import limits_in_words, parse_limits, words_of_limits
from app.access.video_expiry import MOST_AT_ONCE, VideoExpiry
from app.core.errors import InvalidField
from app.core.lifecycle import UploadState
from app.db.tables import projects
from tests.uploads.conftest import close_databases
from tests.uploads.world import ME, World

__all__ = ["close_databases"]

A_DAY = 86_400.0


def in_project(world: World, video_seconds: float | None) -> VideoExpiry:
    change = update(projects).where(projects.c.id == ME.project)
    with world.database.write() as connection:
        connection.execute(change.values(video_seconds=video_seconds))
    return world.video_expiry


def let_days_pass(world: World, expiry: VideoExpiry, days: float) -> None:
    """Let days pass while the background worker sweeps."""
    for _ in range(round(days * 2)):
        world.later(hours=12)
        expiry.sweep(world.housekeeping.sweep())


def test_a_video_is_deleted_when_its_time_is_over_and_the_audit_log_tells(tmp_path: Path) -> None:
    world = World(tmp_path)
    expiry, old = in_project(world, A_DAY), world.completed()
    world.later(hours=12)
    young, unfinished = world.completed(), world.create(100)
    published = world.records.get(old.id).published_at
    assert published
    assert expiry.expires(world.records.get(old.id)) == published + timedelta(days=1)
    world.later(hours=12)
    expiry.sweep(world.now)
    states = [world.state(upload) for upload in (old, young, unfinished)]
    assert states == [UploadState.DELETED, UploadState.COMPLETE, UploadState.RECEIVING]
    assert world.files() == {young.id, unfinished.id}
    (entry,) = audit.every(world.ctx, AuditFilter())
    assert (entry.action, entry.subject) == (AuditAction.VIDEO_DELETED, f"video:{old.id}")
    assert (entry.actor_name, entry.project_id) == ("expiry", ME.project)


def test_videos_are_kept_for_ever_unless_the_project_says_otherwise(tmp_path: Path) -> None:
    world = World(tmp_path)
    expiry, video = in_project(world, None), world.completed()
    world.later(days=10_000)
    expiry.sweep(world.now)
    assert world.state(video) is UploadState.COMPLETE
    assert expiry.expires(world.records.get(video.id)) is None


def test_one_sweep_deletes_so_many_at_most(tmp_path: Path) -> None:
    world = World(tmp_path)
    expiry = in_project(world, A_DAY)
    for _ in range(MOST_AT_ONCE + 1):
        world.completed(1)
    world.later(days=2)
    expiry.sweep(world.now)
    assert len(world.files()) == 1
    expiry.sweep(world.now)
    assert world.files() == set()


def test_a_sweep_reads_the_videos_of_projects_that_delete_them_and_no_others(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    expiry = in_project(world, A_DAY)
    asked: list[tuple[str, Any]] = []

    @event.listens_for(Engine, "before_cursor_execute")
    def note(*call: Any) -> None:
        asked.append((call[2], call[3]))

    try:
        expiry.sweep(world.now)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    (query,) = [call for call in asked if "FROM uploads" in call[0]]
    with world.database.read() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query[0]}", query[1]).all()
    assert [str(step[3]) for step in plan] == [
        "SEARCH uploads USING INDEX uploads_by_age (owner=? AND active_at<?)"
    ]


@pytest.mark.parametrize("days", [20_000, 3, -20_000])
def test_the_time_that_a_clock_skips_does_not_make_videos_old(tmp_path: Path, days: int) -> None:
    world = World(tmp_path, counted_gap=timedelta(hours=12))
    expiry = in_project(world, 2 * A_DAY)
    let_days_pass(world, expiry, 0.5)
    first = world.completed()
    let_days_pass(world, expiry, 1)
    world.set_clock(days=days)
    second = world.completed()
    let_days_pass(world, expiry, 0.5)
    world.set_clock(days=-days)
    let_days_pass(world, expiry, 0.5)
    assert [world.state(each) for each in (first, second)] == [UploadState.COMPLETE] * 2
    published = world.records.get(second.id).published_at
    assert published == second.published_at, "players and caches know the video by this time"
    let_days_pass(world, expiry, 2)
    assert [world.state(each) for each in (first, second)] == [UploadState.DELETED] * 2


@pytest.mark.parametrize("boot_id", ["first boot", "second boot"])
def test_videos_get_older_while_the_server_or_the_machine_is_off(
    tmp_path: Path, boot_id: str
) -> None:
    world = World(tmp_path)
    expiry = in_project(world, 2 * A_DAY)
    world.housekeeping.sweep()
    video, unfinished = world.completed(), world.create(100)
    for state in (UploadState.COMPLETE, UploadState.DELETED):
        world.later(hours=24)
        world.boot_id = boot_id
        world.start()
        expiry.sweep(world.housekeeping.sweep())
        assert world.state(video) is state
    assert world.records.get(unfinished.id).active_at > world.now - timedelta(hours=3)


@pytest.mark.parametrize(
    "values",
    [
        {"quota_bytes": -1},
        {"quota_bytes": 1.5},
        {"quota_bytes": True},
        {"quota_bytes": "50GB"},
        {"quota_bytes": 1 << 61},
        {"video_seconds": 0},
        {"video_seconds": float("nan")},
        {"video_seconds": float("inf")},
        {"video_seconds": "1"},
    ],
)
def test_limits_that_make_no_sense_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(InvalidField):
        parse_limits(values)


@pytest.mark.parametrize("quota", [None, 0, 1, 1000, 10 << 20, (10 << 30) + 1, 1 << 60])
@pytest.mark.parametrize("seconds", [None, 60.0, 86_400.0, 2_592_000.0, 100_000.0])
def test_a_form_that_is_saved_as_it_is_changes_nothing(
    quota: int | None, seconds: float | None
) -> None:
    limits = limits_in_words(**words_of_limits(quota, seconds))
    assert limits["quota_bytes"] == quota
    assert limits["video_seconds"] == pytest.approx(seconds)


def test_limits_can_be_set_and_taken_away() -> None:
    assert parse_limits({"quota_bytes": 5, "video_seconds": 1.5, "name": "x"}) == {
        "quota_bytes": 5,
        "video_seconds": 1.5,
    }
    assert parse_limits({"quota_bytes": None}) == {"quota_bytes": None}
