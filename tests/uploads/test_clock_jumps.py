"""Clocks that are set, and servers that were off: no upload expires because of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from app.core.errors import NoRoom
from app.core.lifecycle import UploadState
from app.core.upload import Upload
from app.run.server.background_worker import sweep_pause
from app.settings import Settings
from tests.uploads.world import ME, World

DAY = 24 * 3600


@pytest.fixture
def swept(tmp_path: Path) -> World:
    """A world whose clocks were read before, and are read twice a day."""
    world = World(tmp_path, counted_gap=timedelta(hours=12))
    world.housekeeping.sweep()
    return world


def begun(world: World) -> Upload:
    """An upload with some of its bytes."""
    return world.send(world.create(1000), 0, 10)


def let_days_pass(world: World, days: float) -> None:
    """Let days pass while the background worker sweeps."""
    for _ in range(round(days * 2)):
        world.later(hours=12)
        world.housekeeping.sweep()


def start_again(world: World) -> None:
    """Restart housekeeping, as a new process."""
    world.start()


def set_right(world: World) -> None:
    world.set_clock(days=365 * 56)


def set_ahead(world: World) -> None:
    world.set_clock(days=8)


def set_ahead_and_restarted(world: World) -> None:
    world.set_clock(days=8)
    start_again(world)


def machine_off_for_weeks(world: World) -> None:
    world.set_clock(days=21)
    world.boot_id, world.since_boot = "second boot", 10.0
    start_again(world)


def server_off_for_weeks(world: World) -> None:
    world.later(days=21)
    start_again(world)


def asleep_for_weeks(world: World) -> None:
    """A laptop that sleeps: the time since the boot goes on."""
    world.later(days=21)


@pytest.mark.parametrize(
    "jump",
    [
        set_right,
        set_ahead,
        set_ahead_and_restarted,
        machine_off_for_weeks,
        server_off_for_weeks,
        asleep_for_weeks,
    ],
)
def test_downtime_does_not_count_as_idle_time(swept: World, jump: Callable[[World], None]) -> None:
    upload = begun(swept)
    let_days_pass(swept, 5)
    jump(swept)
    swept.housekeeping.sweep()
    let_days_pass(swept, 1)
    assert swept.state(upload) is UploadState.RECEIVING
    assert swept.records.get(upload.id).active_at <= swept.now
    assert swept.send(upload, 10, 20).offset == 20
    let_days_pass(swept, 6.5)
    assert swept.state(upload) is UploadState.RECEIVING
    let_days_pass(swept, 1)
    assert swept.state(upload) is UploadState.EXPIRED


def test_an_upload_idle_before_a_jump_expires_on_time(swept: World) -> None:
    upload = begun(swept)
    let_days_pass(swept, 5)
    set_ahead(swept)
    let_days_pass(swept, 2.5)
    assert swept.state(upload) is UploadState.EXPIRED


def test_an_upload_active_before_a_jump_is_noticed_does_not_live_longer(
    swept: World,
) -> None:
    swept.set_clock(days=8)
    upload = begun(swept)
    swept.housekeeping.sweep()
    assert swept.records.get(upload.id).active_at == swept.now


def test_a_clock_set_back_keeps_nothing_alive_forever(swept: World) -> None:
    upload = begun(swept)
    swept.later(minutes=1)
    swept.housekeeping.sweep()
    swept.set_clock(days=-8)
    swept.housekeeping.sweep()
    assert swept.records.get(upload.id).active_at == swept.now
    let_days_pass(swept, 6.5)
    assert swept.state(upload) is UploadState.RECEIVING
    let_days_pass(swept, 1)
    assert swept.state(upload) is UploadState.EXPIRED


def test_a_jump_ahead_and_back_between_checks_leaves_nothing_in_the_future(swept: World) -> None:
    swept.set_clock(days=400)
    upload = begun(swept)
    swept.set_clock(days=-400)
    swept.housekeeping.sweep()
    assert swept.records.get(upload.id).active_at == swept.now


def test_ended_uploads_are_remembered_as_long_as_before(swept: World) -> None:
    upload = begun(swept)
    swept.service.cancel(ME, upload.id)
    swept.set_clock(days=40)
    swept.housekeeping.sweep()
    assert swept.state(upload) is UploadState.CANCELLED


def test_a_file_without_a_record_is_not_considered_old(swept: World) -> None:
    swept.staging.mkdir(exist_ok=True)
    foreign = swept.staging / ("f" * 32)
    foreign.write_bytes(b"another server's")
    os.utime(foreign, (0, foreign.stat().st_mtime - 8 * DAY))  # As seen by a clock 8 days ahead.
    swept.set_clock(days=8)
    swept.housekeeping.sweep()
    assert foreign.exists()


def test_a_file_of_another_user_does_not_stop_the_sweep(
    swept: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a file is left if the service first ran as root."""

    def set_times(name: str, times: tuple[float, float], *, dir_fd: int) -> None:
        if name == others.name:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        set_own_times(name, times, dir_fd=dir_fd)

    upload = begun(swept)
    others = swept.staging / ("f" * 32)
    others.touch()
    set_own_times = os.utime
    monkeypatch.setattr(os, "utime", set_times)
    set_ahead(swept)
    let_days_pass(swept, 7.5)
    assert swept.state(upload) is UploadState.EXPIRED


def test_nothing_expires_while_a_jump_cannot_be_recorded(
    swept: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = begun(swept)
    set_ahead(swept)

    def refuse(*_: object, **__: object) -> None:
        raise NoRoom("The disk of the database is full.")

    with monkeypatch.context() as patch:
        patch.setattr(swept.records, "shift_activity", refuse)
        for _ in range(2):
            with pytest.raises(NoRoom):
                swept.housekeeping.sweep()
    swept.housekeeping.sweep()
    assert swept.state(upload) is UploadState.RECEIVING


def test_the_contents_of_the_clock_file_are_not_trusted(swept: World, tmp_path: Path) -> None:
    upload = begun(swept)
    for content in ("", "[]", '["first boot", "x", 3]', '{"a": 1}', "\0"):
        (tmp_path / "clock").write_text(content)
        start_again(swept)
        swept.housekeeping.sweep()
        assert swept.state(upload) is UploadState.RECEIVING


@pytest.mark.parametrize(("wanted", "pause"), [(60.0, 60.0), (24 * 3600.0, 720.0)])
def test_uploads_expire_in_time_however_rare_the_sweeps(
    tmp_path: Path, wanted: float, pause: float
) -> None:
    expiry = timedelta(hours=2)
    world = World(tmp_path, expiry_seconds=expiry.total_seconds())
    world.housekeeping.sweep()
    upload = begun(world)
    seconds = expiry.total_seconds()
    assert sweep_pause(Settings(sweep_seconds=wanted, expiry_seconds=seconds)) == pause
    for _ in range(int(expiry.total_seconds() // pause) + 1):
        world.later(seconds=pause)
        world.housekeeping.sweep()
    assert world.records.get(upload.id).state is UploadState.EXPIRED
