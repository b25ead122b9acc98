"""`flask --app wsgi jobs`: the media worker's queue and its failures."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from app.core.upload import UploadId, parse_upload_id
from app.db.jobs import ListedJob
from app.run.admin.opening import OperatorGroup, as_json, limited, open_library, print_rows

jobs = OperatorGroup("jobs", help="What the media worker makes of videos.")


@jobs.command("list")
@limited
@as_json
def list_jobs(limit: int, is_json: bool) -> None:
    """Show the jobs that run, then those that wait, the most urgent first."""
    _print(open_library().media.jobs.unfinished(limit), is_json=is_json)


@jobs.command("failed")
@limited
@as_json
def list_failed(limit: int, is_json: bool) -> None:
    """Show the jobs that have failed for good, the latest first, and why."""
    _print(open_library().media.jobs.failures(limit), is_json=is_json)


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


def _print(found: list[ListedJob], *, is_json: bool) -> None:
    rows = [
        {
            "id": job.upload_id,
            "filename": filename,
            "step": job.step,
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
    print_rows(rows, _line, is_json=is_json)


def _line(row: dict[str, Any]) -> str:
    what = f"{row['step']} {row['argument']}".rstrip()
    problem = f"  {row['code']}: {row['problem']}" if row["code"] else ""
    share = f"{row['progress']:.0%}" if row["state"] == "running" else ""
    return (
        f"{row['id']}  {row['state']:<8} {share:>4}  {row['lane']:<10}  {what:<20}  "
        f"{row['filename']}{problem}"
    )
