"""Endpoints for monitoring: /healthz, /readyz, /metrics, and the live status page."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from flask import Blueprint, Flask, Response, current_app, jsonify
from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily

from app.core.access import Action
from app.db.this_node import ThisNode
from app.http.access import requires
from app.http.context import ViewContext, current_services
from app.http.openapi import ResponseSpec, describes
from app.http.origins import OVERRIDE
from app.run.monitoring.instruments import Instruments, Snapshot, all_counts, start_time
from app.run.monitoring.requests import name_request
from app.storage.base import SetupProblem
from app.storage.local.folder import free_bytes
from app.video.make.ffmpeg import Ffmpeg

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

NOT_PLAIN = frozenset(
    {
        "HTTP_TRANSFER_ENCODING",
        "HTTP_ORIGIN",
        "HTTP_UPGRADE",
        OVERRIDE,
        "HTTP_X_FORWARDED_FOR",  # The access log shows the client's address, not the proxy's.
    }
)
"""Keys of the WSGI environment of requests that the application has to look at."""

ALIVE = b'{"status":"ok"}\n'

health = Blueprint("health", __name__)
metrics = Blueprint("metrics", __name__)

_EXTENSION = "sluice.instruments"


def init_app(app: Flask, instruments: Instruments) -> None:
    """Serve the counts of `instruments` and of all other processes."""
    app.extensions[_EXTENSION] = instruments


class AliveDocument(TypedDict):
    """The process answers."""

    status: Literal["ok"]


class ReadyDocument(TypedDict):
    """Whether the server can take uploads."""

    status: Literal["ready", "not ready", "leaving"]
    problems: list[SetupProblem]


@health.get("/healthz")
@requires(Action.VISIT, is_below_links=True, is_counted=False)
@describes("isAlive", {200: AliveDocument})
def alive(_ctx: ViewContext) -> Response:
    """Check that the process answers."""
    return Response(ALIVE, mimetype="application/json")


class AliveMiddleware:
    """Answers a plain `GET /healthz` before everything else.

    A request with a body, through a proxy, or from a page of another site, reaches the view; and so
    does one to a server that is stopping, whose responses close their connections.
    """

    def __init__(
        self,
        app: WSGIApplication,
        instruments: Instruments,
        headers: Mapping[str, str],
        node: ThisNode,
    ) -> None:
        self._app = app
        self._instruments = instruments
        self._node = node
        self._headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(ALIVE))),
            *headers.items(),
        ]

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer the probe, or run the application."""
        began, method = time.perf_counter(), environ["REQUEST_METHOD"]
        is_plain = (
            environ["PATH_INFO"] == "/healthz"
            and method in {"GET", "HEAD"}
            and environ.get("CONTENT_LENGTH", "") in {"", "0"}
            and NOT_PLAIN.isdisjoint(environ)
        )
        if not is_plain or self._node.is_leaving:
            return self._app(environ, start_response)
        headers = [*self._headers, ("X-Request-ID", name_request(environ))]
        start_response("200 OK", headers)
        self._instruments.requests("health", method, "2xx").inc()
        self._instruments.request_seconds("health").observe(time.perf_counter() - began)
        return [] if method == "HEAD" else [ALIVE]


@health.get("/readyz")
@requires(Action.VISIT, is_counted=False)
@describes(
    "isReady",
    {
        200: ResponseSpec("It can.", ReadyDocument),
        503: ResponseSpec("It cannot, and `problems` says why, or it is stopping.", ReadyDocument),
    },
)
def ready(ctx: ViewContext) -> tuple[Response, int]:
    """Check that the server can take uploads."""
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
