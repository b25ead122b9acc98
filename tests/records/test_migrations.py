"""The migrations make the tables that the code declares, and can take them back."""

from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

import app.records
from app.records.engine import Database
from app.records.sql import SqlRecords
from app.records.tables import metadata
from tests.records.making import new_upload, sqlite


def configuration() -> Config:
    config = Config()
    folder = Path(app.records.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder))
    return config


def table_names(database: Database) -> set[str]:
    with database.read() as connection:
        return set(inspect(connection).get_table_names())


def test_the_migrated_schema_is_the_declared_one(database: Database) -> None:
    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_indexes_and_keys_are_the_declared_ones(database: Database) -> None:
    with database.read() as connection:
        found = inspect(connection)
        for table in metadata.tables.values():
            indexes = {
                index["name"]: index["column_names"] for index in found.get_indexes(table.name)
            }
            assert indexes == {index.name: list(index.columns.keys()) for index in table.indexes}
            keys = found.get_pk_constraint(table.name)["constrained_columns"]
            assert keys == list(table.primary_key.columns.keys())


def test_migrating_again_keeps_what_is_there(database: Database, tmp_path: Path) -> None:
    upload, _ = SqlRecords(database).add(new_upload())
    other = sqlite(tmp_path / "folder" / "sluice.db")
    other.migrate()
    assert SqlRecords(other).get(upload.id) == upload
    other.close()


def test_every_migration_can_be_taken_back_and_done_again(database: Database) -> None:
    config = configuration()
    with database.write() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert table_names(database) == {"alembic_version"}
    database.migrate()
    assert table_names(database) == {"alembic_version", *metadata.tables}


def test_there_is_one_line_of_migrations() -> None:
    assert len(ScriptDirectory.from_config(configuration()).get_heads()) == 1
