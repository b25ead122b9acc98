"""What the services build from the settings."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from app.core.access import FIRST_PROJECT
from app.core.ranges import ByteRange
from app.db.nodes import SharedValues
from app.http.services import BOOT_MARKER, Services
from app.run.build import build_services
from app.settings import Settings
from app.uploads.storage_identity import PLACE, WrongStorage
from tests.records.making import NOW, new_upload

NORMAL, FULL = 1, 2  # SQLite: a commit survives a crash of the process, or a power cut as well


@pytest.mark.parametrize(
    ("durability", "synced"), [("chunk", FULL), ("file", FULL), ("none", NORMAL)]
)
def test_records_are_as_durable_as_their_files(
    tmp_path: Path, durability: str, synced: int
) -> None:
    settings = Settings(durability=durability, staging_dir=tmp_path / "staging", data_dir=tmp_path)
    services = build_services(settings)
    with closing(services.database):
        services.prepare()
        with services.database.read() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == synced


def unsynced(folder: Path) -> Services:
    """The server of a library with an upload that a restart of the machine makes begin again."""
    services = build_services(Settings(durability="file", staging_dir=folder, data_dir=folder))
    services.prepare()
    services.prepare_storage()
    upload, _ = services.records.add(new_upload(owner=FIRST_PROJECT))
    services.records.add_received(upload, ByteRange(0, 50), NOW)
    (folder / BOOT_MARKER).write_text("another-boot file")
    return services


def received(services: Services) -> int:
    [upload] = services.records.active(None, 2)
    return upload.received.total


def test_only_a_server_forgets_what_the_machine_may_have_lost(tmp_path: Path) -> None:
    services = unsynced(tmp_path)
    with closing(services.database):
        services.prepare()
        assert (tmp_path / BOOT_MARKER).read_text() == "another-boot file"
        assert received(services) == 50
        services.prepare_storage()
        assert received(services) == 0


def test_a_server_that_is_refused_forgets_nothing(tmp_path: Path) -> None:
    services = unsynced(tmp_path)
    with closing(services.database):
        SharedValues(services.database).put(PLACE, "s3://films")
        with pytest.raises(WrongStorage):
            services.prepare_storage()
        assert (tmp_path / BOOT_MARKER).read_text() == "another-boot file"
        assert received(services) == 50
