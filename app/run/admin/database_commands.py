"""`flask --app wsgi database`: moves the records to another database."""

from __future__ import annotations

from contextlib import closing

import click
from sqlalchemy.exc import ArgumentError

from app.db.engine import Database
from app.db.transfer import CopyRefused, copy_records
from app.run.admin.opening import OperatorGroup, open_library, require_no_server
from app.settings import PREFIX, Settings
from app.settings.values import database_server
from app.uploads.storage_identity import WrongStorage

database = OperatorGroup("database", help="The database of the records.")


@database.command("copy")
@click.argument("target", metavar="URL")
def copy(target: str) -> None:
    """Copy all records to the empty database at URL, while no server runs.

    URL is that of a PostgreSQL database, or `file` for the file in the data folder. A copy that was
    cut off goes on when the command runs again. Set SLUICE_DATABASE_URL afterwards: no server
    starts on the old records any more.
    """
    services = open_library()
    settings = services.settings
    url = _url(target, settings)
    try:
        require_no_server(services)
        services.storage_identity.require_records()
        with closing(Database(url, synced=True)) as there:
            there.migrate()
            count = copy_records(services.database, there, tell=_tell)
        services.storage_identity.leave()
        services.database.checkpoint()  # Its file may be moved aside, or away.
    except (ArgumentError, CopyRefused, WrongStorage) as error:
        raise click.ClickException(str(error)) from error
    chosen = "" if target == "file" else target
    click.echo(f"{count} records copied and compared. Now set {PREFIX}DATABASE_URL={chosen}")


def _url(target: str, settings: Settings) -> str:
    if not target:
        raise click.ClickException("URL is empty. Name a PostgreSQL database, or `file`.")
    try:
        url = settings.file_url if target == "file" else database_server(target)
    except ValueError as error:
        raise click.ClickException(f"{target} {error}") from error
    if url == settings.records_url:
        raise click.ClickException("The records are in that database already.")
    return url


def _tell(table: str, count: int) -> None:
    click.echo(f"{table}: {count}", err=True)
