"""Endpoints for monitoring: /healthz, /readyz, /metrics, and the live status page."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from flask import Blueprint, Flask, Response, current_app, jsonify, render_template
from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily

from app import __version__
from app.core.access import Action
from app.core.nodes import NodeState
from app.db.jobs import ListedJob
from app.http.access import requires
from app.http.context import ViewContext, current_services, name_request
from app.http.origins import OVERRIDE
from app.ingest.stages import Stage
from app.run.monitoring.instruments import (
    NOTHING,
    Instruments,
    Snapshot,
    all_counts,
    running_requests,
    start_time,
)
from app.storage.local.folder import free_bytes
from app.video.make.ffmpeg import Ffmpeg

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

NOT_PLAIN = frozenset({"HTTP_TRANSFER_ENCODING", "HTTP_ORIGIN", "HTTP_UPGRADE", OVERRIDE})
"""Keys of the WSGI environment of requests that the application has to look at."""

ALIVE = b'{"status":"ok"}\n'

health = Blueprint("health", __name__)
metrics = Blueprint("metrics", __name__)
status = Blueprint("status", __name__)
status_api = Blueprint("api_status", __name__)

_EXTENSION = "sluice.instruments"


def init_app(app: Flask, instruments: Instruments) -> None:
    """Serve the counts of `instruments` and of all other processes."""
    app.extensions[_EXTENSION] = instruments


@health.get("/healthz")
@requires(Action.VISIT, is_below_links=True, is_counted=False)
def alive(_ctx: ViewContext) -> Response:
    """Liveness probe, for requests that `AliveMiddleware` does not handle."""
    return Response(ALIVE, mimetype="application/json")


class AliveMiddleware:
    """Answers a plain `GET /healthz` without looking up a session, project or rate limit.

    A request with a body, or from a page of another site, reaches the view.
    """

    def __init__(
        self, app: WSGIApplication, instruments: Instruments, headers: Mapping[str, str]
    ) -> None:
        self._app = app
        self._instruments = instruments
        self._headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(ALIVE))),
            *headers.items(),
        ]

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer the probe, or run the application."""
        if environ["PATH_INFO"] != "/healthz":
            return self._app(environ, start_response)
        method, began = environ["REQUEST_METHOD"], time.perf_counter()
        has_body = environ.get("CONTENT_LENGTH", "") not in {"", "0"}
        if has_body or method not in {"GET", "HEAD"} or not NOT_PLAIN.isdisjoint(environ):
            return self._app(environ, start_response)
        headers = [*self._headers, ("X-Request-ID", name_request(environ))]
        start_response("200 OK", headers)
        self._instruments.requests("health", method, "2xx").inc()
        self._instruments.request_seconds("health").observe(time.perf_counter() - began)
        return [] if method == "HEAD" else [ALIVE]


@health.get("/readyz")
@requires(Action.VISIT, is_counted=False)
def ready(ctx: ViewContext) -> tuple[Response, int]:
    """Whether the server can accept uploads, and the problems of its set-up.

    A server that is draining before it stops responds with 503.
    """
    services = ctx.services
    if services.node.is_leaving:
        return jsonify({"status": "leaving", "problems": []}), 503
    services.uploads.active(ctx.scope, 1)
    problems = [*services.problems(), *Ffmpeg.find().problems()]
    is_ready = not any(problem.is_fatal for problem in problems)
    document = {
        "status": "ready" if is_ready else "not ready",
        "problems": [asdict(problem) for problem in problems],
    }
    return jsonify(document), 200 if is_ready else 503


@metrics.get("/metrics")
@requires(Action.MEASURE)
def everything(ctx: ViewContext) -> Response:
    """The metrics in Prometheus format: counts of all processes, and the current state."""
    return Response(generate_latest(_Everything()), content_type=CONTENT_TYPE_LATEST)


def snapshot() -> Snapshot:
    """All metrics as numbers."""
    return Snapshot(_Everything().collect())


class _Everything:
    def collect(self) -> Iterable[Metric]:
        instruments = cast(Instruments, current_app.extensions[_EXTENSION])
        yield from all_counts(instruments).collect()
        yield GaugeMetricFamily(
            "sluice_start_time_seconds",
            "When the server started, in seconds since 1970.",
            value=start_time(instruments),
        )
        services = current_services()
        under_way = GaugeMetricFamily(
            "sluice_uploads_under_way", "Uploads that are not complete.", labels=["state"]
        )
        for state, count in services.uploads.count_active().items():
            under_way.add_metric([state.value], count)
        yield under_way
        free = GaugeMetricFamily(
            "sluice_free_bytes", "Free space that uploads may use.", labels=["folder"]
        )
        free.add_metric(["staging"], free_bytes(services.settings.staging_dir))
        if services.bucket is None:
            free.add_metric(["library"], free_bytes(services.settings.library_dir))
        yield free
        jobs = GaugeMetricFamily(
            "sluice_jobs", "Media jobs that wait, run or have failed.", labels=["lane", "state"]
        )
        for (lane, standing), number in services.media.jobs.counts().items():
            jobs.add_metric([lane.value, standing.value], number)
        yield jobs
        yield GaugeMetricFamily(
            "sluice_nodes",
            "Live nodes of the fleet, this one included.",
            value=1 if services.nodes is None else services.nodes.count_live(),
        )


# ---- the status page -----------------------------------------------------------------------------

UPLOADS_SHOWN = 10
"""Maximum of newest unfinished uploads on the page, which also shows their total number."""

JOBS_SHOWN = 10
"""Maximum of running or next jobs, and of latest failed jobs, on the page."""

SUMMED = ("requests_now", "downloads_now", "received_bytes_per_second", "sent_bytes_per_second")
"""Numbers of nodes that can be added up."""

ENDED = ("created", "complete", "cancelled", "expired")


@status.get("/status")
@requires(Action.ADMINISTER)
def page(ctx: ViewContext) -> str:
    """The page with current numbers."""
    return render_template("status.html", status=status_document(ctx))


@status_api.get("/api/status")
@requires(Action.ADMINISTER)
def show(ctx: ViewContext) -> Response:
    """Current activity, and totals since the start, of all processes of the server."""
    return jsonify(status_document(ctx))


def status_document(ctx: ViewContext) -> dict[str, Any]:
    """Bytes and seconds are totals since the start; compute rates from two readings."""
    counts, nodes = snapshot(), _nodes(ctx)
    started = counts.total("sluice_start_time_seconds")
    ended = counts.by("event", "sluice_uploads_total")
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
        "uploads": {
            "under_way": int(counts.total("sluice_uploads_under_way")),
            **{event: int(ended.get(event, 0)) for event in ENDED},
            "newest": [
                {
                    "id": upload.id,
                    "filename": upload.filename,
                    "length": upload.length,
                    "received_bytes": sum(span.length for span in upload.received),
                }
                for upload in ctx.services.uploads.active(ctx.scope, UPLOADS_SHOWN)
            ],
        },
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
