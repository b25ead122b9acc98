"""Full or read-only folders under load: the right statuses, and nothing acknowledged is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.hostile.conftest import Scaled
from tests.hostile.disks import BreakableDisk, Disk, breakable_disk, small_disks
from tests.hostile.load import Load
from tests.live_server import Server, running_server

pytestmark = pytest.mark.e2e

LIBRARY = "data/library"

NO_ROOM = (507, "no_room")
FAILED = (500, "storage_failed")


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[str, Disk]]:
    """One for each folder; the library's is mounted inside the database's."""
    with small_disks(tmp_path, "staging", "data", LIBRARY, megabytes=64) as made:
        yield made


@pytest.fixture
def cramped(disks: dict[str, Disk], tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "log").touch()
    folders = {
        f"SLUICE_{name.upper()}_DIR": str(disks[name].folder) for name in ("staging", "data")
    }
    with running_server(tmp_path, **folders, SLUICE_SWEEP_SECONDS="0.5") as server:
        yield server


def test_each_folder_fills_up_under_load_and_recovers(
    cramped: Server, disks: dict[str, Disk], scaled: Scaled
) -> None:
    load = Load(cramped)
    for _ in range(scaled(short=1, long=20)):
        for name, disk in disks.items():
            assert load.run(0.5) == {}, "there is room"
            with load.running(clients=4):
                disk.fill()
            refused = load.refusals(scaled(short=1, long=3))
            assert set(refused) == {NO_ROOM}, f"{name} is full"
            disk.empty()
            stored = len(load.stored)
            assert load.run(0.5) == {}, f"{name} has room again"
            assert len(load.stored) > stored
            _delete_all(load)
    assert "Traceback" not in cramped.log


def test_stored_files_can_be_read_and_deleted_while_the_database_disk_is_full(
    cramped: Server, disks: dict[str, Disk]
) -> None:
    load = Load(cramped)
    load.run(0.5)
    disks["data"].fill()
    load.run(0.5)
    load.check()
    upload_id, *_ = load.stored
    answer = cramped.delete(f"/api/videos/{upload_id}")
    assert (answer.status_code, answer.json()["code"]) == NO_ROOM
    disks["data"].empty()
    assert cramped.delete(f"/api/videos/{upload_id}").status_code in {204, 410}
    assert "Traceback" not in cramped.log


@pytest.fixture(params=["staging", "data"])
def breakable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BreakableDisk]:
    with breakable_disk(tmp_path / request.param, tmp_path / "image", megabytes=96) as disk:
        yield disk


def test_a_disk_turns_read_only_under_load_and_is_repaired(
    breakable: BreakableDisk, tmp_path: Path, scaled: Scaled
) -> None:
    folders = {
        "SLUICE_STAGING_DIR": str(tmp_path / "staging"),
        "SLUICE_DATA_DIR": str(tmp_path / "data"),
    }
    with ExitStack() as stack:
        server = stack.enter_context(running_server(tmp_path, **folders))
        load = Load(server)
        for _ in range(scaled(short=1, long=10)):
            assert load.run(0.5) == {}
            with load.running(clients=4):
                breakable.turn_read_only()
            refused = load.refusals(1)
            assert set(refused) == {FAILED}
            load.check()
            upload_id, *_ = load.stored
            assert server.delete(f"/api/videos/{upload_id}").status_code in {204, 500}
            del load.stored[upload_id]
            assert "Traceback" not in server.log
            server.stop(signal.SIGKILL)
            breakable.repair()
            server.start()
            load.check()
            stored = len(load.stored)
            assert load.run(0.5) == {}
            assert len(load.stored) > stored


def _delete_all(load: Load) -> None:
    """The disks are small."""
    load.check()
    for upload_id in load.stored:
        assert load.server.delete(f"/api/videos/{upload_id}").status_code == 204
    for upload_id in load.begun:
        assert load.server.delete(f"/api/uploads/{upload_id}").status_code == 204
    load.stored.clear()
    load.begun.clear()
