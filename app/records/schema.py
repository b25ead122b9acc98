"""Which tables a database has, and the migrations that bring them up to date."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect, text

MIGRATIONS = Path(__file__).parent / "migrations"


@cache
def newest_revision(migrations: Path = MIGRATIONS) -> str:
    """The revision that this version of the program needs; files of migrations begin with it.

    Looked up once, and forks know it: after an update of the files, a process that is restarted
    does not change the database under the old code of the others.
    """
    names = (path.name for path in (migrations / "versions").glob("[0-9]*.py"))
    return max(names).partition("_")[0]


def is_up_to_date(connection: Connection) -> bool:
    """Whether the database has the newest revision, as Alembic noted in its table."""
    if not inspect(connection).has_table("alembic_version"):
        return False
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    return found == [newest_revision()]


def upgrade(connection: Connection) -> None:
    """Run the migrations that are missing, in the caller's transaction."""
    # Importing Alembic takes 0.17 CPU s, and every process but the first finds nothing to do.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
