"""New tables are those that the code declares, and migrations change older ones into them."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from app.core.errors import StorageFailed
from app.db.engine import (
    MIGRATIONS,
    Database,
    SchemaState,
    newest_revision,
    schema_state,
    upgrade,
)
from app.db.tables import projects
from app.records.uploads import UploadRecords
from tests.records.making import new_upload

NEXT_MIGRATION = f"""
import sqlalchemy as sa
from alembic import op

revision = "9000"
down_revision = "{newest_revision()}"

def upgrade():
    op.add_column("parts", sa.Column("note", sa.Text))
"""


def configuration() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


def set_revision(database: Database, name: str) -> None:
    with database.write() as connection:
        change = text("UPDATE alembic_version SET version_num = :name")
        connection.execute(change, {"name": name})


@contextmanager
def revision(database: Database, name: str) -> Iterator[None]:
    """The database says that its tables have another revision."""
    set_revision(database, name)
    try:
        yield
    finally:
        set_revision(database, newest_revision())
    assert database.schema_state() is SchemaState.CURRENT


def test_a_database_of_a_newer_version_is_left_alone(database: Database) -> None:
    with revision(database, "9999"):
        for look in (database.migrate, database.schema_state):
            with pytest.raises(StorageFailed, match=r"newer version of Sluice: .* revision 9999"):
                look()


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


def test_older_tables_are_left_alone(database: Database) -> None:
    with revision(database, "0013"), pytest.raises(StorageFailed, match=r"too old: .* 0013"):
        database.migrate()


def test_a_migration_changes_the_tables_of_the_version_before(
    database: Database, tmp_path: Path
) -> None:
    migrations = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, migrations, ignore=shutil.ignore_patterns("__pycache__"))
    (migrations / "versions" / "9000_note.py").write_text(NEXT_MIGRATION)
    try:
        with database.write() as connection:
            assert schema_state(connection, migrations) is SchemaState.OLDER
            upgrade(connection, migrations)
            assert schema_state(connection, migrations) is SchemaState.CURRENT
            columns = {each["name"] for each in inspect(connection).get_columns("parts")}
            assert "note" in columns
            connection.execute(text("ALTER TABLE parts DROP COLUMN note"))
    finally:
        set_revision(database, newest_revision())


def test_migrations_are_linear() -> None:
    assert ScriptDirectory.from_config(configuration()).get_heads() == [newest_revision()]


def test_a_new_database_does_without_alembic(tmp_path: Path) -> None:
    """Each process of a server looks, and the first creates the tables: Alembic takes as long."""
    look = (
        "import sys; from tests.records.making import sqlite; from pathlib import Path;"
        "database = sqlite(Path(sys.argv[1])); database.migrate(); database.close();"
        "print('alembic' in sys.modules)"
    )
    command = [sys.executable, "-c", look, str(tmp_path / "sluice.db")]
    outputs = [subprocess.run(command, check=True, stdout=subprocess.PIPE) for _ in range(2)]
    assert [output.stdout.split() for output in outputs] == [[b"False"], [b"False"]]


def test_a_running_server_does_not_notice_migrations_of_an_update(tmp_path: Path) -> None:
    versions = tmp_path / "versions"
    versions.mkdir()
    (versions / "0001_first.py").touch()
    assert newest_revision(tmp_path) == "0001"
    (versions / "0002_of_the_update.py").touch()
    assert newest_revision(tmp_path) == "0001"
