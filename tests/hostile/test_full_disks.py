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
from tests.live_server import NO_FFMPEG, Server, running_server

pytestmark = pytest.mark.e2e

LIBRARY = "data/library"
SOME_SECONDS = 0.2
"""In which clients upload without pause."""

NO_ROOM = (507, "no_room")
FAILED = (500, "storage_failed")


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Disk]]:
    """One for each folder; the library's is mounted inside the database's."""
    folder = tmp_path_factory.mktemp("disks")
    with small_disks(folder, "staging", "data", LIBRARY, megabytes=64) as made:
        yield made


@pytest.fixture(scope="module")
def cramped(disks: dict[str, Disk], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on these disks, which each test leaves with room."""
    folders = {
        f"SLUICE_{name.upper()}_DIR": str(disks[name].folder) for name in ("staging", "data")
    }
    options = {**NO_FFMPEG, "SLUICE_TEST_CONSTANTS": "sweep_seconds=0.5"}
    folder = tmp_path_factory.mktemp("cramped")
    with running_server(folder, **folders, **options) as server:
        yield server


def test_stored_files_can_be_read_and_deleted_while_the_database_disk_is_full(
    cramped: Server, disks: dict[str, Disk]
) -> None:
    """The first test of this server: later, its database has more room in its own files."""
    load = Load(cramped)
    load.run(SOME_SECONDS)
    disks["data"].fill()
    assert set(load.refusals(SOME_SECONDS)) == {NO_ROOM}
    load.check()
    upload_id, *_ = load.stored
    answer = cramped.delete(f"/api/videos/{upload_id}")
    assert (answer.status_code, answer.json()["code"]) == NO_ROOM
    disks["data"].empty()
    assert cramped.delete(f"/api/videos/{upload_id}").status_code in {204, 410}
    del load.stored[upload_id]
    _delete_all(load)
    assert "Traceback" not in cramped.log


def test_each_folder_fills_up_under_load_and_recovers(
    cramped: Server, disks: dict[str, Disk], scaled: Scaled
) -> None:
    load = Load(cramped)
    for _ in range(scaled(short=1, long=20)):
        for name, disk in disks.items():
            assert load.run(SOME_SECONDS) == {}, "there is room"
            with load.running(clients=4):
                disk.fill()
            refused = load.refusals(scaled(short=1, long=15) * SOME_SECONDS)
            assert set(refused) == {NO_ROOM}, f"{name} is full"
            disk.empty()
            stored = len(load.stored)
            assert load.run(SOME_SECONDS) == {}, f"{name} has room again"
            assert len(load.stored) > stored
            _delete_all(load)
    assert "Traceback" not in cramped.log


@pytest.fixture
def breakable(tmp_path: Path) -> Iterator[list[BreakableDisk]]:
    """Of the folders for staging and for data."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                breakable_disk(tmp_path / name, tmp_path / f"{name}.img", megabytes=96)
            )
            for name in ("staging", "data")
        ]


def test_a_disk_turns_read_only_under_load_and_is_repaired(
    breakable: list[BreakableDisk], tmp_path: Path, scaled: Scaled
) -> None:
    folders = {
        "SLUICE_STAGING_DIR": str(tmp_path / "staging"),
        "SLUICE_DATA_DIR": str(tmp_path / "data"),
    }
    with running_server(tmp_path, **folders, **NO_FFMPEG) as server:
        load = Load(server)
        for disk in breakable * scaled(short=1, long=10):
            assert load.run(SOME_SECONDS) == {}
            with load.running(clients=4):
                disk.turn_read_only()
            refused = load.refusals(SOME_SECONDS)
            assert set(refused) == {FAILED}
            load.check()
            upload_id, *_ = load.stored
            assert server.delete(f"/api/videos/{upload_id}").status_code in {204, 500}
            del load.stored[upload_id]
            assert "Traceback" not in server.log
            server.stop(signal.SIGKILL)
            disk.repair()
            server.start()
            load.check()
            stored = len(load.stored)
            assert load.run(SOME_SECONDS) == {}
            assert len(load.stored) > stored
            _delete_all(load)


def _delete_all(load: Load) -> None:
    """The disks are small."""
    load.check()
    for upload_id in load.stored:
        assert load.server.delete(f"/api/videos/{upload_id}").status_code == 204
    for upload_id in load.begun:
        assert load.server.delete(f"/api/uploads/{upload_id}").status_code == 204
    load.stored.clear()
    load.begun.clear()
