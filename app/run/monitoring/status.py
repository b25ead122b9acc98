"""The live status page, and the numbers it polls every second."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response, jsonify, render_template

from app import __version__
from app.core.access import Action
from app.core.nodes import NodeState
from app.db.jobs import ListedJob
from app.http.access import requires
from app.http.context import ViewContext
from app.ingest.stages import Stage
from app.run.monitoring.probes import snapshot
from app.run.monitoring.reading import NOTHING, Snapshot, running_requests

blueprint = Blueprint("status", __name__)
api_blueprint = Blueprint("api_status", __name__)

UPLOADS_SHOWN = 10
"""Maximum of newest unfinished uploads on the page, which also shows their total number."""

JOBS_SHOWN = 10
"""Maximum of running or next jobs, and of latest failed jobs, on the page."""

SUMMED = ("requests_now", "downloads_now", "received_bytes_per_second", "sent_bytes_per_second")
"""Numbers of nodes that can be added up."""

ENDED = ("created", "complete", "cancelled", "expired")


@blueprint.get("/status")
@requires(Action.ADMINISTER)
def page(ctx: ViewContext) -> str:
    """The page with current numbers."""
    return render_template("status.html", status=status_document(ctx))


@api_blueprint.get("/api/status")
@requires(Action.ADMINISTER)
def show(ctx: ViewContext) -> Response:
    """Current activity, and totals since the start, of all processes of the server."""
    return jsonify(status_document(ctx))


def status_document(ctx: ViewContext) -> dict[str, Any]:
    """Bytes and seconds are totals since the start; compute rates from two readings."""
    counts, nodes = snapshot(), _nodes(ctx)
    started = counts.total("sluice_start_time_seconds")
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
        "fleet": {
            **{state.value: sum(node["state"] == state for node in nodes) for state in NodeState},
            **{name: sum(node[name] for node in nodes) for name in SUMMED},
        },
        "errors": _largest_first(counts.by("code", "sluice_errors_total")),
        "free_bytes": _whole(counts.by("folder", "sluice_free_bytes")),
        "stages": [_stage(counts, stage) for stage in Stage],
    }


def _uploads(ctx: ViewContext, counts: Snapshot) -> dict[str, Any]:
    ended = counts.by("event", "sluice_uploads_total")
    newest = ctx.services.uploads.active(ctx.scope, UPLOADS_SHOWN)
    return {
        "under_way": int(counts.total("sluice_uploads_under_way")),
        **{event: int(ended.get(event, 0)) for event in ENDED},
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


def _jobs(ctx: ViewContext, counts: Snapshot) -> dict[str, Any]:
    jobs = ctx.services.media.jobs
    return {
        **_whole(counts.by("state", "sluice_jobs")),
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


def _job(listed: ListedJob) -> dict[str, str]:
    job = listed.job
    return {
        "id": job.upload_id,
        "filename": listed.filename,
        "step": job.step,
        "argument": job.argument,
    }


def _nodes(ctx: ViewContext) -> list[dict[str, Any]]:
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


def _stage(counts: Snapshot, stage: Stage) -> dict[str, Any]:
    name, labels = "sluice_stage_seconds", {"stage": stage.value}
    return {
        "stage": stage.value,
        "count": int(counts.total(f"{name}_count", **labels)),
        "seconds": round(counts.total(f"{name}_sum", **labels), 6),
        "median_seconds": counts.quantile(0.5, name, **labels),
        "p95_seconds": counts.quantile(0.95, name, **labels),
    }


def _whole(numbers: dict[str, float]) -> dict[str, int]:
    return {name: int(numbers[name]) for name in sorted(numbers)}


def _largest_first(numbers: dict[str, float]) -> dict[str, int]:
    return {name: int(numbers[name]) for name in sorted(numbers, key=lambda n: (-numbers[n], n))}
