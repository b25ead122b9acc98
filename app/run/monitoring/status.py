"""The live status page, and the numbers it polls every second."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any, NotRequired, TypedDict, cast

from flask import Blueprint, Response, jsonify, render_template

from app import __version__
from app.core.access import Action
from app.core.json_types import Count, Fraction, Instant, Seconds, keywords
from app.core.nodes import NodeState
from app.db.jobs import ListedJob
from app.http.access import requires
from app.http.context import ViewContext
from app.http.openapi import describes
from app.ingest.stages import Stage
from app.run.monitoring.instruments import NOTHING, Snapshot, running_requests
from app.run.monitoring.probes import snapshot

blueprint = Blueprint("status", __name__)
api_blueprint = Blueprint("api_status", __name__)

UPLOADS_SHOWN = 10
"""Maximum of newest unfinished uploads on the page, which also shows their total number."""

JOBS_SHOWN = 10
"""Maximum of running or next jobs, and of latest failed jobs, on the page."""

SUMMED = ("requests_now", "downloads_now", "received_bytes_per_second", "sent_bytes_per_second")
"""Numbers of nodes that can be added up."""

# ---- documents -----------------------------------------------------------------------------------

Counts = dict[str, Count]


class RequestCounts(TypedDict):
    """Requests."""

    now: Count
    total: Count
    by_status: Counts
    by_protocol: Counts


class TransferCounts(TypedDict):
    """Bytes on the network."""

    downloads_now: Count
    received_bytes: Count
    sent_bytes: Count


class UnfinishedUpload(TypedDict):
    """An upload in progress."""

    id: str
    filename: str
    length: Count | None
    received_bytes: Count


class UploadCounts(TypedDict):
    """Uploads."""

    under_way: Count
    created: Count
    complete: Count
    cancelled: Count
    expired: Count
    newest: list[UnfinishedUpload]


class JobDocument(TypedDict):
    """A media job."""

    id: str
    filename: str
    step: str
    argument: str
    """As in `720`, the height of a rendition."""


class UnfinishedJob(JobDocument):
    """A job that waits or runs."""

    state: Annotated[str, keywords(enum=["queued", "running"])]
    progress: Fraction


class FailedJob(JobDocument):
    """A job that has failed."""

    code: str
    detail: str
    """For people."""


class JobCounts(TypedDict):
    """What is made of videos, at this moment."""

    queued: Count
    running: Count
    failed: Count
    next: list[UnfinishedJob]
    failures: list[FailedJob]


class NodeDocument(TypedDict):
    """A server that shares the records with others, on a database server."""

    name: str
    is_this: bool
    """Whether it is the one that answers."""
    address: str
    """For operators."""
    version: str
    state: NodeState
    started: Instant
    uptime_seconds: Seconds
    requests_now: Count
    downloads_now: Count
    received_bytes_per_second: Count
    sent_bytes_per_second: Count
    free_bytes: Count | None
    problems: list[str]
    """Codes, as in `/readyz`."""


class FreeBytes(TypedDict):
    """Free space that uploads may use, by folder."""

    staging: Count
    """With the spools, if the files are in a bucket."""
    library: NotRequired[Count]
    """Only if the files are on a disk."""


class StageTimes(TypedDict):
    """One stage of storing a chunk, and what it has taken."""

    stage: Stage
    count: Count
    """Requests that went through it."""
    seconds: Seconds
    """Total of all these requests."""
    median_seconds: Seconds | None
    """Approximate. Null before the first request."""
    p95_seconds: Seconds | None
    """The 95th percentile, approximate. Null before the first request."""


class StatusDocument(TypedDict):
    """Counts, bytes and seconds are totals over all processes since the start.

    The difference of two answers is a rate.
    """

    version: str
    started: Instant
    uptime_seconds: Seconds
    requests: RequestCounts
    transfers: TransferCounts
    uploads: UploadCounts
    jobs: JobCounts
    nodes: list[NodeDocument]
    """All servers that share the records on a database server; none where they are in a file."""
    fleet: Annotated[Counts, keywords(required=[*NodeState, *SUMMED])]
    """How many nodes are in each state, and what all of them do together."""
    errors: Counts
    """By `code`."""
    free_bytes: FreeBytes
    stages: list[StageTimes]


# ---- views ---------------------------------------------------------------------------------------


@blueprint.get("/status")
@requires(Action.ADMINISTER)
def page(ctx: ViewContext) -> str:
    """The page with current numbers."""
    return render_template("status.html", status=status_document(ctx))


@api_blueprint.get("/api/status")
@requires(Action.ADMINISTER)
@describes("showStatus", {200: StatusDocument})
def show(ctx: ViewContext) -> Response:
    """Get what the server is doing, and has done since it started."""
    return jsonify(status_document(ctx))


def status_document(ctx: ViewContext) -> StatusDocument:
    """Bytes and seconds are totals since the start; compute rates from two readings."""
    counts, nodes = snapshot(), _nodes(ctx)
    started = counts.total("sluice_start_time_seconds")
    states = {state.value: sum(node["state"] == state for node in nodes) for state in NodeState}
    sums = {name: sum(node[name] for node in nodes) for name in SUMMED}
    return {
        "version": __version__,
        "started": datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds"),
        "uptime_seconds": round(max(0.0, time.time() - started), 3),  # The clock may be set.
        "requests": {
            "now": running_requests(counts),
            "total": int(counts.total("sluice_requests_total")),
            "by_status": _whole(counts.by("status", "sluice_requests_total")),
            "by_protocol": _largest_first(counts.by("protocol", "sluice_requests_total")),
        },
        "transfers": {
            "downloads_now": int(counts.total("sluice_downloads_in_progress")),
            "received_bytes": int(counts.total("sluice_received_bytes_total")),
            "sent_bytes": int(counts.total("sluice_sent_bytes_total")),
        },
        "uploads": _uploads(ctx, counts),
        "jobs": _jobs(ctx, counts),
        "nodes": nodes,
        "fleet": {**states, **sums},
        "errors": _largest_first(counts.by("code", "sluice_errors_total")),
        "free_bytes": cast(FreeBytes, _whole(counts.by("folder", "sluice_free_bytes"))),
        "stages": [_stage(counts, stage) for stage in Stage],
    }


def _uploads(ctx: ViewContext, counts: Snapshot) -> UploadCounts:
    ended = counts.by("event", "sluice_uploads_total")
    newest = ctx.services.uploads.active(ctx.scope, UPLOADS_SHOWN)
    return {
        "under_way": int(counts.total("sluice_uploads_under_way")),
        "created": int(ended.get("created", 0)),
        "complete": int(ended.get("complete", 0)),
        "cancelled": int(ended.get("cancelled", 0)),
        "expired": int(ended.get("expired", 0)),
        "newest": [
            {
                "id": upload.id,
                "filename": upload.filename,
                "length": upload.length,
                "received_bytes": sum(span.length for span in upload.received),
            }
            for upload in newest
        ],
    }


def _jobs(ctx: ViewContext, counts: Snapshot) -> JobCounts:
    jobs, states = ctx.services.media.jobs, counts.by("state", "sluice_jobs")
    return {
        "queued": int(states["queued"]),
        "running": int(states["running"]),
        "failed": int(states["failed"]),
        "next": [
            {**_job(listed), "state": listed.job.state.value, "progress": listed.job.progress}
            for listed in jobs.unfinished(JOBS_SHOWN)
        ],
        "failures": [
            {**_job(listed), "code": problem.code, "detail": problem.detail}
            for listed in jobs.failures(JOBS_SHOWN)
            if (problem := listed.job.problem) is not None
        ],
    }


def _job(listed: ListedJob) -> JobDocument:
    job = listed.job
    return {
        "id": job.upload_id,
        "filename": listed.filename,
        "step": job.kind,
        "argument": job.argument,
    }


def _nodes(ctx: ViewContext) -> list[Any]:
    """All nodes of the fleet; empty with SQLite."""
    services = ctx.services
    if services.nodes is None:
        return []
    return [
        {
            "name": node.report.name,
            "is_this": node.report.name == services.node.name,
            "address": node.report.address,
            "version": node.report.version,
            "state": node.state.value,
            "started": node.started_at.isoformat(timespec="milliseconds"),
            "uptime_seconds": round(max(0.0, node.uptime_seconds), 3),
            # A node of another version may report fewer numbers.
            **NOTHING,
            **({} if node.state is NodeState.GONE else node.report.counts),
        }
        for node in services.nodes.all()
    ]


def _stage(counts: Snapshot, stage: Stage) -> StageTimes:
    name, labels = "sluice_stage_seconds", {"stage": stage.value}
    return {
        "stage": stage,
        "count": int(counts.total(f"{name}_count", **labels)),
        "seconds": round(counts.total(f"{name}_sum", **labels), 6),
        "median_seconds": counts.quantile(0.5, name, **labels),
        "p95_seconds": counts.quantile(0.95, name, **labels),
    }


def _whole(numbers: dict[str, float]) -> dict[str, int]:
    return {name: int(numbers[name]) for name in sorted(numbers)}


def _largest_first(numbers: dict[str, float]) -> dict[str, int]:
    return {name: int(numbers[name]) for name in sorted(numbers, key=lambda n: (-numbers[n], n))}
