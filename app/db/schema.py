"""Which tables a database has, and the migrations that bring them up to date."""

from __future__ import annotations

from enum import Enum
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from app.core.errors import StorageFailed

MIGRATIONS = Path(__file__).parent / "migrations"


@cache
def newest_revision(migrations: Path = MIGRATIONS) -> str:
    """The revision that this version of the program needs; files of migrations begin with it.

    Looked up once, and forks know it: after an update of the files, a process that is restarted
    does not change the database under the old code of the others.
    """
    return max(_revisions(migrations))


@cache
def _revisions(migrations: Path) -> frozenset[str]:
    names = (path.name for path in (migrations / "versions").glob("[0-9]*.py"))
    return frozenset(name.partition("_")[0] for name in names)


class SchemaState(Enum):
    """How the tables of a database compare with those that this version needs."""

    MISSING = "missing"
    OLDER = "older"
    CURRENT = "current"


def schema_state(connection: Connection, migrations: Path = MIGRATIONS) -> SchemaState:
    """The state of the tables, as Alembic noted; raises `StorageFailed` for a newer version's."""
    if not inspect(connection).has_table("alembic_version"):
        return SchemaState.MISSING
    found = set(connection.scalars(text("SELECT version_num FROM alembic_version")))
    unknown = found - _revisions(migrations)
    if unknown:
        raise StorageFailed(
            "The database is of a newer version of Sluice: its tables have revision "
            f"{', '.join(sorted(unknown))}, and this version knows those up to "
            f"{newest_revision(migrations)}. Run that version, or restore a backup from before the "
            "update."
        )
    if not found:
        return SchemaState.MISSING
    is_current = found == {newest_revision(migrations)}
    return SchemaState.CURRENT if is_current else SchemaState.OLDER


def upgrade(connection: Connection) -> None:
    """Run the migrations that are missing, in the caller's transaction."""
    # Importing Alembic takes 0.17 CPU s, and every process but the first finds nothing to do.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
