"""What the services build from the settings."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from app.services import build_services
from app.settings import Settings

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
