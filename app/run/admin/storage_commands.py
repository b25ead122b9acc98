"""`flask --app wsgi storage`: check, configure and reconcile the bucket."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from secrets import token_hex

import click
from sqlalchemy.exc import ArgumentError

from app.db.engine import Database
from app.db.transfer import CopyRefused, copy_records
from app.run.admin.opening import (
    OperatorGroup,
    as_json,
    open_library,
    require_no_server,
    services,
    with_files,
)
from app.settings import PREFIX
from app.settings.values import database_server
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.check import Grade
from app.storage.s3.check import check as check_bucket
from app.storage.s3.inspection import ORPHAN_AGE, Reconciliation
from app.uploads.storage_identity import WrongStorage
from app.video.serve.bucket_objects import OBJECTS, bucket_name

CHECK_SECONDS = 30.0
"""Time limit for each call of the check, retries included."""

storage = OperatorGroup("storage", help="The bucket of an object store.")


@storage.command("check")
@as_json
def check(is_json: bool) -> None:
    """Test that the bucket does what the server relies on, as each start does.

    The exit status is 1 if uploads would fail or could be lost.
    """
    found = check_bucket(_bucket(), token_hex(8))
    click.echo(json.dumps(asdict(found), indent=2) if is_json else f"{found.grade}: {found.detail}")
    sys.exit(1 if found.grade is Grade.FATAL else 0)


@storage.command("cors")
@click.argument("origins", metavar="ORIGIN...", nargs=-1, required=True)
def cors(origins: tuple[str, ...]) -> None:
    """Let pages of these origins, as in https://films.example, upload straight to the bucket.

    Replaces the CORS rules of the bucket.
    """
    _bucket().let_pages_store(*origins)
    click.echo("The bucket has new CORS rules; browsers may remember old answers for an hour.")


@storage.command("reconcile")
@click.option(
    "--remove",
    is_flag=True,
    help="Remove what nothing refers to, and make missing files of films again.",
)
@with_files
def reconcile(remove: bool) -> None:
    """Compare the database with the bucket, and list what only one of them has.

    Objects and multipart uploads that nothing refers to are listed once they are a day old. The
    exit status is 1 if an object is missing. Files made from films can be made again.
    """
    bucket, catalog = _bucket(), BucketCatalog(open_library().database)
    comparison = Reconciliation(bucket, catalog, datetime.now(UTC) - ORPHAN_AGE)
    missing = _reconcile_films(bucket, remove=remove)
    for found in comparison.differences():
        click.echo(f"{'orphan' if found.is_orphan else 'missing':<9} {found.name}")
        missing += not found.is_orphan
        if found.is_orphan and remove:
            bucket.delete(found.name)
    for begun in comparison.orphaned_multiparts():
        click.echo(f"{'unfinished':<9} {begun.name}")
        if remove:
            bucket.abort_multipart(begun.name, begun.id)
    sys.exit(1 if missing else 0)


@storage.command("adopt")
@click.option(
    "--replace-mark",
    "replaces_mark",
    is_flag=True,
    help="Even if the files there are marked as those of another library.",
)
def adopt(*, replaces_mark: bool) -> None:
    """Look for the files where SLUICE_STORAGE says from now on, while no server runs.

    For an operator who has moved them, or who uses records again that `database copy` has moved to
    another database. Moves nothing. `storage reconcile` and `verify` tell what is missing there.
    """
    found = open_library(may_be_left=True)
    require_no_server(found)
    found.storage_identity.adopt(replaces_mark=replaces_mark)
    place = found.settings.storage or found.settings.library_dir
    click.echo(f"The files of this library are in {place}.")


def _reconcile_films(bucket: Bucket, *, remove: bool) -> int:
    """Reconcile derived files of videos; returns how many are missing and not made again."""
    media = open_library().media
    for name in media.files.orphans():
        click.echo(f"{'orphan':<9} {OBJECTS}{name}")
        if remove:
            bucket.delete(f"{OBJECTS}{name}")
    lost = []
    for made in media.files.missing():
        click.echo(f"{'missing':<9} {bucket_name(made)}")
        lost.append(made)
        if remove:
            media.files.discard(made.upload_id, made.name)
    if remove:
        media.records.plan_again({made.upload_id for made in lost})
    return 0 if remove else len(lost)


def _bucket() -> Bucket:
    bucket = services().bucket
    if bucket is None:
        raise click.ClickException(f"Files are on this machine's disk. Set {PREFIX}STORAGE")
    return bucket.within(CHECK_SECONDS)


# ---- database commands ---------------------------------------------------------------------------

# `flask --app wsgi database`: moves the records to another database.


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
    if not target:
        raise click.ClickException("URL is empty. Name a PostgreSQL database, or `file`.")
    try:
        url = settings.file_url if target == "file" else database_server(target)
    except ValueError as error:
        raise click.ClickException(f"{target} {error}") from error
    if url == settings.records_url:
        raise click.ClickException("The records are in that database already.")

    def tell(table: str, count: int) -> None:
        click.echo(f"{table}: {count}", err=True)

    try:
        require_no_server(services)
        services.storage_identity.require_records()
        with closing(Database(url, synced=True)) as there:
            there.migrate()
            count = copy_records(services.database, there, tell=tell)
        services.storage_identity.leave()
        services.database.checkpoint()  # The operator may move its file.
    except (ArgumentError, CopyRefused, WrongStorage) as error:
        raise click.ClickException(str(error)) from error
    chosen = "" if target == "file" else target
    click.echo(f"{count} records copied and compared. Now set {PREFIX}DATABASE_URL={chosen}")
