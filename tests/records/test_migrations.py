"""The migrations create the tables that the code declares, and can be reverted."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import insert, inspect, text

from app.access.upload_links import LinkLimits
from app.core.access import FIRST_PROJECT
from app.core.errors import StorageFailed
from app.core.jobs import Lane
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange, RangeSet
from app.core.upload import Upload, UploadKind, UploadPart
from app.db.context import Context
from app.db.engine import MIGRATIONS, Database, SchemaState, newest_revision
from app.db.jobs import JobRecords
from app.db.tables import projects, upload_links
from app.records.uploads import UploadRecords
from app.settings import Settings
from app.uploads.quotas import ProjectQuotas
from app.video.serve.rows import MediaRecords
from tests.records.making import NOW, new_upload


def configuration() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


def table_names(database: Database) -> set[str]:
    with database.read() as connection:
        return set(inspect(connection).get_table_names())


def test_the_migrated_schema_matches_the_declared_one(database: Database) -> None:
    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, projects.metadata) == []


def test_a_database_of_a_newer_version_is_left_alone(database: Database) -> None:
    newer = text("UPDATE alembic_version SET version_num = '9999'")
    with database.write() as connection:
        connection.execute(newer)
    try:
        for look in (database.migrate, database.schema_state):
            with pytest.raises(StorageFailed, match=r"newer version of Sluice: .* revision 9999"):
                look()
    finally:
        with database.write() as connection:
            known = {"revision": newest_revision()}
            connection.execute(text("UPDATE alembic_version SET version_num = :revision"), known)
    assert database.schema_state() is SchemaState.CURRENT


def test_indexes_and_keys_match_the_declared_ones(database: Database) -> None:
    with database.read() as connection:
        found = inspect(connection)
        for table in projects.metadata.tables.values():
            indexes = {
                index["name"]: index["column_names"]
                for index in found.get_indexes(table.name)
                if "duplicates_constraint" not in index  # PostgreSQL's own, for each such key.
            }
            assert indexes == {index.name: list(index.columns.keys()) for index in table.indexes}
            keys = found.get_pk_constraint(table.name)["constrained_columns"]
            assert keys == list(table.primary_key.columns.keys())


def test_migrating_again_keeps_the_rows(database: Database) -> None:
    upload, _ = UploadRecords(database).add(new_upload())
    database.migrate()
    assert UploadRecords(database).get(upload.id) == upload


def test_every_migration_can_be_reverted_and_repeated(database: Database) -> None:
    config = configuration()
    with database.write() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert table_names(database) == {"alembic_version"}
    database.migrate()
    assert table_names(database) == {"alembic_version", *projects.metadata.tables}


def step(database: Database, change: Callable[[Config, str], None], revision: str) -> None:
    """Migrate the database to a revision."""
    config = configuration()
    with database.write() as connection:
        config.attributes["connection"] = connection
        change(config, revision)


def state_column(database: Database, upload: Upload) -> str:
    with database.read() as connection:
        query = text("SELECT state FROM uploads WHERE id = :id")
        return str(connection.execute(query, {"id": upload.id}).scalar())


def test_uploads_of_the_first_version_are_files(database: Database) -> None:
    """Rows of the first version, with their ranges, survive all later migrations."""
    records = UploadRecords(database)
    before = replace(
        new_upload(fingerprint="a:1:2"), received=RangeSet.of([ByteRange(0, 5), ByteRange(7, 9)])
    )
    complete = replace(new_upload(), state=UploadState.COMPLETE, published_at=NOW, sha256="a" * 64)
    for upload in (before, complete):
        records.add(upload)
    step(database, command.downgrade, "0001")
    with database.read() as connection:
        columns = {column["name"] for column in inspect(connection).get_columns("uploads")}
    assert not columns & {"kind", "metadata", "repr_digest"}
    database.migrate()
    assert [records.get(upload.id) for upload in (before, complete)] == [before, complete]
    after = records.add_received(before, ByteRange(0, 100), NOW)
    assert after.state is UploadState.VERIFYING


def test_the_first_version_does_not_show_parts_as_files(database: Database) -> None:
    records = UploadRecords(database)
    part = replace(new_upload(), kind=UploadKind.PARTIAL)
    whole = replace(new_upload(length=None), kind=UploadKind.CONCATENATION)
    published = replace(new_upload(), kind=UploadKind.CONCATENATION, state=UploadState.COMPLETE)
    file = new_upload()
    for upload in (part, published, file):
        records.add(upload)
    records.add(whole, [UploadPart(part.id, "a"), UploadPart(part.id, "b")])
    records.add_received(part, ByteRange(0, 100), NOW)
    assert state_column(database, part) == "held"
    step(database, command.downgrade, "0001")
    states = [state_column(database, upload) for upload in (part, whole, published, file)]
    assert states == ["expired", "expired", "complete", "receiving"]
    assert "parts" not in table_names(database)
    database.migrate()
    assert records.parts(whole.id) == []


def test_an_update_finds_the_films_there_are_and_going_back_keeps_them(database: Database) -> None:
    """From a filled database of the version before there were jobs, and back to it."""
    records, media = UploadRecords(database), MediaRecords(database)
    films = [replace(new_upload(), state=UploadState.COMPLETE) for _ in range(3)]
    for upload in (*films, new_upload()):
        records.add(upload)
    step(database, command.downgrade, "0004")
    assert table_names(database) == {"alembic_version", "parts", "uploads"}
    database.migrate()
    assert set(media.unplanned(10)) == {film.id for film in films}
    media.add(films[0].id, NOW, is_planned=True)
    JobRecords(database).enqueue(films[0].id, "index", lane=Lane.QUICK, priority=0, now=NOW)
    step(database, command.downgrade, "0004")
    database.migrate()
    assert [records.get(film.id) for film in films] == films
    assert media.get(films[0].id) is None
    assert JobRecords(database).of(films[0].id) == []


def test_uploads_through_links_hold_their_length_before_reservations(database: Database) -> None:
    ctx = Context(
        database=database, clock=lambda: NOW, new_id=lambda: "l" * 32, settings=Settings()
    )
    limits, quotas = LinkLimits(ctx), ProjectQuotas(database)
    records = UploadRecords(database, observers=[quotas.observe, limits.observe])
    link: dict[str, object] = {
        "name": "",
        "message": "",
        "created_by": "",
        "created_at": NOW,
        "extensions": "",
    }
    link |= {"files": 0, "bytes": 0, "asks_name": False}
    with database.write() as connection:
        connection.execute(
            insert(upload_links).values(id="l" * 32, project_id=FIRST_PROJECT, code="code", **link)
        )

    def through_link(*, length: int | None = 1000, **values: Any) -> Upload:
        sender = f"upload_link:{'l' * 32}:visitor"
        upload = replace(new_upload(owner=FIRST_PROJECT, length=length), sender=sender, **values)
        return records.add(upload)[0]

    file, stalled = through_link(reserved=100), through_link(reserved=100)
    records.stall(stalled.id, NOW)
    part = through_link(reserved=100, kind=UploadKind.PARTIAL)
    whole = through_link(length=None, kind=UploadKind.CONCATENATION)
    assert counts(database) == (1, 100, 200)
    step(database, command.downgrade, "0013")
    assert counts(database) == (3, 3000, 3000)
    database.migrate()
    assert counts(database) == (2, 2000, 3000)
    assert [records.get(each.id).reserved for each in (file, part, whole)] == [1000, 1000, None]
    assert quotas.recount() == {}


def counts(database: Database) -> tuple[int, ...]:
    """The files and bytes of the only link, and the bytes of its project."""
    joined = "upload_links JOIN projects ON project_id = projects.id"
    query = f"SELECT files, bytes, used_bytes FROM {joined}"
    with database.read() as connection:
        return tuple(connection.execute(text(query)).one())


def test_migrations_are_linear() -> None:
    assert ScriptDirectory.from_config(configuration()).get_heads() == [newest_revision()]


def test_only_who_migrates_loads_alembic(tmp_path: Path) -> None:
    """Each process of a server looks; loading it would take a fifth of their start."""
    look = (
        "import sys; from tests.records.making import sqlite; from pathlib import Path;"
        "database = sqlite(Path(sys.argv[1])); database.migrate(); database.close();"
        "print('alembic' in sys.modules)"
    )
    command = [sys.executable, "-c", look, str(tmp_path / "sluice.db")]
    outputs = [subprocess.run(command, check=True, stdout=subprocess.PIPE) for _ in range(2)]
    assert [output.stdout.split() for output in outputs] == [[b"True"], [b"False"]]


def test_a_running_server_does_not_notice_migrations_of_an_update(tmp_path: Path) -> None:
    versions = tmp_path / "versions"
    versions.mkdir()
    (versions / "0001_first.py").touch()
    assert newest_revision(tmp_path) == "0001"
    (versions / "0002_of_the_update.py").touch()
    assert newest_revision(tmp_path) == "0001"
