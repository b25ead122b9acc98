"""The commands of `flask --app wsgi`: parse, call, print."""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import click
from flask import Flask

from app import __version__
from app.access import audit
from app.core.access import EVERYTHING
from app.core.lifecycle import IllegalTransition, UploadState
from app.core.numbers import bytes_in_words
from app.core.upload import Upload, UploadId, parse_upload_id
from app.db.jobs import ListedJob
from app.run.admin.access_commands import keys, projects, users
from app.run.admin.backup import Backup, BackupRefused, FolderInUse, Verification
from app.run.admin.disk import disk_bench
from app.run.admin.opening import (
    OperatorGroup,
    as_json,
    as_operator,
    command_app,
    limited,
    open_library,
    operator_command,
    print_one,
    print_rows,
    with_files,
)
from app.run.admin.storage_commands import database, storage
from app.storage.data_folder import shown

uploads = OperatorGroup("uploads", help="Unfinished uploads.")
videos = OperatorGroup("videos", help="Finished files.")
jobs = OperatorGroup("jobs", help="What the background worker makes of videos.")


def operator_app() -> Flask:
    """The application that `flask --app wsgi` loads to run or list commands."""
    people = (users, projects, keys)
    upkeep = (verify, backup, sweep, database, storage, renew_secret, disk_bench, version)
    return command_app(uploads, videos, jobs, *people, *upkeep)


@uploads.command("list")
@limited
@as_json
def list_uploads(limit: int, is_json: bool) -> None:
    """Show the unfinished uploads, newest first."""
    _print_all(open_library().uploads.active(EVERYTHING, limit), is_json=is_json)


@uploads.command("show")
@click.argument("upload_id", metavar="ID")
@as_json
def show_upload(upload_id: str, is_json: bool) -> None:
    """Show one upload, with the ranges that are missing."""
    upload = open_library().uploads.get(EVERYTHING, parse_upload_id(upload_id))
    missing = [[span.start, span.end] for span in upload.missing]
    print_one({**_row(upload), "missing": missing}, is_json=is_json)


@uploads.command("expire")
@click.argument("upload_id", metavar="ID")
@with_files
def expire_upload(upload_id: str) -> None:
    """End an upload now and free its space."""
    try:
        open_library().housekeeping.expire_one(parse_upload_id(upload_id))
    except IllegalTransition as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"expired {upload_id}")


@videos.command("list")
@limited
@as_json
def list_videos(limit: int, is_json: bool) -> None:
    """Show the finished files, newest first."""
    found = islice(open_library().library.all(EVERYTHING), limit)
    _print_all(list(found), is_json=is_json)


@videos.command("show")
@click.argument("video_id", metavar="ID")
@as_json
def show_video(video_id: str, is_json: bool) -> None:
    """Show one finished file."""
    video = open_library().library.get(EVERYTHING, parse_upload_id(video_id))
    checksums = {"sha256": video.sha256, "crc32c": video.crc32c}
    print_one({**_row(video), **checksums}, is_json=is_json)


@videos.command("delete")
@click.argument("video_ids", metavar="ID...", nargs=-1, required=True)
@with_files
def delete_videos(video_ids: tuple[str, ...]) -> None:
    """Delete finished files."""
    for video_id in video_ids:
        video = open_library().library.delete(EVERYTHING, parse_upload_id(video_id))
        audit.note_removal(as_operator(), video)
        click.echo(f"deleted {video_id}")


@operator_command("verify")
@as_json
@with_files
def verify(is_json: bool) -> None:
    """Read all finished files again and report what differs from the records."""
    verification = Verification(open_library(), EVERYTHING)
    findings = []
    for finding in verification.run():
        findings.append(finding)
        if not is_json:
            click.echo(f"{finding.name}  {finding.difference}: {finding.detail}")
    report = {"checked": verification.checked, "without_digest": verification.without_digest}
    if is_json:
        found = [{"name": f.name, "what": f.difference, "detail": f.detail} for f in findings]
        click.echo(json.dumps({**report, "differences": found}, indent=2))
    else:
        click.echo(
            f"{verification.checked} files checked ({verification.without_digest} of them have no "
            f"digest yet), {len(findings)} differ"
        )
    sys.exit(1 if findings else 0)


@operator_command("backup")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--without-library", is_flag=True, help="Copy only the database.")
@click.option(
    "--force",
    "is_forced",
    is_flag=True,
    help="Replace a backup that has more, and accept that files are missing.",
)
@with_files
def backup(folder: Path, *, without_library: bool, is_forced: bool) -> None:
    """Copy the database and the library into FOLDER, while the server runs.

    Files that FOLDER has already are kept, so the next run only copies what is new. Of a library
    in a bucket, only the database is copied. Refused if FOLDER has a backup of another library, or
    if most of its files are missing here and were not deleted. The exit status is 1 if the backup
    lacks the file of a video.
    """
    bucket = open_library().bucket
    made = Backup(open_library(), folder)
    try:
        made.run(with_library=bucket is None and not without_library, is_forced=is_forced)
    except (FolderInUse, BackupRefused, sqlite3.Error) as error:
        raise click.ClickException(str(error)) from error
    if bucket is not None:
        click.echo(
            f"database copied to {shown(folder / 'sluice.db')}; the files stay in the bucket"
        )
        return
    click.echo(
        f"database copied to {shown(folder / 'sluice.db')}; files: {made.copied} copied, "
        f"{made.linked} linked, {made.kept} kept from an earlier backup, {made.removed} removed"
    )
    if made.without_file:
        names = ", ".join(made.names_without_file)
        click.echo(
            f"{made.without_file} videos have a record but no file, here or in the backup: {names}"
            f"{', …' if made.without_file > len(made.names_without_file) else ''}. Is the disk of "
            f"{shown(made.services.settings.library_dir)} mounted?",
            err=True,
        )
        sys.exit(0 if is_forced else 1)


@operator_command("sweep")
@with_files
def sweep() -> None:
    """Publish interrupted uploads, delete what has expired, and remove leftovers now."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s %(upload_id)s", defaults={"upload_id": ""}))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    services = open_library()
    housekeeping, inspection = services.housekeeping, services.store.inspection
    housekeeping.finish_stuck()
    services.video_expiry.sweep(housekeeping.sweep())
    for remove in (inspection.collect_garbage, inspection.remove_leftovers):
        if remove is not None:
            remove()
    click.echo("swept")


@operator_command("renew-secret")
def renew_secret() -> None:
    """Replace the signing secret, which ends all visits by links; takes effect after a restart.

    On several nodes, once all of them were stopped.
    """
    open_library().identity.signing.renew()
    click.echo("renewed; restart the server")


@operator_command("version")
def version() -> None:
    """Print the version of Sluice; `--version` is that of Flask."""
    click.echo(f"Sluice {__version__}")


def _row(upload: Upload) -> dict[str, Any]:
    return {
        "id": upload.id,
        "filename": upload.filename,
        "state": upload.state.value,
        "length": upload.length,
        "received": upload.received.total,
        "active": upload.active_at.isoformat(timespec="seconds"),
    }


def _print_all(found: list[Upload], *, is_json: bool) -> None:
    print_rows([_row(upload) for upload in found], _line, is_json=is_json)


def _line(row: dict[str, Any]) -> str:
    length, received = row["length"], bytes_in_words(row["received"])
    size = (
        received
        if row["state"] == UploadState.COMPLETE
        else (f"{received} of {'?' if length is None else bytes_in_words(length)}")
    )
    return f"{row['id']}  {row['active'][:16].replace('T', ' ')}  {size:>20}  {row['filename']}"


# ---- jobs of the background worker ---------------------------------------------------------------


@jobs.command("list")
@limited
@as_json
def list_jobs(limit: int, is_json: bool) -> None:
    """Show the jobs that run, then those that wait, the most urgent first."""
    _print_jobs(open_library().media.jobs.unfinished(limit), is_json=is_json)


@jobs.command("failed")
@limited
@as_json
def list_failed(limit: int, is_json: bool) -> None:
    """Show the jobs that have failed for good, the latest first, and why."""
    _print_jobs(open_library().media.jobs.failures(limit), is_json=is_json)


@jobs.command("retry")
@click.argument("upload_id", metavar="[ID]", required=False)
@click.option("--code", help="Only those with this problem, as in no_ffmpeg.")
def retry(upload_id: str | None, code: str | None) -> None:
    """Queue failed jobs again: all of them, or those of one video."""
    wanted = None if upload_id is None else parse_upload_id(upload_id)
    count = open_library().media.jobs.retry(datetime.now(UTC), upload_id=wanted, code=code)
    click.echo(f"{count} queued")


@jobs.command("cancel")
@click.argument("upload_id", metavar="ID")
@click.argument("step")
@click.argument("argument", default="")
def cancel(upload_id: str, step: str, argument: str) -> None:
    """End a job that waits or runs."""
    wanted, now = parse_upload_id(upload_id), datetime.now(UTC)
    if not open_library().media.jobs.cancel(wanted, step, argument, now):
        raise click.ClickException("No such job waits or runs.")
    click.echo("cancelled")


@jobs.command("again")
@click.argument("upload_ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All videos.")
def look_again(upload_ids: tuple[str, ...], *, is_all: bool) -> None:
    """Look at videos again, as at new ones: within five minutes, the newest first."""
    if is_all is bool(upload_ids):
        raise click.UsageError("Name the videos, or say --all.")
    wanted: list[UploadId] = [parse_upload_id(upload_id) for upload_id in upload_ids]
    count = open_library().media.records.plan_again(None if is_all else wanted)
    click.echo(f"{count} videos")


def _print_jobs(found: list[ListedJob], *, is_json: bool) -> None:
    rows = [
        {
            "id": job.upload_id,
            "filename": filename,
            "step": job.kind,
            "argument": job.argument,
            "lane": job.lane.value,
            "state": job.state.value,
            "progress": round(job.progress, 3),
            "attempts": job.attempts,
            "updated": job.updated_at.isoformat(timespec="seconds"),
            "code": job.problem and job.problem.code,
            "problem": job.problem and job.problem.detail,
        }
        for job, filename in ((listed.job, listed.filename) for listed in found)
    ]
    print_rows(rows, _job_line, is_json=is_json)


def _job_line(row: dict[str, Any]) -> str:
    what = f"{row['step']} {row['argument']}".rstrip()
    problem = f"  {row['code']}: {row['problem']}" if row["code"] else ""
    share = f"{row['progress']:.0%}" if row["state"] == "running" else ""
    return (
        f"{row['id']}  {row['state']:<8} {share:>4}  {row['lane']:<10}  {what:<20}  "
        f"{row['filename']}{problem}"
    )
